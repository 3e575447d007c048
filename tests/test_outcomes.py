"""One outcome for every way that a run can end, and rewards as Harbor reads them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench_build.model.jobs import Changes, JobResult
from kbench_build.rules.grading import conclude, instability, kinds_of
from kbench_build.rules.limits import limits
from kbench_build.rules.outcomes import Verdict, solution_verdict, verdict
from kbench_build.rules.runs import Run
from kbench_build.rules.statuses import restore, shorten, unsteady

ENDED = JobResult(status="exited", exit_code=0, output="words\n")


def _files(text: str | None = "1\n", /, **report: Any) -> dict[str, bytes]:
    files = {} if text is None else {"reward.txt": text.encode()}
    if report:
        whole = {"version": 1, "tests": {}, "errors": [], **report}
        files["report.json"] = json.dumps(whole).encode()
    return files


RESOLVED = _files("1\n", outcome="resolved", reward=1, tests={"a.b": "passed"})
UNRESOLVED = _files("0\n", outcome="unresolved", reward=0, tests={"a.b": "failed"})


@pytest.mark.parametrize(
    ("result", "files", "outcome", "reward", "why"),
    [
        (ENDED, RESOLVED, "resolved", 1, ""),
        (ENDED, UNRESOLVED, "unresolved", 0, ""),
        (JobResult(status="engine-error", error="gone"), {}, "infra-error", None, "gone"),
        (JobResult(status="timeout"), RESOLVED, "timeout", None, "didn't end"),
        (JobResult(status="oom", exit_code=137), RESOLVED, "verifier-error", None, "memory"),
        (JobResult(status="exited", exit_code=127, output="bash: not found"), {},
         "verifier-error", None, "can't start: bash: not found"),
        (JobResult(status="exited", exit_code=1, output="x\nlast"), _files("0"),
         "verifier-error", None, "left no report.json: last"),
        (JobResult(status="exited", exit_code=137), RESOLVED, "verifier-error", None, "code 137"),
        (ENDED, {}, "verifier-error", None, "no report.json"),
        (ENDED, {"report.json": b"{"}, "verifier-error", None, "can't be read"),
        (ENDED, {"report.json": b"[" * 100000}, "verifier-error", None, "can't be read"),
        (ENDED, {"report.json": b"[]"}, "verifier-error", None, "isn't a report"),
        (ENDED, _files("1", outcome="unresolved", reward=0), "verifier-error", None, "otherwise"),
        (ENDED, _files("0", outcome="resolved", reward=1), "verifier-error", None, "otherwise"),
        (ENDED, _files(None, outcome="resolved", reward=1), "verifier-error", None, "no reward"),
        (ENDED, _files("0", outcome="timeout", reward=0), "timeout", None, ""),
        (ENDED, _files("0", outcome="verifier-error", reward=0,
                       errors=[{"kind": "data", "message": "bad"}]),
         "verifier-error", None, "data: bad"),
    ],
)  # fmt: skip
def test_shipped_verifier(result: JobResult, files: dict[str, bytes], outcome: str,
                          reward: float | None, why: str) -> None:  # fmt: skip
    found = verdict(result, files, shipped=True)
    assert (found.outcome, found.reward) == (outcome, reward)
    assert why in found.why


@pytest.mark.parametrize(
    ("files", "outcome", "reward"),
    [
        ({"reward.txt": b" 1.0\n"}, "resolved", 1),
        ({"reward.txt": b"0"}, "unresolved", 0),
        ({"reward.txt": b"0.5"}, "unresolved", 0.5),
        ({"reward.txt": b"0", "reward.json": b'{"reward": 1}'}, "resolved", 1),
        ({"reward.txt": b"1", "reward.json": b'{"reward": 0.25, "style": 1}'}, "unresolved", 0.25),
        ({"reward.json": b'{"tests": 1, "style": 0}'}, "unresolved", 0),
        ({"reward.json": b"1"}, "resolved", 1),
        ({"reward.txt": b"1", "reward.json": b"{}"}, "verifier-error", None),
        ({"reward.txt": b"1", "reward.json": b"{"}, "verifier-error", None),
        ({"reward.json": b'{"reward": "1"}'}, "verifier-error", None),
        ({"reward.json": b'{"reward": true}'}, "verifier-error", None),
        ({"reward.json": b'{"reward": NaN}'}, "verifier-error", None),
        ({"reward.txt": b"inf"}, "verifier-error", None),
        ({"reward.txt": b"yes"}, "verifier-error", None),
        ({"reward.txt": b""}, "verifier-error", None),
        ({}, "verifier-error", None),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_own_verifier(files: dict[str, bytes], outcome: str, reward: float | None,
                      code: int) -> None:  # fmt: skip
    # Harbor ignores the exit code of a test.sh, so a reward counts whatever it was.
    found = verdict(JobResult(status="exited", exit_code=code), files, shipped=False)
    assert (found.outcome, found.reward) == (outcome, reward)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (JobResult(status="engine-error", error="x"), "infra-error"),
        (JobResult(status="timeout"), "timeout"),
        (JobResult(status="oom", exit_code=137), "agent-error"),
        (JobResult(status="exited", exit_code=1), "agent-error"),
        (JobResult(status="exited", exit_code=0), "agent-error"),
    ],
)
def test_what_stops_a_run_before_its_verifier(result: JobResult, outcome: str) -> None:
    found = solution_verdict(result)
    assert found
    assert found.outcome == outcome


def test_a_solution_that_ended_well_is_graded() -> None:
    changes = Changes(archive=b"", deleted=())
    assert solution_verdict(JobResult(status="exited", exit_code=0, changes=changes)) is None


# --- What runs show together ---

KINDS = {"f": "f2p", "p": "p2p", "n": "n2p", "s": "s2p"}
ALL_PASS = dict.fromkeys(KINDS, "passed")
AT_BASE = {"f": "failed", "p": "passed", "s": "skipped"}


def _nop(number: int = 1, **changes: Any) -> Run:
    values: dict[str, Any] = {"outcome": "unresolved", "reward": 0.0, "tests": AT_BASE}
    return Run(kind="nop", number=number, verdict=Verdict(**{**values, **changes}))


def _oracle(number: int = 1, **changes: Any) -> Run:
    values: dict[str, Any] = {"outcome": "resolved", "reward": 1.0, "tests": ALL_PASS}
    return Run(kind="oracle", number=number, verdict=Verdict(**{**values, **changes}))


def test_nop_0_and_oracle_1_pass() -> None:
    found = conclude([_nop(), _oracle()], KINDS)
    assert (found.ok, found.summary, found.unstable) == (True, "nop 0, oracle 1, 4 tests", ())


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([_nop(outcome="resolved", reward=1.0), _oracle()],
         "nop run 1: resolved (reward 1), must be unresolved"),
        ([_nop(outcome="unresolved", reward=0.5), _oracle()],
         "nop run 1: unresolved (reward 0.5), must be unresolved"),
        ([_nop(outcome="verifier-error", reward=None, why="no"), _oracle()],
         "nop run 1: verifier-error, must be unresolved: no"),
        ([_nop(), _oracle(outcome="timeout", reward=None)],
         "oracle run 1: timeout, must be resolved"),
        ([_nop(), _oracle(outcome="infra-error", reward=None, why="engine")],
         "oracle run 1: infra-error, must be resolved: engine"),
    ],
)  # fmt: skip
def test_anything_else_fails_and_says_what(runs: list[Run], said: str) -> None:
    found = conclude(runs, KINDS)
    assert (found.ok, found.summary) == (False, said)


def test_a_failing_oracle_names_its_tests() -> None:
    tests = {"f": "failed", "p": "passed", "s": "passed"}
    found = conclude([_nop(), _oracle(outcome="unresolved", reward=0.0, tests=tests)], KINDS)
    assert found.details[1:] == ("not passed: f (failed)", "not passed: n (none)")


def test_a_test_that_needs_the_fix_and_passes_without_it_fails_the_check() -> None:
    found = conclude([_nop(tests={**AT_BASE, "n": "passed"}), _oracle()], KINDS)
    assert (found.ok, found.details) == (False, ("passes without the fix: n",))


def ratios(runs: list[Run], *quarantined: str) -> dict[str, str]:
    found = conclude(runs, KINDS, frozenset(quarantined))
    return {f"{one.kind} {one.id}": one.ratio for one in found.unstable}


UNSTEADY_P = [_nop(1), _oracle(1), _nop(2, tests={**AT_BASE, "p": "failed"}), _oracle(2),
              _nop(3), _oracle(3)]  # fmt: skip


def test_unstable_tests_are_named_with_their_pass_ratio() -> None:
    found = conclude(UNSTEADY_P, KINDS)
    assert (found.ok, ratios(UNSTEADY_P)) == (False, {"nop p": "2/3"})
    assert found.unstable[0].odd == ("failed in nop run 2",)
    assert found.summary == "nop 0, oracle 1; 1 unstable: p 2/3 (nop)"


def test_an_oracle_that_fails_in_one_run_fails_the_check_and_names_what_is_unstable() -> None:
    tests = {**ALL_PASS, "p": "failed"}
    failed = _oracle(2, outcome="unresolved", reward=0.0, tests=tests)
    found = conclude([_nop(1), _oracle(1), _nop(2), replace(failed, variation="TZ=x")], KINDS)
    assert not found.ok
    said = "oracle run 2 (TZ=x): unresolved (reward 0), must be resolved"
    assert found.summary == f"{said}; 1 unstable: p 1/2 (oracle)"


def test_a_finding_says_which_runs_and_which_line_to_add() -> None:
    found = conclude(UNSTEADY_P, KINDS)
    (finding,) = instability(
        found, task="t", kinds=KINDS, quarantined=frozenset(), today="2026-11-29"
    )
    assert (finding.rule, finding.severity) == ("tests/unstable", "error")
    assert finding.file == "tasks/t/tests/expected_tests.json"
    assert finding.message == "p: passed in 2/3 nop runs: failed in nop run 2"
    line = json.loads(finding.mend[finding.mend.index("{") :])
    assert line == {"id": "p", "reason": "", "since": "2026-11-29", "ratio": "2/3"}


def test_a_test_in_quarantine_may_be_unstable_and_decides_nothing() -> None:
    found = conclude(UNSTEADY_P, KINDS, frozenset({"p"}))
    assert (found.ok, found.details) == (True, ())
    assert found.summary.endswith("; 1 unstable: p 2/3 (nop, in quarantine)")
    (finding,) = instability(
        found, task="t", kinds=KINDS, quarantined=frozenset({"p"}), today="2026-11-29"
    )
    assert finding.severity == "note"
    passing = _nop(tests={**AT_BASE, "f": "passed"})
    assert not conclude([passing, _oracle()], KINDS).ok
    assert conclude([passing, _oracle()], KINDS, frozenset({"f"})).ok


def test_an_unstable_test_that_is_not_counted_is_said_and_passes() -> None:
    runs = [_nop(1), _oracle(1, tests={**ALL_PASS, "x": "failed"}), _nop(2),
            _oracle(2, tests={**ALL_PASS, "x": "passed"})]  # fmt: skip
    found = conclude(runs, KINDS)
    assert (found.ok, ratios(runs)) == (True, {"oracle x": "1/2"})
    assert "1 unstable: x 1/2 (oracle, not counted)" in found.summary
    rerun = conclude([_nop(), _oracle(reruns_disagreed=("y",))], KINDS)
    assert (rerun.ok, rerun.unstable[0].id) == (True, "y")
    assert not conclude([_nop(), _oracle(reruns_disagreed=("p",))], KINDS).ok


@pytest.mark.parametrize(
    "broken",
    [
        _oracle(2, outcome="infra-error", reward=None, tests={}),
        # A build that broke reports no test at all.
        _oracle(2, outcome="unresolved", reward=0.0, tests={}),
    ],
)
def test_a_run_that_broke_says_nothing_about_single_tests(broken: Run) -> None:
    assert ratios([_nop(1), _oracle(1), _nop(2), broken]) == {}


def test_findings_about_unstable_tests_are_bounded() -> None:
    tests = {f"t{n}": "passed" for n in range(500)}
    runs = [_oracle(1, tests=tests), _oracle(2, tests=dict.fromkeys(tests, "failed"))]
    found = conclude(runs, {})
    findings = instability(found, task="t", kinds={}, quarantined=frozenset(), today="2026-11-29")
    assert len(findings) == 51
    assert len(found.summary) < 300


def test_long_lists_are_cut() -> None:
    kinds = {f"t{i:03}": "f2p" for i in range(50)}
    tests = dict.fromkeys(kinds, "failed")
    found = conclude([_oracle(outcome="unresolved", reward=0.0, tests=tests)], kinds)
    assert found.details[-1] == "not passed: 40 more"


def test_transitions_from_expected_tests() -> None:
    assert kinds_of({"f2p_tests": ["a", 1], "n2p_tests": ["b"], "p2p_tests": "x"}) == {
        "a": "f2p",
        "b": "n2p",
    }
    assert kinds_of([]) == {}


# --- Statuses, short ---

_IDS = st.text(min_size=1, max_size=3)


@given(
    st.dictionaries(_IDS, st.sampled_from(["passed", "failed", "skipped"])),
    st.dictionaries(_IDS, st.sampled_from(["f2p", "p2p", "s2p", "n2p"])),
)
def test_short_statuses_restore_exactly(tests: dict[str, str], kinds: dict[str, str]) -> None:
    assert restore(json.loads(json.dumps(shorten(tests, kinds))), kinds) == tests


def test_what_is_as_expected_takes_no_room() -> None:
    kinds = {f"t{i}": "p2p" for i in range(5000)} | {"f": "f2p"}
    after = dict.fromkeys(kinds, "passed")
    assert shorten(after, kinds)["differs"] == {}
    assert shorten({**after, "f": "failed"}, kinds) == {
        "assume": "before",
        "differs": {},
        "counts": {"failed": 1, "passed": 5000},
    }
    assert shorten({}, kinds)["differs"] == {}


def test_unsteady() -> None:
    assert unsteady([{"a": "passed", "b": "failed"}, {"a": "passed"}]) == ("b",)
    assert unsteady([]) == ()


# --- Limits ---


def test_limits_of_an_empty_task_are_harbors_defaults() -> None:
    found = limits({})
    assert (found.cpus, found.memory_mb, found.build_timeout_sec) == (None, None, 600.0)
    assert (found.verifier.timeout_sec, found.verifier.network) == (600.0, "public")
    assert found.notes == ()


def test_limits_are_read() -> None:
    found = limits(
        {
            "environment": {"cpus": 2, "memory_mb": 512, "network_mode": "no-network",
                            "env": {"A": "1", "B": "${HOST}", "C": "${HOST:-d}"}},
            "agent": {"timeout_sec": 5, "network_mode": "allowlist"},
            "verifier": {"timeout_sec": 7.5, "env": {"A": "2"}},
            "solution": {"env": {"S": "3"}},
        }
    )  # fmt: skip
    assert (found.cpus, found.memory_mb) == (2.0, 512)
    assert (found.solution.timeout_sec, found.solution.network) == (5.0, "none")
    assert found.solution.environment == {"A": "1", "C": "d", "S": "3"}
    assert (found.verifier.timeout_sec, found.verifier.network) == (7.5, "none")
    assert found.verifier.environment == {"A": "2", "C": "d"}
    assert found.notes == (
        "agent: network_mode is an allow-list; run without a network",
        "variable B: comes from the host, left out",
    )


@pytest.mark.parametrize(
    ("environment", "network", "memory"),
    [
        ({"allow_internet": True, "memory": "2G"}, "public", 2048),
        ({"allow_internet": False, "memory": "512M"}, "none", 512),
        ({"network_mode": 3, "memory_mb": True, "memory": "much"}, "public", None),
    ],
)
def test_older_and_wrong_spellings(environment: dict[str, Any], network: str,
                                   memory: int | None) -> None:  # fmt: skip
    found = limits({"environment": environment})
    assert (found.verifier.network, found.memory_mb) == (network, memory)
