"""`kbench mine --run` when it is killed, interrupted, or can't begin; what makes it try again."""

import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model.jobs import Job, JobResult
from kbench_build.rim.engines import HeldImage, tars
from kbench_build.rim.mine_config import load_mine_config
from kbench_build.rules.trials import Trial
from kbench_build.steps.try_candidates import Wish, try_candidates
from tests import engine_box
from tests.trial_kit import CONFIG, IMAGE, Project, kbench, left_by, slow_project, start

needs_engine = pytest.mark.engine


@pytest.fixture
def slow(tmp_path: Path) -> tuple[Project, Path]:
    return slow_project(tmp_path)


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_engine
@pytest.mark.usefixtures("trial_image")
def test_killed_and_started_again_no_validated_candidate_runs_twice(
    slow: tuple[Project, Path],
) -> None:
    project, root = slow
    folder = root / "mined" / "acme_text"
    first = folder / "2" / "trial.json"
    process = start(root, str(project.upstream.root), "--run")
    wait_for(first.exists)
    wait_for(lambda: bool(left_by(process.pid)))
    process.kill()
    process.communicate()
    written = first.stat().st_mtime_ns
    done = kbench(root, str(project.upstream.root), "--run")
    assert done.code == 0, done.stderr
    assert first.stat().st_mtime_ns == written
    assert [line.split()[2] for line in done.stderr.splitlines()] == ["#1"]
    assert json.loads((folder / "1" / "trial.json").read_bytes())["outcome"] == "valid"
    assert left_by(process.pid) == ()


@needs_engine
@pytest.mark.usefixtures("trial_image")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_container(tmp_path: Path, number: signal.Signals) -> None:
    project, root = slow_project(tmp_path, seconds=100)
    process = start(root, str(project.upstream.root), "--run", "-n", "2")
    wait_for(lambda: len(left_by(process.pid)) == 2)
    process.send_signal(number)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.strip()) == (130, "interrupted")
    assert time.monotonic() - began < 15
    assert left_by(process.pid) == ()
    assert not list((root / "mined").rglob("trial.json"))


# --- what must be set right first ---


def replace_image(root: Path, name: str) -> None:
    text = (root / "kbench.toml").read_text(encoding="utf-8").replace(IMAGE, name)
    (root / "kbench.toml").write_text(text, encoding="utf-8")


@needs_engine
def test_an_image_without_the_tools_is_told_before_anything_runs(
    slow: tuple[Project, Path], tmp_path: Path, trial_image: str
) -> None:
    project, root = slow
    name = f"{engine_box.NAMESPACE}/bare:1"
    replace_image(root, name)
    text = f"FROM {trial_image}\nRUN rm /bin/git\n"
    assert engine_box.engine.build(engine_box.spec(tmp_path, text, image=name)).status == "built"
    done = kbench(root, str(project.upstream.root), "--run")
    engine_box.remove_images(name)
    said = f"error: kbench.toml: mine.environment (py): image {name}: lacks what the verifier needs"
    assert (done.code, done.stderr) == (2, f"{said}: git\n")


@needs_engine
def test_a_missing_image_is_one_line(slow: tuple[Project, Path]) -> None:
    project, root = slow
    replace_image(root, "acme/none:1")
    done = kbench(root, str(project.upstream.root), "--run")
    said = "error: kbench.toml: mine.environment (py): the engine has no image acme/none:1"
    assert (done.code, done.stderr) == (2, f"{said}: docker pull acme/none:1\n")


@dataclass(kw_only=True)
class Double:
    """An engine whose runs end as `answer` says; it keeps their jobs."""

    answer: JobResult
    jobs: list[Job] = field(default_factory=list)

    def __call__(self, job: Job) -> JobResult:
        self.jobs.append(job)
        looking = job.name.endswith("/look")
        return JobResult(status="exited", exit_code=0) if looking else self.answer

    def images(self) -> Mapping[str, HeldImage]:
        return {IMAGE: HeldImage(id="sha256:1", labels={})}

    def discard(self, image: str) -> str:
        return image

    def abort(self) -> None:
        """No job outlives its call."""


def reported(**tests: str) -> JobResult:
    report = {
        "version": 1,
        "reward": 0,
        "outcome": "unresolved",
        "errors": [],
        "command": {"exit_code": 0, "seconds": 0.5},
        "tests": tests,
    }
    files = {"report.json": json.dumps(report).encode(), "reward.txt": b"0\n"}
    outputs = {f"/logs/verifier/{n}": tars.pack({n: c}) for n, c in files.items()}
    return JobResult(status="exited", exit_code=0, outputs=outputs)


