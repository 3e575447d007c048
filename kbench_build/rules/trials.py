"""What running a change's tests shows: before it, with its tests alone, and with its fix.

Promises: one outcome for each change that was tried, from the statuses of three states of its
checkout, each run as often as asked for; the value of `tests/expected_tests.json` where it becomes
a task. Nothing that ran is an outcome of its own: it says something about the environment, never
about the tests. Leaves running anything to others, and what a status is to the verifier.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kbench_build.rules.statuses import NONE, unsteady

State = Literal["base", "tests", "fix"]
STATES: tuple[State, ...] = ("base", "tests", "fix")

TrialOutcome = Literal[
    "valid",
    "nothing-ran",
    "no-signal",
    "fails-after",
    "unsteady",
    "patch-fails",
    "timeout",
    "no-environment",
    "error",
]
OUTCOMES: Mapping[TrialOutcome, str] = {
    "valid": "become tasks: tests that fail or are missing before the fix pass after it",
    "no-signal": "no test tells the fix from its absence",
    "fails-after": "a test of the change fails with the fix",
    "unsteady": "repeats disagree",
    "nothing-ran": "nothing ran: no report, or no test file could be loaded",
    "timeout": "the test command didn't end within its time limit",
    "patch-fails": "a patch doesn't apply to the base",
    "no-environment": "no environment serves the base",
    "error": "couldn't be tried; is tried again",
}
# before the fix → the list of a test that passes after it
LISTS = {"failed": "f2p_tests", "passed": "p2p_tests", "skipped": "s2p_tests", None: "n2p_tests"}
_VERSION = 1

Statuses = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one candidate: the content of its `trial.json`.

    `key` is the digest of everything that decided it, `merged` when the change was merged.
    `seconds` are those of the test command in each state, run by run. `expected` is the value of
    `tests/expected_tests.json`, only of a valid one. `unsteady` holds the statuses of each test
    that repeats disagree about, run by run.
    """

    version: int = _VERSION
    key: str
    environment: str
    merged: int
    outcome: TrialOutcome
    reason: str
    runs: int = 0
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    expected: Mapping[str, Any] | None = None
    unsteady: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def result_of(statuses: Statuses) -> dict[str, list[str]]:
    """One run as `expected_tests.json` has it."""
    return {
        f"{status}_tests": sorted(i for i, found in statuses.items() if found == status)
        for status in ("passed", "failed", "skipped")
    }


def before_fix(base: Statuses, tests: Statuses) -> dict[str, str]:
    """The statuses before the fix: a module whose new tests don't compile ran only at the base."""
    return {**base, **tests}


def expected(base: Statuses, tests: Statuses, fix: Statuses) -> dict[str, Any]:
    """The value of `expected_tests.json`, from one run of each state."""
    before = before_fix(base, tests)
    lists: dict[str, list[str]] = {name: [] for name in LISTS.values()}
    for test in sorted(i for i, status in fix.items() if status == "passed"):
        lists[LISTS[before.get(test)]].append(test)
    return {**lists, "run_result": result_of(base), "test_patch_result": result_of(tests)}


def complaints(base: Statuses, tests: Statuses, fix: Statuses) -> Iterator[str]:
    """What is suspicious in the runs: tests that the fix doesn't make pass, or that it loses."""
    yield from (f"{i}: failed with the fix" for i, s in sorted(fix.items()) if s == "failed")
    before = before_fix(base, tests)
    lost = sorted(i for i, s in before.items() if s == "passed" and i not in fix)
    yield from (f"{i}: passed before the fix, isn't run after it" for i in lost)


def disagreeing(runs: Sequence[Statuses]) -> dict[str, tuple[str, ...]]:
    """The tests that these runs of one state disagree about, with their status in each."""
    return {test: tuple(run.get(test, NONE) for run in runs) for test in unsteady(runs)}


def unhidden(verify: Mapping[str, Any]) -> dict[str, Any]:
    """verify.json without a hidden patch: the files that it touches are protected ones then."""
    held = {path: sides["base"] for path, sides in verify["hidden"].items() if sides["base"]}
    protected = verify.get("protected", {"globs": [], "files": {}})
    files = {**protected["files"], **held}
    return {**verify, "hidden": {}, "protected": {**protected, "files": files}}
