"""By what an absence was noticed, which parts are tried, and what share that makes."""

from typing import Any

import pytest

from kbench_build.rules.hunks import Part
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.probing import (
    Control,
    Tried,
    findings,
    from_json,
    limit_sec,
    noticed,
    probe_of,
    result_json,
    share_of,
    summary,
    worth_probing,
)

FAILED = {"a": "failed", "b": "none"}
LOST = {"a": "none", "b": "none"}


def part(number: int = 1, **changes: Any) -> Part:
    values: dict[str, Any] = {"kind": "hunk", "path": "a.kt", "line": 5, "where": "@@ -1 +1 @@"}
    return Part(number=number, **{**values, **changes})


def tried(outcome: Any, **changes: Any) -> Tried:
    return Tried(verdict=Verdict(outcome=outcome), **{"applied": True, **changes})


@pytest.mark.parametrize(
    ("run", "by"),
    [
        (tried("unresolved", not_passed=FAILED), "tests"),
        (tried("unresolved", not_passed=LOST), "build"),
        (tried("unresolved"), "tests"),
        (tried("timeout"), "time-out"),
        (tried("resolved"), "nothing"),
        (tried("agent-error", applied=False), "doesn't apply"),
        (tried("unresolved", applied=False), "doesn't apply"),
        (tried("verifier-error"), "unknown"),
        (tried("infra-error"), "unknown"),
    ],
)
def test_by_what_an_absence_was_noticed(run: Tried, by: str) -> None:
    assert noticed(run) == by


def test_a_share_counts_what_was_judged_in_parts_and_in_lines() -> None:
    probes = [
        probe_of(part(1, added=6, removed=2), tried("unresolved", not_passed=FAILED)),
        probe_of(part(2, added=1), tried("unresolved", not_passed=LOST)),
        probe_of(part(3, added=3), tried("resolved")),
        probe_of(part(4, added=9), tried("agent-error", applied=False)),
        probe_of(part(5, kind="mode", where=""), tried("resolved")),
    ]
    share = share_of(probes)
    assert (share.parts, share.of_parts, share.lines, share.of_lines) == (2, 4, 9, 13)
    parts = [*(probe.part for probe in probes), part(6, inert="comments"), part(7)]
    assert summary(parts, probes, []) == (
        "tests guard 2 of 4 parts of the gold patch, 9 of 13 lines (69 %), 1 noticed by the build "
        "alone, 1 can't be left out alone, 1 documentation or comments, 5 of 6 parts tried"
    )
    found = findings("t", probes, [])
    assert [(f.file, f.where) for f in found] == [("tasks/t/solution/fix.patch", "line 5")] * 2
    assert "a.kt @@ -1 +1 @@ (+3 -0)" in found[0].message


def test_tests_that_pass_without_the_fix_are_said_before_all_else() -> None:
    control = Control(name="test patch alone", reward=1.0, outcome="resolved")
    assert summary([], [], [control]) == "the tests pass without the fix: test patch alone"
    assert findings("t", [], [control])[0].severity == "error"


@pytest.mark.parametrize(
    ("parts", "most", "chosen"),
    [(3, 5, [1, 2, 3]), (10, 4, [1, 4, 7, 10]), (9, 1, [1]), (100, 3, [1, 51, 100]), (0, 3, [])],
)
def test_a_sample_is_even(parts: int, most: int, chosen: list[int]) -> None:
    found = worth_probing([part(n) for n in range(1, parts + 1)], most)
    assert [one.number for one in found] == chosen


def test_what_nothing_can_depend_on_isnt_tried() -> None:
    assert worth_probing([part(1, inert="comments"), part(2)], 5) == (part(2),)


def test_a_hanging_run_is_stopped_by_the_gold_patchs_own_time() -> None:
    assert [limit_sec(n) for n in (1.0, 30.0)] == [60.0, 150.0]


def test_a_result_is_read_back() -> None:
    probe = probe_of(part(), tried("unresolved", not_passed=FAILED, seconds=1.5))
    assert from_json(probe.part, result_json(probe)) == probe
