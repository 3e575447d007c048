"""Verifiers under sabotage in real containers: none may give a reward to what solves nothing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench_build.model import Report, Suppression
from kbench_build.model.jobs import Job, JobResult
from kbench_build.plan import Plan
from kbench_build.rim.engines import tars
from kbench_build.rim.store import Store
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.sabotage import Known, attempt, forged, sabotages
from kbench_build.runtime import junit_compare
from kbench_build.steps.sabotage import known_of, sabotage
from kbench_build.steps.selfcheck import Grader
from tests import engine_box, verifier_image
from tests.foreign_kit import TASKS, Foreign, make
from tests.graph_kit import DODO, doit, write
from tests.verifier_box import Box, git, make_box

NAMES = [one.name for one in sabotages(Known())]
IMAGE = f"{engine_box.NAMESPACE}/sabotage:1"
MORE = "basename find grep mktemp sed sort tail"
TOML = '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 512\ncpus = 1\n'

# Fails closed, and trusts nothing that an agent may have left.
SOUND = """#!/bin/bash
PATH=/usr/bin:/bin
kill -KILL -1 2>/dev/null
rm -f /logs/verifier/reward.json
echo 0 > /logs/verifier/reward.txt
cd /home/adder || exit 1
git checkout --quiet --force {base} -- app/src/test || exit 1
git apply /tests/test.patch || exit 1
find . -name 'TEST*.xml' -delete
./gradlew test
mkdir -p /logs/verifier/junit
bash /tests/kotlin_logs_collector.sh /home/adder /logs/verifier/junit
if python3 /tests/junit_compare.py /logs/verifier/junit /tests/expected_tests.json; then
  echo 1 > /logs/verifier/reward.txt
