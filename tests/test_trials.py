"""What running a change's tests shows: one outcome for each change, a list for each test."""

import json
from dataclasses import replace

import pytest

from kbench_build.model.jobs import JobResult
from kbench_build.rules.last_words import last_words
from kbench_build.rules.records import from_json, to_json
from kbench_build.rules.trial_commands import (
    given_files,
    takes_files,
    unknown_places,
    with_files,
)
from kbench_build.rules.trial_data import Upstream, plan, unplaceable
from kbench_build.rules.trial_results import state_run
from kbench_build.rules.trial_totals import alarm, mute, totals
from kbench_build.rules.trials import (
    OUTCOMES,
    Judgement,
    StateRun,
    Statuses,
    Trial,
    TrialOutcome,
    judge,
    ran,
)
from kbench_build.rules.verifier_data import Change

FILES = ("tests/test_a.py",)
MONTH = 31 * 86_400


def runs(*statuses: Statuses) -> list[StateRun]:
    return [StateRun(statuses=each) for each in statuses]


def judged(base: Statuses, tests: Statuses, fix: Statuses, *, ran_before: bool = True) -> Judgement:
    found = {"base": runs(base), "tests": runs(tests), "fix": runs(fix)}
    return judge(found, files=FILES, ran_before=ran_before)  # type: ignore[arg-type]


def test_what_failed_before_and_passes_after_is_f2p() -> None:
    found = judged({"p": "passed"}, {"p": "passed", "f": "failed"}, {"p": "passed", "f": "passed"})
    assert (found.outcome, found.reason) == ("valid", "1 f2p, 1 p2p")
    assert found.expected
    assert found.expected["f2p_tests"] == ["f"]
    assert found.expected["p2p_tests"] == ["p"]


def test_what_could_not_be_loaded_before_is_new() -> None:
    found = judged({}, {"tests.test_a": "failed"}, {"tests.test_a.n": "passed"}, ran_before=False)
    assert (found.outcome, found.reason) == ("valid", "1 n2p")


@pytest.mark.parametrize(
    "fix",
    [{}, {"tests.test_a": "failed"}, {"test_a.py.test_a.py": "failed"}],
    ids=["no report", "not collected", "named twice"],
)
def test_nothing_ran_is_never_no_signal(fix: Statuses) -> None:
    assert judged({"p": "passed"}, {"p": "passed"}, fix).outcome == "nothing-ran"


def test_nothing_ran_at_the_base_is_told_where_the_base_has_the_files() -> None:
    found = judged({}, {"f": "failed"}, {"f": "passed"})
    assert (found.outcome, found.reason[:5]) == ("nothing-ran", "base:")
    assert judged({}, {"f": "failed"}, {"f": "passed"}, ran_before=False).outcome == "valid"


@pytest.mark.parametrize(
    ("test", "loaded"),
    [
        ("tests.test_a", False),
        ("sub.tests.test_a.py", False),
        ("unittest.loader._FailedTest.tests.test_a", False),
        ("Test suite failed to run./work/tests/test_a.py", False),
        ("example.org/pkg.TestMain", False),
        ("tests.test_a.test_b", True),
        ("tests.test_b", True),
        ("a.Class.test_a", True),
        ("x" * 100_000, True),
    ],
)
def test_a_file_that_cannot_be_loaded_is_told_by_its_name(test: str, loaded: bool) -> None:
    assert ran({test: "failed"}, FILES) is loaded
    assert ran({test: "passed"}, FILES)


def test_a_test_that_fails_after_the_fix_refuses_the_change() -> None:
    found = judged({}, {"f": "failed"}, {"f": "passed", "g": "failed"}, ran_before=False)
    assert (found.outcome, found.reason) == ("fails-after", "failed with the fix: g")


def test_a_test_that_fails_at_the_base_too_is_told_apart() -> None:
    base, fix = {"f": "failed", "g": "failed"}, {"f": "passed", "g": "failed"}
    assert judged(base, base, fix).reason == "failed with the fix, and at the base too: g"
    both = {"f": "failed", "g": "failed"}
    assert judged({"g": "failed"}, base, both).reason == "failed with the fix: f, g"


def test_no_f2p_and_no_n2p_is_no_signal_even_with_skipped_ones() -> None:
    assert judged({"p": "passed"}, {"p": "passed"}, {"p": "passed"}).outcome == "no-signal"
    found = judged({"s": "skipped"}, {"s": "skipped"}, {"s": "passed"})
    assert (found.outcome, found.reason) == ("no-signal", "1 s2p")


