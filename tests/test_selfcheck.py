"""Selfchecks in real containers: the shipped way (two containers) and Harbor's (one)."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model import Report
from kbench_build.model.jobs import Job, JobResult
from kbench_build.rules.statuses import restore
from kbench_build.rules.step_inputs import selfcheck_inputs
from kbench_build.steps.selfcheck import covers, selfcheck
from tests.engine_box import engine

EXPECTED = {"f2p_tests": ["t.fixed"], "p2p_tests": ["t.kept"], "s2p_tests": [], "n2p_tests": []}

# A verifier in the form of the shipped one: it takes over the changes and leaves a report.
VERIFIER = r"""
cd /work
PREPARE
code=failed; reward=0; outcome=unresolved
if [ -f /kbench/changes/changes.tar ] && grep -q "the fix" /kbench/changes/changes.tar; then
  code=passed; reward=1; outcome=resolved
fi
tests="{\"t.fixed\":\"$code\",\"t.kept\":\"${kept:-passed}\"}"
printf '{"version":1,"reward":%s,"outcome":"%s","errors":[],"tests":%s}' \
  $reward $outcome "$tests" >/logs/verifier/report.json
printf '%s\n' $reward >/logs/verifier/reward.txt
"""
SOLVE = "echo the fix >/work/edited; rm /work/removed"
SETTINGS = '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 256\ncpus = 1\n'


def _task(root: Path, *, test: str = VERIFIER, solve: str = SOLVE, toml: str = SETTINGS,
          shipped: bool = True) -> Path:  # fmt: skip
    task = root / "tasks" / "t"
    (task / "tests").mkdir(parents=True)
    (task / "solution").mkdir()
    (task / "task.toml").write_text(toml)
    (task / "tests" / "test.sh").write_text(test.replace("PREPARE", ""))
    (task / "solution" / "solve.sh").write_text(solve)
    if shipped:
        (task / "tests" / "verify.json").write_text('{"workdir": "/work"}')
        (task / "tests" / "expected_tests.json").write_text(json.dumps(EXPECTED))
    return root


def _check(root: Path, image: str, runs: int = 1) -> Report:
    return selfcheck(root, "t", engine=engine, image=image, runs=runs, inputs="i")


def _results(report: Report) -> list[dict[str, Any]]:
    return list(report.data["results"])


@pytest.mark.engine
def test_nop_scores_0_and_oracle_1_in_fresh_containers(tiny: str, tmp_path: Path) -> None:
    report = _check(_task(tmp_path), tiny)
    assert (report.ok, report.summary) == (True, "nop 0, oracle 1, 2 tests"), report
    assert (report.step, report.subject, report.inputs) == ("selfcheck", "t", "i")
    assert report.data["isolation"] == "fresh"
    assert report.data["network"] == {"solution": "none", "verifier": "none"}
    nop, oracle = _results(report)
    assert (nop["kind"], nop["outcome"], nop["reward"]) == ("nop", "unresolved", 0.0)
    assert (oracle["kind"], oracle["outcome"], oracle["reward"]) == ("oracle", "resolved", 1.0)
    kinds = {"t.fixed": "f2p", "t.kept": "p2p"}
    assert restore(nop["tests"], kinds) == {"t.fixed": "failed", "t.kept": "passed"}
    assert restore(oracle["tests"], kinds) == {"t.fixed": "passed", "t.kept": "passed"}
    assert len(oracle["report"]) == 64
    json.dumps(report.data)


@pytest.mark.engine
def test_the_verifier_sees_only_the_changed_files(tiny: str, tmp_path: Path) -> None:
    # What the solution leaves elsewhere, or running, isn't there when its work is graded.
    solve = (
        SOLVE
        + "; echo forged >/forged; mkdir -p /logs/verifier; echo 1 >/logs/verifier/x; sleep 99 &"
    )
    test = VERIFIER.replace(
        "PREPARE",
        "[ -e /forged ] && kept=failed; [ -e /logs/verifier/x ] && kept=failed; "
        "[ -e /solution ] && kept=failed; "
        "[ ! -e /kbench ] || { grep -q removed /kbench/changes/deleted || kept=failed; "
        "! grep -q forged /kbench/changes/changes.tar || kept=failed; }",
    )
    root = _task(tmp_path, solve=solve)
    (root / "tasks/t/tests/test.sh").write_text(test)
    report = _check(root, tiny)
    assert report.ok, report
    assert _results(report)[1]["tests"]["counts"] == {"passed": 2}


@pytest.mark.engine
@pytest.mark.parametrize(
    ("changes", "ended", "said"),
    [
        ({"test": "exit 3"}, "nop verifier-error", "left no report.json"),
        ({"test": "no-such-program"}, "nop verifier-error", "can't start"),
        ({"test": VERIFIER + "exit 4"}, "oracle verifier-error", "exit code 4"),
        ({"test": "sleep 60", "toml": "[verifier]\ntimeout_sec = 1\n"}, "nop timeout",
         "the verifier didn't end"),
        ({"solve": "echo broken; exit 5"}, "oracle agent-error", "exit code 5: broken"),
        ({"solve": "sleep 60", "toml": "[agent]\ntimeout_sec = 1\n"}, "oracle timeout",
         "the solution didn't end"),
        ({"solve": "true"}, "oracle unresolved", "must be resolved"),
    ],
)  # fmt: skip
def test_ways_to_fail_are_told_apart(
    tiny: str, tmp_path: Path, changes: dict[str, str], ended: str, said: str
) -> None:
    report = _check(_task(tmp_path, **changes), tiny)  # type: ignore[arg-type]
    assert ended in [f"{r['kind']} {r['outcome']}" for r in _results(report)], report
    assert not report.ok
    assert said in " ".join(report.data["details"])


@pytest.mark.engine
def test_a_memory_limit_is_told(tiny: str, tmp_path: Path) -> None:
    test = "exec bash -c 'x=$(head -c 400000000 /dev/zero | tr \"\\0\" x)'"
    report = _check(_task(tmp_path, test=test), tiny)
    assert "killed for memory" in report.summary


@pytest.mark.engine
def test_a_failing_check_keeps_what_was_printed(tiny: str, tmp_path: Path) -> None:
    report = _check(_task(tmp_path, test="echo printed by the verifier; exit 3"), tiny)
    place = report.data["details"][-1].split(": ")[1]
    assert "printed by the verifier" in (tmp_path / place).read_text()


@pytest.mark.engine
def test_repeats_that_disagree_are_unstable_by_id(tiny: str, tmp_path: Path) -> None:
    calls: list[str] = []

    def unsteady(job: Job) -> JobResult:
        calls.append(job.name)
        first = calls.count("t/nop/verifier") == 1
        return engine(job if first else _with_environment(job, kept="failed"))

    root = _task(tmp_path)
    report = selfcheck(root, "t", engine=unsteady, image=tiny, runs=2, inputs="i")
    assert not report.ok
    odd = "failed in nop run 2 (TZ=America/St_Johns, PYTHONHASHSEED=1)"
    nop = {"id": "t.kept", "kind": "nop", "passed": 1, "runs": 2, "odd": [odd]}
    assert report.data["unstable"] == [
        nop,
        {**nop, "kind": "oracle", "odd": [odd.replace("nop", "oracle")]},
    ]
    finding, _ = report.data["findings"]
    assert (finding["rule"], finding["severity"]) == ("tests/unstable", "error")
    assert '"ratio": "1/2"' in finding["mend"]
    assert [r["run"] for r in _results(report)] == [1, 1, 2, 2]


def _with_environment(job: Job, **environment: str) -> Job:
    return dataclasses.replace(job, environment={**job.environment, **environment})


def test_an_engine_that_failed_is_no_judgement(tmp_path: Path) -> None:
    def dead(_: Job) -> JobResult:
        return JobResult(status="engine-error", error="connection lost")

    report = selfcheck(_task(tmp_path), "t", engine=dead, image="x", runs=1, inputs="i")
    assert {r["outcome"] for r in _results(report)} == {"infra-error"}
    assert "connection lost" in report.summary


# --- Plain Harbor tasks ---

PLAIN = (
    "#!/bin/bash\ncd /work\nif grep -q fix edited; then echo 1; else echo 0; fi "
    ">/logs/verifier/reward.txt\nexit 1\n"
)


@pytest.mark.engine
def test_a_task_with_its_own_verifier_runs_in_one_container(tiny: str, tmp_path: Path) -> None:
    report = _check(_task(tmp_path, test=PLAIN, shipped=False), tiny)
    assert (report.ok, report.summary) == (True, "nop 0, oracle 1"), report
    assert report.data["isolation"] == "shared"
    assert [r["report"] for r in _results(report)] == [None, None]


@pytest.mark.engine
def test_reward_json_is_honoured(tiny: str, tmp_path: Path) -> None:
    test = PLAIN.replace("exit 1", "printf '{\"reward\": 1}' >/logs/verifier/reward.json")
    report = _check(_task(tmp_path, test=test, shipped=False), tiny)
    assert [r["outcome"] for r in _results(report)] == ["resolved", "resolved"]
    assert not report.ok


@pytest.mark.engine
def test_a_solution_that_fails_is_noted_and_graded_as_harbor_does(
    tiny: str, tmp_path: Path
) -> None:
    root = _task(tmp_path, test=PLAIN, solve=SOLVE + "; exit 6", shipped=False)
    report = _check(root, tiny)
    assert report.ok
    assert _results(report)[1]["notes"] == ["the solution ended with exit code 6"]


@pytest.mark.engine
def test_the_network_is_the_tasks(tiny: str, tmp_path: Path) -> None:
    test = "if [ -e /sys/class/net/eth0 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
    closed = _check(_task(tmp_path / "a", test=test, shipped=False), tiny)
    assert [r["reward"] for r in _results(closed)] == [0.0, 0.0]
    opened = _check(_task(tmp_path / "b", test=test, toml="", shipped=False), tiny)
    assert [r["reward"] for r in _results(opened)] == [1.0, 1.0]
    assert opened.data["network"]["verifier"] == "public"


# --- Around it ---


@pytest.mark.parametrize("missing", ["solution/solve.sh", "tests/test.sh"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    root = _task(tmp_path)
    (root / "tasks/t" / missing).unlink()
    with pytest.raises(KbenchError, match=f"^tasks/t/{missing}: is missing$"):
        selfcheck(root, "t", engine=engine, image="x", runs=1, inputs="i")


def test_every_part_of_the_inputs_counts() -> None:
    parts = {"image_id": "a", "solution": "b", "tests": "c", "settings": "d"}
    digests = {selfcheck_inputs(**{**parts, key: "other"}) for key in parts}
    assert len({*digests, selfcheck_inputs(**parts)}) == 5


def test_more_repeats_cover_fewer() -> None:
    assert covers({"runs": 3}, 1)
    assert not covers({"runs": 1}, 3)
    assert not covers({}, 1)