def tried_by(double: Double, project: Project, root: Path, **wish: Any) -> dict[str, Trial]:
    folder = root / "mined" / "acme_text"
    if not folder.exists():
        assert kbench(root, str(project.upstream.root)).code == 0
    found = try_candidates(
        root,
        project.upstream.root,
        folder,
        load_mine_config(root).environments,
        engine=double,  # type: ignore[arg-type]  # no more than what is used here
        wish=Wish(**wish),
        began=lambda _: None,
        done=lambda _: None,
    )
    return {each.id: each.trial for each in found}


@needs_engine
def test_what_an_engine_could_not_do_is_tried_again(slow: tuple[Project, Path]) -> None:
    double = Double(answer=JobResult(status="engine-error", error="no space left"))
    found = tried_by(double, *slow)
    assert {(t.outcome, t.reason) for t in found.values()} == {("error", "tests: no space left")}
    again = Double(answer=reported(a="passed"))
    assert {t.outcome for t in tried_by(again, *slow).values()} == {"no-signal"}
    kept = Double(answer=reported(a="failed"))
    assert {t.outcome for t in tried_by(kept, *slow).values()} == {"no-signal"}
    assert kept.jobs == []


@needs_engine
@pytest.mark.parametrize(
    ("status", "reason"),
    [("oom", "was killed for memory"), ("disk", "wrote more than its disk limit")],
)
def test_a_limit_that_is_hit_is_an_error_with_its_name(
    slow: tuple[Project, Path], status: Any, reason: str
) -> None:
    found = tried_by(Double(answer=JobResult(status=status)), *slow)
    assert {t.reason for t in found.values()} == {f"tests: the verifier {reason}"}


@needs_engine
def test_a_change_of_what_decides_makes_it_be_tried_again(slow: tuple[Project, Path]) -> None:
    _, root = slow
    configured = (root / "kbench.toml").read_text(encoding="utf-8")
    tried_by(Double(answer=reported(a="passed")), *slow)

    def runs(text: str, **wish: Any) -> int:
        (root / "kbench.toml").write_text(text, encoding="utf-8")
        double = Double(answer=reported(a="passed"))
        tried_by(double, *slow, **wish)
        return len(double.jobs)

    assert runs(configured) == 0
    assert runs(f"{configured}start = ''") == 0
    assert runs(configured.replace("report.xml", "r.xml")) == 5
    assert runs(f"{configured}cpus = 1") == 5
    assert runs(configured, runs=2) == 5
    (root / "mined" / "acme_text" / "1" / "fix.patch").write_bytes(b"")
    assert runs(configured, runs=2) == 1  # no patch at all doesn't apply


@needs_engine
def test_jobs_have_no_network_and_the_limits_of_their_environment(
    slow: tuple[Project, Path],
) -> None:
    _, root = slow
    limits = "memory_mb = 128\ndisk_mb = 256\ncpus = 1.5\nnetwork = true\nprepare = ['true']\n"
    text = (root / "kbench.toml").read_text(encoding="utf-8") + limits
    (root / "kbench.toml").write_text(text, encoding="utf-8")
    double = Double(answer=JobResult(status="exited", exit_code=0, image="sha256:2"))
    tried_by(double, *slow, only=("1",))
    look, prepare, *runs = double.jobs
    assert (look.network, prepare.network) == ("none", "public")
    assert {job.network for job in runs} == {"none"}
    assert {(j.memory_mb, j.disk_mb, j.cpus) for j in (prepare, *runs)} == {(128, 256, 1.5)}
    assert {job.image for job in runs} == {"sha256:2"}


@needs_engine
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mine.environment: is missing: say in which image tests run"),
        (CONFIG.replace("{files}", "{flies}"), r"\(py\): command: \{flies\} means nothing"),
        (f"{CONFIG}start = 'v9'", r"\(py\): v9: the clone has no such commit"),
    ],
    ids=["none", "place", "pin"],
)
def test_an_environment_that_cannot_be_used_is_one_line(
    slow: tuple[Project, Path], text: str, said: str
) -> None:
    _, root = slow
    tried_by(Double(answer=reported(a="passed")), *slow)
    (root / "kbench.toml").write_text(text, encoding="utf-8")
    with pytest.raises(KbenchError, match=said):
        tried_by(Double(answer=reported()), *slow)


@needs_engine
def test_an_id_that_is_no_candidate_is_one_line(slow: tuple[Project, Path]) -> None:
    with pytest.raises(KbenchError, match="77: is no candidate in"):
        tried_by(Double(answer=reported()), *slow, only=("#77",))


@needs_engine
def test_a_run_writes_so_a_dry_one_is_refused(slow: tuple[Project, Path]) -> None:
    project, root = slow
    done = kbench(root, str(project.upstream.root), "--run", "--dry-run")
    assert done.code == 2
    assert "--dry-run writes nothing" in done.stderr