def test_repeats_must_agree() -> None:
    f, p = {"a": "failed"}, {"a": "passed"}
    found = judge({"base": [], "tests": runs(f, f), "fix": runs(p, f)}, files=(), ran_before=False)
    assert (found.outcome, found.unsteady) == ("unsteady", {"a": ("passed", "failed")})
    assert found.reason == "fix: a"
    missing = {"base": [], "tests": runs(f, {}), "fix": runs(p, p)}
    assert judge(missing, files=(), ran_before=False).unsteady == {"a": ("failed", "none")}  # type: ignore[arg-type]


def test_a_run_that_repeats_a_test_until_it_passes_is_unsteady() -> None:
    rerun = StateRun(statuses={"a": "passed"}, reran=("a",))
    found = judge(
        {"base": [], "tests": runs({"a": "failed"}), "fix": [rerun]}, files=(), ran_before=False
    )
    assert found.unsteady == {"a": ("failed, then passed",)}


@pytest.mark.parametrize("outcome", ["timeout", "error", "patch-fails"])
def test_a_run_that_was_stopped_decides(outcome: TrialOutcome) -> None:
    stopped = StateRun(stopped=outcome, why="it\nhung")
    found = judge(
        {"base": runs({"a": "passed"}), "tests": [stopped], "fix": runs({})},
        files=(),
        ran_before=True,
    )
    assert (found.outcome, found.reason) == (outcome, "tests: it hung")


def test_tests_that_change_themselves_are_refused() -> None:
    changed = StateRun(statuses={"a": "passed"}, tests_changed=True, why="tests-changed: a.snap")
    found = judge(
        {"base": [], "tests": runs({"a": "failed"}), "fix": [changed]}, files=(), ran_before=False
    )
    assert (found.outcome, found.reason) == ("fails-after", "tests-changed: a.snap")


def test_a_trial_is_the_same_after_it_was_written() -> None:
    trial = Trial(
        key="k",
        environment="e",
        merged=3,
        outcome="valid",
        reason="1 f2p",
        runs=2,
        seconds={"base": (1.0, 2.0)},
        expected={"f2p_tests": ["a"]},
        unsteady={"b": ("passed", "none")},
    )
    assert from_json(Trial, to_json(trial)) == trial


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("E  ImportError: no b\nsee above\nverifier: unresolved", "E  ImportError: no b"),
        ("npm ERR! code 1\nbye", "npm ERR! code 1"),
        ("ModuleNotFoundError: x\nerror: failed\n", "ModuleNotFoundError: x"),
        ("\x1b[31mKeyError: 'a'\x1b[0m\n", "KeyError: 'a'"),
        ("x" * 10_000, "x" * 200),
    ],
)
def test_the_line_that_says_why(output: str, line: str) -> None:
    assert last_words(output) == line


def test_why_nothing_ran_is_said() -> None:
    lost = StateRun(statuses={"tests.test_a": "failed"}, words="ImportError: no b")
    found = judge({"base": [], "tests": runs({}), "fix": [lost]}, files=FILES, ran_before=False)
    assert found.reason == "fix: can't be loaded: tests.test_a: ImportError: no b"


# --- the command ---


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["t", "{files}"], ["t", "a/T.kt", "b/c/U.kt"]),
        (["t", "--tests={name}"], ["t", "--tests=T", "--tests=U"]),
        (["t", "-Dtest={names}"], ["t", "-Dtest=T,U"]),
        (["t", "./{folder}"], ["t", "./a", "./b/c"]),
        (["t", "{}"], ["t", "{}"]),
    ],
)
def test_files_reach_the_command(command: list[str], words: list[str]) -> None:
    assert list(with_files(command, ["a/T.kt", "b/c/U.kt"])) == words
    assert takes_files(command) is (command[1] != "{}")


def test_no_file_is_taken_for_an_option() -> None:
    assert with_files(["t", "{files}"], ["-x.py", "y.py"]) == ("t", "./-x.py", "y.py")


def test_a_place_that_means_nothing_is_named() -> None:
    assert unknown_places(["t", "{file}", "{flies}", "{}"]) == ("flies",)


def test_only_tests_are_given_not_what_they_read() -> None:
    patterns = ["test_*.py", "*_test.py"]
    paths = [
        "tests/test_a.py",
        "tests/data.json",
        "a_test.py",
        "tests/conftest.py",
        "t\udcff_test.py",
    ]
    assert given_files(paths, patterns) == ("tests/test_a.py", "a_test.py", "t\udcff_test.py")


# --- the plan ---

DATA = {"command": ["t", "{files}"], "reports": ["r.xml"], "protected": {"globs": []}}
OLD, NEW = "100644 " + "a" * 40, "100644 " + "b" * 40


def upstream(*changes: Change) -> Upstream:
    return Upstream(files={}, hidden=changes, crlf=frozenset())


