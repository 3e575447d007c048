"""What many trials come to: how many of each outcome, the yield by month, and its sharp drops."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kbench_build.rules.trials import OUTCOMES, Trial, TrialOutcome, tried
from kbench_build.rules.yields import Drop, Month, by_month, drops

_SEVERAL = 3


@dataclass(frozen=True, kw_only=True)
class Totals:
    """All trials of a repository together; the counts are in the order of `OUTCOMES`."""

    outcomes: Mapping[TrialOutcome, int]
    months: tuple[Month, ...]
    drops: tuple[Drop, ...]

    @property
    def fine(self) -> bool:
        """Whether every candidate could be tried, and no environment's yield drops sharply."""
        return not self.drops and not self.outcomes.get("error")


def totals(trials: Sequence[Trial]) -> Totals:
    """The totals of these trials."""
    counts = Counter(trial.outcome for trial in trials)
    months = by_month(tried(trials))
    return Totals(
        outcomes={outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]},
        months=months,
        drops=drops(months),
    )


def mute(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Environments in which nothing ran in any of several candidates: they are at fault."""
    of_each: dict[str, list[TrialOutcome]] = {}
    for trial in trials:
        of_each.setdefault(trial.environment, []).append(trial.outcome)
    return tuple(
        name
        for name, outcomes in of_each.items()
        if len(outcomes) >= _SEVERAL and set(outcomes) == {"nothing-ran"}
    )


def usual(seconds: Sequence[float]) -> float:
    """The median, 0 of nothing."""
    return median(seconds) if seconds else 0.0


def alarm(drop: Drop) -> str:
    """A sharp drop in one line."""
    when = drop.first if drop.first == drop.last else f"{drop.first} to {drop.last}"
    return (
        f"{drop.environment}: {drop.share:.0%} of {drop.tried} became tasks in {when}, "
        f"{drop.usual:.0%} in its other months: its environment may not fit those bases"
    )
