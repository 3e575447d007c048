"""Runs of a task's verifier, and the tests that give different results in runs of one kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.statuses import NONE, unsteady

Kind = Literal["nop", "oracle"]
KINDS: tuple[Kind, ...] = ("nop", "oracle")
_REPEATED = "failed, then passed"
_SHOWN = {NONE: "not reported"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a kind, counted from 1: what was varied in it, and what became of it."""

    kind: Kind
    number: int
    verdict: Verdict
    variation: str = ""

    def __str__(self) -> str:
        """`oracle run 2 (TZ=Asia/Kathmandu)`."""
        return f"{self.kind} run {self.number}" + (f" ({self.variation})" if self.variation else "")


@dataclass(frozen=True, kw_only=True)
class Unstable:
    """A test that passed in `passed` of `runs` runs of one kind.

    `odd` are the runs in which it ended otherwise than in most, and how.
    """

    id: str
    kind: Kind
    passed: int
    runs: int
    odd: tuple[str, ...]

    @property
    def ratio(self) -> str:
        """`2/3`."""
        return f"{self.passed}/{self.runs}"


def unstable_in(runs: Sequence[Run]) -> tuple[Unstable, ...]:
    """The tests that differ between runs of one kind, or within a run that repeats its failures.

    A run that broke, or in which no test was reported, says nothing of single tests.
    """
    found = (_unstable_of(kind, [r for r in runs if r.kind == kind]) for kind in KINDS)
    return tuple(one for ones in found for one in ones)


def _unstable_of(kind: Kind, runs: Sequence[Run]) -> Iterator[Unstable]:
    telling = [run for run in runs if run.verdict.tests and _ended(run.verdict)]
    seen = [_statuses(run.verdict) for run in telling]
    repeated = {test for run in telling for test in run.verdict.reruns_disagreed}
    for test in sorted(repeated.union(unsteady(seen))):
        told = [one.get(test, NONE) for one in seen]
        yield Unstable(
            id=test,
            kind=kind,
            passed=told.count("passed"),
            runs=len(told),
            odd=tuple(_odd(telling, told)),
        )


def _odd(runs: Sequence[Run], told: Sequence[str]) -> Iterator[str]:
    usual = max(dict.fromkeys(told), key=told.count)
    for run, status in zip(runs, told, strict=True):
        if status != usual or status == _REPEATED:
            yield f"{_SHOWN.get(status, status)} in {run}"


def _statuses(verdict: Verdict) -> Mapping[str, str]:
    """A run's statuses; a test that passed only when it was repeated hasn't simply passed."""
    return {**verdict.tests, **dict.fromkeys(verdict.reruns_disagreed, _REPEATED)}


def _ended(verdict: Verdict) -> bool:
    return verdict.outcome in ("resolved", "unresolved")