def test_each_state_runs_the_files_that_it_has() -> None:
    changes = (
        Change(path="test_new.py", before=None, after=NEW),
        Change(path="test_old.py", before=OLD, after=NEW),
        Change(path="test_gone.py", before=OLD, after=None),
    )
    found = plan(DATA, upstream(*changes), ["test_*.py"])
    commands = {state: verify["command"][1:] for state, verify in found.verify.items()}
    assert commands == {
        "base": ["test_old.py", "test_gone.py"],
        "tests": ["test_new.py", "test_old.py"],
        "fix": ["test_new.py", "test_old.py"],
    }
    assert found.ran_before
    assert found.verify["base"]["hidden"] == {}
    assert set(found.verify["fix"]["hidden"]) == {"test_new.py", "test_old.py", "test_gone.py"}


def test_a_base_without_the_files_is_not_run() -> None:
    found = plan(DATA, upstream(Change(path="test_a.py", before=None, after=NEW)), ["test_*.py"])
    assert list(found.verify) == ["tests", "fix"]
    assert not found.ran_before


def test_a_command_without_files_runs_everything_everywhere() -> None:
    data = {**DATA, "command": ["make", "test"]}
    found = plan(data, upstream(Change(path="a.json", before=None, after=NEW)), ["test_*.py"])
    assert [v["command"] for v in found.verify.values()] == [["make", "test"]] * 3
    assert found.ran_before


def test_a_submodule_cannot_be_put_in_place() -> None:
    change = Change(path="sub", before=None, after="160000 " + "c" * 40)
    assert unplaceable([Change(path="a", before=OLD, after=None), change]) == "sub"


# --- totals ---


def trial(outcome: TrialOutcome, month: int) -> Trial:
    return Trial(key="", environment="e", merged=month * MONTH, outcome=outcome, reason="")


def test_a_sharp_drop_is_an_alarm_and_what_was_not_tried_does_not_count() -> None:
    good: dict[TrialOutcome, int] = {"valid": 14, "no-signal": 6}
    bad: dict[TrialOutcome, int] = {"valid": 3, "nothing-ran": 17}
    months = [bad if month in (4, 5) else good for month in range(8)]
    trials = [
        trial(o, m) for m, some in enumerate(months) for o, n in some.items() for _ in range(n)
    ]
    found = totals([*trials, trial("no-environment", 1), trial("error", 1)])
    (drop,) = found.drops
    assert (drop.first, drop.last, drop.tried) == ("1970-05", "1970-06", 40)
    assert alarm(drop).startswith("e: 15% of 40 became tasks in 1970-05 to 1970-06, 70% in")
    assert sum(month.tried for month in found.months) == len(trials)
    assert sum(month.nothing_ran for month in found.months) == 34
    assert found.outcomes == {
        "valid": 90,
        "no-signal": 36,
        "nothing-ran": 34,
        "no-environment": 1,
        "error": 1,
    }
    assert list(found.outcomes) == [o for o in OUTCOMES if o in found.outcomes]
    assert not found.fine


def test_without_drops_and_errors_all_is_well() -> None:
    assert totals([trial("valid", 1), trial("fails-after", 1)]).fine
    assert not totals([trial("error", 1)]).fine


def test_an_environment_in_which_nothing_ever_ran_is_told() -> None:
    silent = [replace(trial("nothing-ran", 1), environment="old") for _ in range(3)]
    assert mute([*silent, trial("valid", 1)]) == ("old",)
    assert mute(silent[:2]) == ()
    assert mute([*silent, replace(trial("no-signal", 1), environment="old")]) == ()


# --- what came back ---


@pytest.mark.parametrize(
    "report",
    [
        {"command": None, "errors": None},
        {"command": [], "errors": [7, {"kind": 3}]},
        {"command": {"seconds": "long", "exit_code": {}}, "errors": {}},
        {"command": {"seconds": True}, "errors": "x", "flaky": 3},
    ],
)
def test_an_odd_report_is_no_crash(report: dict[str, object]) -> None:
    value = {"outcome": "unresolved", "reward": 0, "tests": {"\ud800": "passed", "b": 3}, **report}
    files = {"report.json": json.dumps(value).encode(), "reward.txt": b"0\n"}
    found = state_run(JobResult(status="exited", exit_code=0), files)
    assert (found.stopped, found.statuses) == (None, {"\ud800": "passed"})
    assert json.dumps(
        to_json(judge({"base": [], "tests": [found], "fix": [found]}, files=(), ran_before=False))
    )


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (JobResult(status="engine-error", error="gone"), "error"),
        (JobResult(status="timeout"), "timeout"),
        (JobResult(status="exited", exit_code=1), "error"),
    ],
)
def test_a_run_without_a_report_is_stopped(result: JobResult, outcome: str) -> None:
    assert state_run(result, {}).stopped == outcome
