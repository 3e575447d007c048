"""Whether a task's selfcheck passes: what its runs must show, and what is said when they don't."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbench_build.model import Finding, Outcome, Severity
from kbench_build.rules.expected_tests import CATEGORIES
from kbench_build.rules.findings import MOST_SPOTS, printable
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.runs import Kind, Run, Unstable, unstable_in
from kbench_build.rules.statuses import AFTER, NONE

WANTED: Mapping[Kind, tuple[Outcome, float]] = {
    "nop": ("unresolved", 0.0),
    "oracle": ("resolved", 1.0),
}
_MOST_NAMED = 10
_MOST_SHORT = 3
_OTHER_MEND = "Look at the runs in the report below .kbench/selfcheck/."
UNSTABLE = "tests/unstable"


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What the runs show together. `unstable` are the tests that gave different results."""

    ok: bool
    summary: str
    details: tuple[str, ...]
    unstable: tuple[Unstable, ...]


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


def conclude(
    runs: Sequence[Run], kinds: Mapping[str, str], quarantined: frozenset[str] = frozenset()
) -> Conclusion:
    """Whether nop runs score 0, oracle runs score 1, and nothing that counts is unstable.

    `kinds` are all expected tests; those in quarantine don't count.
    """
    counted = {test: kind for test, kind in kinds.items() if test not in quarantined}
    unstable = unstable_in(runs)
    details = [line for run in runs for line in _run_details(run, counted)]
    ok = not details and not any(one.id in counted for one in unstable)
    said = _said(unstable, counted, quarantined)
    summary = _summary(runs) if ok else next(iter(details), "nop 0, oracle 1")
    return Conclusion(
        ok=ok,
        summary="; ".join([summary, *([said] if said else [])]),
        details=tuple(details),
        unstable=unstable,
    )


def _summary(runs: Sequence[Run]) -> str:
    tests = max((len(run.verdict.tests) for run in runs), default=0)
    repeats = max((run.number for run in runs), default=0)
    parts = ["nop 0, oracle 1"]
    parts += [f"{repeats} times each"] if repeats > 1 else []
    parts += [f"{tests} tests"] if tests else []
    return ", ".join(parts)


def _said(
    unstable: Sequence[Unstable], counted: Mapping[str, str], quarantined: frozenset[str]
) -> str:
    """`2 unstable: a.b 1/3 (oracle), a.c 2/3 (nop, in quarantine)`; empty for none."""
    if not unstable:
        return ""
    named = [
        f"{printable(one.id)} {one.ratio} ({one.kind}{_standing(one.id, counted, quarantined)})"
        for one in unstable[:_MOST_SHORT]
    ]
    more = [f"{len(unstable) - _MOST_SHORT} more"] if len(unstable) > _MOST_SHORT else []
    return f"{len({one.id for one in unstable})} unstable: {', '.join([*named, *more])}"


def _standing(test: str, counted: Mapping[str, str], quarantined: frozenset[str]) -> str:
    if test in quarantined:
        return ", in quarantine"
    return "" if test in counted else ", not counted"


def instability(
    conclusion: Conclusion,
    *,
    task: str,
    kinds: Mapping[str, str],
    quarantined: frozenset[str],
    today: str,
) -> tuple[Finding, ...]:
    """A finding for each unstable test; one that counts is an error. `today`: such as 2026-11-29.

    The mend of one that counts is the line to add to the task's quarantine.
    """
    unstable = sorted(conclusion.unstable, key=lambda one: one.id not in kinds.keys() - quarantined)
    found = [_instability(one, task, kinds, quarantined, today) for one in unstable[:MOST_SPOTS]]
    if len(unstable) > MOST_SPOTS:
        message = f"has more of the kind: only the first {MOST_SPOTS} are listed"
        found.append(_unstable_finding(task, "note", message, _OTHER_MEND))
    return tuple(found)


def _instability(
    one: Unstable,
    task: str,
    kinds: Mapping[str, str],
    quarantined: frozenset[str],
    today: str,
) -> Finding:
    counts = one.id in kinds and one.id not in quarantined
    odd = "; ".join(one.odd[:_MOST_SHORT])
    message = f"{one.id}: passed in {one.ratio} {one.kind} runs: {odd}"
    if one.id in quarantined:
        return _unstable_finding(task, "note", message, "It is in quarantine already.")
    if not counts:
        return _unstable_finding(task, "note", message, "It isn't expected, so it decides nothing.")
    entry = {"id": one.id, "reason": "", "since": today, "ratio": one.ratio}
    mend = f"Mend it, or add to tests/quarantine.json, with a reason: {json.dumps(entry)}"
    return _unstable_finding(task, "error", message, mend)


def _unstable_finding(task: str, severity: Severity, message: str, mend: str) -> Finding:
    return Finding(
        rule=UNSTABLE,
        severity=severity,
        file=f"tasks/{task}/tests/expected_tests.json",
        message=printable(message),
        mend=mend,
    )


def _run_details(run: Run, kinds: Mapping[str, str]) -> Iterator[str]:
    outcome, reward = WANTED[run.kind]
    got = run.verdict
    if got.outcome != outcome or got.reward != reward:
        scored = "" if got.reward is None else f" (reward {got.reward:g})"
        why = f": {got.why}" if got.why else ""
        yield f"{run}: {got.outcome}{scored}, must be {outcome}{why}"
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
