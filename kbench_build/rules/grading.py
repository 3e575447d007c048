"""Whether a task's selfcheck passes: what its runs must show, and what is said when they don't."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kbench_build.model import Outcome
from kbench_build.rules.expected_tests import CATEGORIES
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.statuses import AFTER, NONE, unsteady

Kind = Literal["nop", "oracle"]
KINDS: tuple[Kind, ...] = ("nop", "oracle")
WANTED: Mapping[Kind, tuple[Outcome, float]] = {
    "nop": ("unresolved", 0.0),
    "oracle": ("resolved", 1.0),
}
_MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a kind, counted from 1, and what became of it."""

    kind: Kind
    number: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What the runs show together. `flaky` are the tests that gave different results."""

    ok: bool
    summary: str
    details: tuple[str, ...]
    flaky: tuple[str, ...]


def kinds_of(expected: Any) -> dict[str, str]:
    """Each expected test's transition (`f2p`, …), from the content of `expected_tests.json`."""
    if not isinstance(expected, Mapping):
        return {}
    lists = {name: expected.get(name) for name in CATEGORIES}
    return {
        test: name.removesuffix("_tests")
        for name, ids in lists.items()
        if isinstance(ids, list)
        for test in ids
        if isinstance(test, str)
    }


def conclude(runs: Sequence[Run], kinds: Mapping[str, str]) -> Conclusion:
    """Whether nop runs score 0, oracle runs score 1, and nothing that counts is unsteady."""
    details = [line for run in runs for line in _run_details(run, kinds)]
    flaky = _flaky(runs)
    counted = [test for test in flaky if test in kinds]
    details += [f"flaky: {test}" for test in counted]
    ok = not details
    details += [f"flaky, not counted: {test}" for test in flaky if test not in kinds]
    return Conclusion(
        ok=ok,
        summary=_summary(runs, flaky) if ok else details[0],
        details=tuple(details),
        flaky=flaky,
    )


def _summary(runs: Sequence[Run], flaky: Sequence[str]) -> str:
    tests = max((len(run.verdict.tests) for run in runs), default=0)
    repeats = max((run.number for run in runs), default=0)
    parts = ["nop 0, oracle 1"]
    parts += [f"{repeats} times each"] if repeats > 1 else []
    parts += [f"{tests} tests"] if tests else []
    parts += [f"{len(flaky)} flaky, not counted"] if flaky else []
    return ", ".join(parts)


def _run_details(run: Run, kinds: Mapping[str, str]) -> Iterator[str]:
    outcome, reward = WANTED[run.kind]
    got = run.verdict
    if got.outcome != outcome or got.reward != reward:
        scored = "" if got.reward is None else f" (reward {got.reward:g})"
        why = f": {got.why}" if got.why else ""
        yield f"{run.kind} run {run.number}: {got.outcome}{scored}, must be {outcome}{why}"
        yield from _named("not passed", _not_passed(run, kinds))
    elif run.kind == "nop":
        yield from _named("passes without the fix", _passes_already(got, kinds))


def _not_passed(run: Run, kinds: Mapping[str, str]) -> list[str]:
    """The expected tests that fail an oracle run; none to name when nothing was reported."""
    tests = run.verdict.tests
    if run.kind == "nop" or not tests:
        return []
    return [f"{i} ({tests.get(i, NONE)})" for i in sorted(kinds) if tests.get(i) != AFTER[kinds[i]]]


def _passes_already(verdict: Verdict, kinds: Mapping[str, str]) -> list[str]:
    return [i for i in sorted(verdict.tests) if _needs_fix(kinds.get(i)) and _passed(verdict, i)]


def _needs_fix(kind: str | None) -> bool:
    return kind in ("f2p", "s2p", "n2p")


def _passed(verdict: Verdict, test: str) -> bool:
    return verdict.tests[test] == "passed"


def _named(what: str, tests: Sequence[str]) -> Iterator[str]:
    yield from (f"{what}: {test}" for test in tests[:_MOST_NAMED])
    if len(tests) > _MOST_NAMED:
        yield f"{what}: {len(tests) - _MOST_NAMED} more"


def _flaky(runs: Sequence[Run]) -> tuple[str, ...]:
    """Tests that differ between repeats of one kind, or within a run that repeats its failures.

    Runs that broke (no tests reported, an error of engine or verifier) say nothing about tests.
    """
    found: set[str] = set()
    for kind in KINDS:
        told = [r.verdict for r in runs if r.kind == kind and _tells(r.verdict)]
        found.update(unsteady(v.tests for v in told))
    return tuple(sorted(found | set(_rerun(runs))))


def _tells(verdict: Verdict) -> bool:
    return verdict.outcome in ("resolved", "unresolved")


def _rerun(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        yield from run.verdict.reruns_disagreed