fi
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A task in the older shape, with the verifier that is found in the wild."""
    made = make(tmp_path_factory.mktemp("foreign"), tasks=TASKS[:1])
    (made.task() / "task.toml").write_text(TOML)
    return made


@pytest.fixture(scope="module")
def image(foreign: Foreign, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """This machine's programs, and the task's repository at its base."""
    folder = tmp_path_factory.mktemp("image")
    git(folder, "clone", "--quiet", str(foreign.upstream), "home/adder")
    git(folder / "home/adder", "checkout", "--quiet", foreign.bases[TASKS[0]])
    shutil.make_archive(str(folder / "checkout"), "tar", folder, "home")
    text = (
        f"FROM scratch\nADD root.tar /\nADD checkout.tar /\nRUN {verifier_image.LINK_PYTHON}\n"
        "RUN chown -R 0:0 /home && mkdir -p /tmp\nWORKDIR /home/adder\n"
    )
    context: dict[str, Path | bytes] = {
        "Dockerfile": text.encode(),
        "root.tar": verifier_image.programs(f"{verifier_image.PROGRAMS} {MORE} chown"),
        "checkout.tar": folder / "checkout.tar",
    }
    built = engine_box.engine.build(engine_box.spec(folder, text, image=IMAGE, context=context))
    assert built.status == "built", built
    yield IMAGE
    engine_box.engine._api.client.remove_image(IMAGE, force=True)


def tried(root: Path, task: str, image: str, **more: Any) -> Report:
    grader = Grader(root, task, engine=engine_box.engine, image=image, limit_sec=60.0)
    return sabotage(root, task, grade=grader.after, inputs="i", **more)


def ends(report: Report) -> dict[str, str]:
    """How each sabotage ended."""
    return {found["sabotage"]: found["ended"] for found in report.data["attempts"]}


def rewarded(report: Report) -> set[str]:
    return {name for name, ended in ends(report).items() if ended == "rewarded"}


@pytest.fixture(scope="module")
def wild(
    foreign: Foreign, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    """A dataset of that task, and what `doit sabotage` printed there."""
    root = tmp_path_factory.mktemp("wild") / "dataset"
    shutil.copytree(foreign.root, root)
    environment = root / "tasks" / TASKS[0] / "environment"
    shutil.rmtree(environment)
    write(environment / "Dockerfile", f"FROM {image}\nWORKDIR /home/adder\n")
    write(root / "dodo.py", DODO)
    namespace = f"{engine_box.NAMESPACE}-sabotage"
    answered = '[[suppress]]\nrule = "[!v]*"\nreason = "not asked here"\n'
    answered += '[[suppress]]\nrule = "verifier/[!s]*"\nreason = "the engine is asked"\n'
    write(root / "kbench.toml", f'[dataset]\nnamespace = "{namespace}"\n{answered}')
    yield root, doit(root, f"sabotage:{TASKS[0]}", code=1).stdout
    tag = f"{namespace}/task:{TASKS[0]}"
    engine_box.engine._api.client.remove_image(tag, force=True)


@pytest.mark.engine
def test_a_verifier_from_the_wild_rewards_what_solves_nothing(wild: tuple[Path, str]) -> None:
    report = Store(wild[0]).read("sabotage", TASKS[0])
    assert report is not None
    assert rewarded(report) == {
        "broken-build", "stale-reports", "shims", "test-command", "background",
    }  # fmt: skip
    assert set(ends(report)) == set(NAMES)
    assert not report.ok
    assert report.summary.startswith("8 sabotages, rewarded: broken-build, ")
    findings = {f["where"]: f for f in report.data["findings"]}
    assert set(findings) == rewarded(report)
    found = findings["broken-build"]
    assert (found["rule"], found["severity"]) == ("verifier/sabotage", "error")
    assert found["file"] == f"tasks/{TASKS[0]}/tests/test.sh"
    assert found["message"].startswith("the reward is 1 with reports deleted")
    assert report.data["not_tried"] == []


@pytest.mark.engine
def test_what_nobody_answers_for_any_more_is_looked_at_again(wild: tuple[Path, str]) -> None:
    root, step = wild[0], "sabotage"
    settings = root / "kbench.toml"
    plain = settings.read_text()

    def answer(reason: str) -> None:
        rule = f'[[suppress]]\nrule = "verifier/sabotage"\nreason = "{reason}"\n'
        settings.write_text(plain + rule if reason else plain)

    try:
        answer("graded elsewhere")
        assert "5 suppressed" in doit(root, f"{step}:{TASKS[0]}").stdout
        assert Plan(root).holds(step, TASKS[0])
        answer("another reason")
        assert not Plan(root).holds(step, TASKS[0])
        answer("")
        assert not Plan(root).holds(step, TASKS[0])
    finally:
        answer("")


@pytest.mark.engine
def test_doit_sabotage_tells_what_it_found_of_tasks_with_a_verifier_of_their_own(
    wild: tuple[Path, str],
) -> None:
    root, said = wild
    assert "8 sabotages, rewarded: broken-build" in said
    assert "tests/test.sh: shims: the reward is 1 with a python3" in said
    assert f"sabotage:{TASKS[0]}" in doit(root, "list", "--all").stdout
    write(root / "tasks" / TASKS[0] / "tests" / "verify.json", "{}")
    assert f"sabotage:{TASKS[0]}" not in doit(root, "list", "--all").stdout


@pytest.mark.engine
def test_a_sound_verifier_of_a_task_s_own_rewards_none(
    foreign: Foreign, image: str, tmp_path: Path
) -> None:
    shutil.copytree(foreign.root, tmp_path / "dataset")
    script = tmp_path / "dataset" / "tasks" / TASKS[0] / "tests" / "test.sh"
    script.write_text(SOUND.format(base=foreign.bases[TASKS[0]]))
    report = tried(tmp_path / "dataset", TASKS[0], image)
    assert ends(report) == dict.fromkeys(NAMES, "no reward")
    assert (report.ok, report.summary) == (True, "8 sabotages, none rewarded")
    # And it does reward the fix, in the same image.
    grader = Grader(tmp_path / "dataset", TASKS[0], engine=engine_box.engine, image=image)
    solution = foreign.task() / "solution"
    fixed = grader.after({path.name: path.read_bytes() for path in solution.iterdir()})
    assert fixed.verdict.reward == 1.0


@pytest.mark.engine
def test_the_shipped_verifier_rewards_none(tmp_path: Path) -> None:
    box = make_box(tmp_path / "box")
    task = dataset_of(box, tmp_path)
    with verifier_image.built(box, tmp_path) as name:
        report = tried(tmp_path / "dataset", task, name)
    assert rewarded(report) == set(), report
    assert report.ok
    assert ends(report) == dict.fromkeys(NAMES, "no reward")
    outcomes = {found["sabotage"]: found["outcome"] for found in report.data["attempts"]}
    assert outcomes["nothing"] == "unresolved"
    assert outcomes["no-python"] == "unresolved"


def dataset_of(box: Box, folder: Path) -> str:
    task = folder / "dataset" / "tasks" / "acme_up-1"
    task.mkdir(parents=True)
    for part in ("tests", "solution"):
        shutil.copytree(box.root / part, task / part)
    (task / "task.toml").write_text(TOML)
    return task.name


# Without an engine.


def no_engine(job: Job) -> JobResult:
    return JobResult(status="engine-error", error=f"{job.name}: connection lost")


def test_what_an_engine_couldnt_do_is_no_proof(foreign: Foreign) -> None:
    grader = Grader(foreign.root, TASKS[0], engine=no_engine, image="x")
    report = sabotage(foreign.root, TASKS[0], grade=grader.after, inputs="i")
    assert not report.ok
    assert set(ends(report).values()) == {"unknown"}
    assert "connection lost" in report.data["details"][0]


@pytest.mark.parametrize(("toml", "network"), [(TOML, "none"), ("", "public")])
def test_network_and_time_are_the_tasks(foreign: Foreign, toml: str, network: str) -> None:
    jobs: list[Job] = []

    def keep(job: Job) -> JobResult:
        jobs.append(job)
        return no_engine(job)

    path = foreign.task() / "task.toml"
    path.write_text(f"[agent]\ntimeout_sec = 900\n[verifier]\ntimeout_sec = 300\n{toml}")
    try:
        grader = Grader(foreign.root, TASKS[0], engine=keep, image="x")
    finally:
        path.write_text(TOML)
    sabotage(foreign.root, TASKS[0], grade=grader.after, inputs="i")
    assert {job.network for job in jobs} == {network}
    # The verifier's time, and two minutes for the script.
    assert {job.timeout_sec for job in jobs} == {420.0}
    assert len(jobs) == len(NAMES)


def rewarding(_: Job) -> JobResult:
    files = {"verifier/reward.txt": b"1\n"}
    return JobResult(status="exited", exit_code=0, outputs={"/logs/verifier": tars.pack(files)})


def test_a_finding_can_be_answered_for(foreign: Foreign) -> None:
    grader = Grader(foreign.root, TASKS[0], engine=rewarding, image="x")
    answer = Suppression(rule="verifier/sabotage", task="*", reason="graded elsewhere")
    report = sabotage(foreign.root, TASKS[0], grade=grader.after, inputs="i", suppressions=[answer])
    assert (report.ok, report.data["findings"]) == (True, [])
    assert {f["reason"] for f in report.data["suppressed"]} == {"graded elsewhere"}
    assert report.summary.endswith("8 suppressed")


def test_what_cant_be_tried_is_said_with_its_reason(tmp_path: Path) -> None:
    task = tmp_path / "tasks" / "t"
    write(task / "tests" / "test.sh", "cat x\n")
    write(task / "solution" / "solve.sh", "true\n")
    write(task / "task.toml", TOML)
    grader = Grader(tmp_path, "t", engine=no_engine, image="x")
    report = sabotage(tmp_path, "t", grade=grader.after, inputs="i")
    assert set(ends(report)) == {"nothing", "shims", "no-python", "background"}
    assert report.data["not_tried"] == [
        "broken-build: no gold patch: which files are the program isn't known",
        "stale-reports: no expected tests: what to report isn't known",
        "blocked-patch: no hidden patch: nothing to block",
        "test-command: the program that runs the tests isn't known",
    ]


def test_an_image_without_a_hold_is_told_apart() -> None:
    (one,) = [s for s in sabotages(Known()) if s.name == "no-python"]
    verdict = Verdict(outcome="resolved", reward=1.0)
    found = attempt(one, verdict, done=False, seconds=1.0)
    assert (found.ended, found.why) == ("not done", "the image has no python3")


def test_the_forged_report_says_what_the_task_expects() -> None:
    ids = ("a.B.c", "x.Y.joins “quotes” & <more>.", "alone", "p.Q.n[1.5]")
    read = junit_compare.read_report(forged(ids))
    assert {case.id for case in read.cases} == set(ids)


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        ("./gradlew clean test || true\n", ("./gradlew",)),
        ("timeout 60 npx jest a.js\n", ("npx",)),
        ("if CI=1 /opt/mvn/bin/mvn test; then :; fi\n", ("/opt/mvn/bin/mvn",)),
        ("out=$(cargo test 2>&1)\n", ("cargo",)),
        ("cp a b\n", ()),
    ],
)
def test_the_program_that_runs_the_tests_is_found(
    tmp_path: Path, script: str, programs: tuple[str, ...]
) -> None:
    write(tmp_path / "tests" / "test.sh", script)
    assert known_of(tmp_path).commands == programs


@pytest.mark.parametrize("content", ["{", "[]", '{"command": 1}', "\0"])
def test_data_that_cant_be_read_tells_nothing(tmp_path: Path, content: str) -> None:
    for name in ("tests/verify.json", "tests/expected_tests.json", "tests/test.patch"):
        write(tmp_path / name, content)
    assert known_of(tmp_path) == Known()


def test_pipes_and_links_in_the_place_of_data_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    os.mkfifo(tmp_path / "tests" / "test.patch")
    (tmp_path / "tests" / "test.sh").symlink_to("/etc/passwd")
    write(tmp_path / "tests" / "expected_tests.json", '{"f2p_tests": [[], {}, 1, "a.b"]}')
    assert known_of(tmp_path) == Known(expected=("a.b",))
