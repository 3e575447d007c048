"""How many candidates become tasks, month by month, and the alarm for a sharp drop.

A drop on a date is nearly always the environment's fault (a path that moved, a tool that is too
old), not the changes'. The alarm compares each run of months with all others of the same
environment by a two-proportion z-test, one-sided, at a level of 0.01 % shared out over all runs
that are compared (Bonferroni). To the binomial variance it adds that of months which differ by 8
points (one standard deviation) for no reason, as real projects' do: with many candidates a month
the plain test finds those ups and downs. A drop of less than 25 points is never an alarm. What
couldn't be tried counts as tried, and is shown apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from statistics import NormalDist
from typing import Literal

Trial = Literal["valid", "invalid", "nothing-ran"]

_LEVEL = 0.0001
_LEAST_DROP = 0.25
_BETWEEN_MONTHS = 0.08
# Fewer candidates say nothing: the normal distribution is no model for them.
_FEWEST = 10


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One candidate that was run: in which environment, when it was merged, what came of it."""

    environment: str
    merged: int
    trial: Trial


@dataclass(frozen=True, kw_only=True)
class Month:
    """What came of the candidates of one month (`2024-03`) in one environment."""

    environment: str
    month: str
    tried: int
    valid: int
    nothing_ran: int

    @property
    def share(self) -> float:
        """The share that became tasks, from 0 to 1."""
        return self.valid / self.tried if self.tried else 0.0


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Consecutive months in which an environment gave far less than in all others.

    `p_value` is that of the test, times the number of comparisons.
    """

    environment: str
    first: str
    last: str
    share: float
    usual: float
    tried: int
    p_value: float


def by_month(tried: Iterable[Tried]) -> tuple[Month, ...]:
    """The yield of each environment and month, sorted; months without a candidate are left out."""
    found: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for each in tried:
        month = datetime.fromtimestamp(each.merged, UTC).strftime("%Y-%m")
        found[each.environment, month].append(each.trial)
    return tuple(
        Month(
            environment=environment,
            month=month,
            tried=len(trials),
            valid=trials.count("valid"),
            nothing_ran=trials.count("nothing-ran"),
        )
        for (environment, month), trials in sorted(found.items())
    )


def drops(months: Iterable[Month]) -> tuple[Drop, ...]:
    """The sharpest drop of each environment that has one."""
    of_each: dict[str, list[Month]] = defaultdict(list)
    for month in months:
        of_each[month.environment].append(month)
    found = (_sharpest(sorted(each, key=lambda m: m.month)) for each in of_each.values())
    return tuple(drop for drop in found if drop)


def _sharpest(months: Sequence[Month]) -> Drop | None:
    runs = list(_runs(len(months)))
    found = [drop for run in runs if (drop := _drop(months, *run, len(runs)))]
    # Of runs that are all beyond doubt the one that differs most has the right edges.
    return min(found, key=lambda d: (d.p_value, d.share - d.usual), default=None)


def _runs(length: int) -> Iterator[tuple[int, int]]:
    """Every run of consecutive months that leaves some month outside."""
    for start in range(length):
        for end in range(start + 1, length + 1):
            if end - start < length:
                yield start, end


def _drop(months: Sequence[Month], start: int, end: int, compared: int) -> Drop | None:
    inside, outside = months[start:end], [*months[:start], *months[end:]]
    n, others = sum(m.tried for m in inside), sum(m.tried for m in outside)
    if min(n, others) < _FEWEST:
        return None
    share, usual = (
        sum(m.valid for m in each) / size for each, size in ((inside, n), (outside, others))
    )
    if usual - share < _LEAST_DROP:
        return None
    deviation = _deviation((n, len(inside), share), (others, len(outside), usual))
    p_value = NormalDist().cdf((share - usual) / deviation) * compared
    if p_value >= _LEVEL:
        return None
    return Drop(
        environment=inside[0].environment,
        first=inside[0].month,
        last=inside[-1].month,
        share=share,
        usual=usual,
        tried=n,
        p_value=p_value,
    )


def _deviation(one: tuple[int, int, float], other: tuple[int, int, float]) -> float:
    """The standard deviation of the difference of two shares, each (candidates, months, share)."""
    (n, months, share), (others, other_months, usual) = one, other
    pooled = (share * n + usual * others) / (n + others)
    binomial = pooled * (1 - pooled) * (1 / n + 1 / others)
    return sqrt(binomial + _BETWEEN_MONTHS**2 * (1 / months + 1 / other_months))
