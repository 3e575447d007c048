"""What running a change's tests shows: before it, with its tests alone, and with its fix.

Promises: one outcome for each change that was tried, from the statuses of three states of its
checkout, each run as often as asked for; the value of `tests/expected_tests.json` where it becomes
a task. Nothing that ran is an outcome of its own: it says something about the environment, never
about the tests. Leaves running anything to others, and what a status is to the verifier.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kbench_build.rules.findings import printable
from kbench_build.rules.statuses import NONE, unsteady
from kbench_build.rules.yields import Tried

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
    "valid": "prove their fix: it makes tests pass",
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
_MOST_NAMED = 3
_LONGEST = 400
_LONGEST_ID = 4_000
_RERUN = "failed, then passed"
# What says nothing of the environment: it wasn't run there, or will be again.
_NOT_TRIED = ("no-environment", "error")
# Go's word for a package whose tests don't compile.
_PACKAGE = ".TestMain"

Statuses = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one candidate: the content of its `trial.json`.

    `key` is the digest of everything that decided it, `merged` when the change was merged.
    `seconds` are those of the test command in each state, run by run. `expected` is the value of
    `tests/expected_tests.json`, only of a valid one. `unsteady` holds the statuses of each test
    that repeats disagree about, run by run. `command` are the test command's words for this change.
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
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StateRun:
    """One run of one state. `why` is what there is to say of it, in one line.

    `stopped` is the outcome of a run that gave no statuses that count. `words` are the last that
    the test command had. `reran` are tests that the run itself repeated until they passed;
    `tests_changed` says that it changed its own test files.
    """

    statuses: Statuses = field(default_factory=dict)
    seconds: float = 0.0
    stopped: TrialOutcome | None = None
    why: str = ""
    words: str = ""
    reran: tuple[str, ...] = ()
    tests_changed: bool = False


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the runs of a candidate show together; the fields are those of `Trial`."""

    outcome: TrialOutcome
    reason: str
    expected: Mapping[str, Any] | None = None
    unsteady: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def judge(
    runs: Mapping[State, Sequence[StateRun]], *, files: Sequence[str], ran_before: bool
) -> Judgement:
    """What became of a candidate, from at least one run of each state.

    `files` are the change's test files; `ran_before`: there were some at the base, so that
    something must have run there. An empty sequence is a state in which there was nothing to run.
    """
    seen = [(state, run) for state in STATES for run in runs[state]]
    stopped = next(((state, run) for state, run in seen if run.stopped), None)
    if stopped:
        state, run = stopped
        return Judgement(outcome=run.stopped or "error", reason=_line(f"{state}: {run.why}"))
    found = _disagreement(runs) or _not_run(runs, files, ran_before)
    return found or _compared(*(runs[state][0] if runs[state] else StateRun() for state in STATES))


def _disagreement(runs: Mapping[State, Sequence[StateRun]]) -> Judgement | None:
    for state in STATES:
        differ = disagreeing([run.statuses for run in runs[state]])
        differ |= {test: (_RERUN,) for run in runs[state] for test in run.reran}
        if differ:
            reason = _line(f"{state}: {_named(differ)}")
            return Judgement(outcome="unsteady", reason=reason, unsteady=differ)
    return None


def _not_run(
    runs: Mapping[State, Sequence[StateRun]], files: Sequence[str], ran_before: bool
) -> Judgement | None:
    states: tuple[State, ...] = ("base", "fix") if ran_before else ("fix",)
    for state in states:
        first = runs[state][0]
        if not ran(first.statuses, files):
            words = f": {first.words}" if first.words else ""
            loaded = f"can't be loaded: {_named(first.statuses)}{words}" if first.statuses else ""
            why = loaded or first.why or "the reports hold no test"
            return Judgement(outcome="nothing-ran", reason=_line(f"{state}: {why}"))
    return None


def _compared(base: StateRun, tests: StateRun, fix: StateRun) -> Judgement:
    failed = sorted(test for test, status in fix.statuses.items() if status == "failed")
    if failed or fix.tests_changed:
        # Such tests may lack something of the environment, and nothing of the change.
        before = all(base.statuses.get(test) == "failed" for test in failed)
        where = "with the fix, and at the base too" if before else "with the fix"
        why = f"failed {where}: {_named(failed)}" if failed else fix.why
        return Judgement(outcome="fails-after", reason=_line(why))
    value = expected(base.statuses, tests.statuses, fix.statuses)
    numbers = {name.removesuffix("_tests"): len(value[name]) for name in LISTS.values()}
    said = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number)
    if not value["f2p_tests"] and not value["n2p_tests"]:
        return Judgement(outcome="no-signal", reason=said or "no test passes with the fix")
    return Judgement(outcome="valid", reason=said, expected=value)


def ran(statuses: Statuses, files: Sequence[str]) -> bool:
    """Whether any test ran: one that failed and is called like a test file couldn't be loaded."""
    marks = {mark for file in files for mark in _marks(file)}
    return any(s != "failed" or not _is_load_failure(i, marks) for i, s in statuses.items())


def _is_load_failure(test: str, marks: set[str]) -> bool:
    """Whether an id is a file's, as runners report one that they can't load.

    `tests.test_a` (pytest), `src/a.test.ts.src/a.test.ts` (vitest), `… failed to run./a.test.js`
    (jest), `unittest.loader._FailedTest.tests.test_a`, `pkg.TestMain` (Go).
    """
    if len(test) > _LONGEST_ID:
        return False
    ends = (test[at + 1 :] for at, letter in enumerate(test) if letter in "./ ")
    return test.endswith(_PACKAGE) or test in marks or any(end in marks for end in ends)


def _marks(file: str) -> Iterator[str]:
    """What a runner that was started somewhere above a file may call it."""
    parts = file.split("/")
    for start in range(len(parts)):
        path = "/".join(parts[start:])
        yield path
        stem = path.rpartition(".")[0]
        # One name alone may as well be a test's.
        if len(parts) - start > 1 or len(parts) == 1:
            yield stem.replace("/", ".")


def tried(trials: Iterable[Trial]) -> Iterator[Tried]:
    """The trials that count for the yield of an environment."""
    for trial in trials:
        if trial.outcome not in _NOT_TRIED:
            word: Any = trial.outcome if trial.outcome in ("valid", "nothing-ran") else "invalid"
            yield Tried(environment=trial.environment, merged=trial.merged, trial=word)


def _named(tests: Iterable[str]) -> str:
    names = sorted(tests)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(name[:120] for name in names[:_MOST_NAMED]) + more


def _line(text: str) -> str:
    return printable(" ".join(text.split()))[:_LONGEST]


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
