"""Unstable tests, quarantine and probes with the shipped verifier in real containers."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kbench_build.model import Report, Suppression
from kbench_build.model.jobs import Job, JobResult
from kbench_build.rim.engines import tars
from kbench_build.rim.store import Store
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.probing import Tried
from kbench_build.steps.probe import covers, probe
from kbench_build.steps.selfcheck import Grader, selfcheck
from tests import engine_box, verifier_image
from tests.verifier_box import EXPECTED, Box, make_box

TASK = "acme_up-1"
# A test that passes only where the clock shows UTC.
ZONE = (
    "import os, time; ok = time.tzname[0] == 'UTC'; "
    "os.makedirs('app/build/test-results/test', exist_ok=True); "
    "open('app/build/test-results/test/TEST-Zone.xml', 'w').write("
    '\'<testsuite><testcase classname="app.Zone" name="reads">\' '
    "+ ('' if ok else '<failure/>') + '</testcase></testsuite>')"
)
ADDED = """diff --git a/core/src/main/extra.py b/core/src/main/extra.py
new file mode 100644
--- /dev/null
+++ b/core/src/main/extra.py
@@ -0,0 +1,2 @@
+def nobody_asks():
+    return 1
diff --git a/README.md b/README.md
new file mode 100644
--- /dev/null
+++ b/README.md
@@ -0,0 +1 @@
+Words.
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A dataset with one task, and its image."""

    root: Path
    image: str

    @property
    def tests(self) -> Path:
        return self.root / "tasks" / TASK / "tests"

    @property
    def fix(self) -> Path:
        return self.root / "tasks" / TASK / "solution" / "fix.patch"

    def change(self, name: str, **changes: Any) -> None:
        """Change keys of a JSON file of the tests."""
        path = self.tests / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def check(self, runs: int) -> Report:
        return selfcheck(
            self.root, TASK, engine=engine_box.engine, image=self.image, runs=runs, inputs="i"
        )

    def grader(self, engine: Any = engine_box.engine) -> Grader:
        return Grader(self.root, TASK, engine=engine, image=self.image, limit_sec=60.0)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    return make_box(tmp_path_factory.mktemp("strength") / "box")


@pytest.fixture(scope="module")
def image(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with verifier_image.built(box, tmp_path_factory.mktemp("image")) as name:
        yield name


@pytest.fixture
def made_without_image(box: Box, tmp_path: Path) -> Made:
    task = tmp_path / "tasks" / TASK
    for part in ("tests", "solution"):
        shutil.copytree(box.root / part, task / part)
    (task / "task.toml").write_text("[environment]\ncpus = 1\nmemory_mb = 512\n")
    return Made(root=tmp_path, image="-")


@pytest.fixture
def made(made_without_image: Made, image: str) -> Made:
    return replace(made_without_image, image=image)


@pytest.fixture
def zoned(made: Made) -> Made:
    """With a test that depends on the time zone, and that counts."""
    (made.tests / "zone.py").write_text(ZONE)
    made.change("verify.json", command=["bash", "-c", "python3 build.py; python3 /tests/zone.py"])
    made.change("expected_tests.json", p2p_tests=[*EXPECTED["p2p_tests"], "app.Zone.reads"])
    return made


@pytest.mark.engine
def test_a_test_that_depends_on_the_time_zone_is_unstable_and_quarantine_settles_it(
    zoned: Made,
) -> None:
    report = zoned.check(runs=3)
    assert not report.ok
    assert report.data["unstable"] == [
        {"id": "app.Zone.reads", "kind": kind, "passed": 2, "runs": 3,
         "odd": [f"failed in {kind} run 2 (TZ=America/St_Johns, PYTHONHASHSEED=1)"]}
        for kind in ("nop", "oracle")
    ]  # fmt: skip
    assert "1 unstable: app.Zone.reads 2/3 (nop), app.Zone.reads 2/3 (oracle)" in report.summary
    assert "oracle run 2 (TZ=America/St_Johns" in report.summary
    quarantine(zoned, report)
    settled = zoned.check(runs=2)
    assert settled.ok, settled
    assert settled.data["quarantined"] == ["app.Zone.reads"]
    assert "app.Zone.reads 1/2 (oracle, in quarantine)" in settled.summary
    rewards = [r["reward"] for r in settled.data["results"] if r["kind"] == "oracle"]
    assert rewards == [1.0, 1.0]
    # The third run is loaded, and what was varied is in the report.
    assert [r["outcome"] for r in report.data["results"][4:]] == ["unresolved", "resolved"]
    varied = [r["variation"] for r in report.data["results"]]
    assert varied[0] == varied[1] == {"environment": {}}
    assert varied[2]["environment"]["TZ"] == "America/St_Johns"
    assert varied[4]["load"] == {"cpus": 0.5, "busy_loops": 1, "time_limits": "x 4"}
    assert report.data["not_varied"] == [
        "locale: the image holds no de_DE.UTF-8",
        "clock: the image holds no libfaketime",
    ]


def quarantine(made: Made, report: Report) -> None:
    """Do what the report's finding says."""
    mend = report.data["findings"][0]["mend"]
    entry = {**json.loads(mend[mend.index("{") :]), "reason": "It reads the zone."}
    (made.tests / "quarantine.json").write_text(json.dumps({"tests": [entry]}))
    made.change("verify.json", quarantine=True)


def test_a_loaded_run_has_fewer_cpus_and_more_time(made_without_image: Made) -> None:
    jobs: list[Job] = []

    def dead(job: Job) -> JobResult:
        jobs.append(job)
        return JobResult(status="engine-error", error="gone")

    made = made_without_image
    selfcheck(made.root, TASK, engine=dead, image="-", runs=3, inputs="i")
    graded = [job for job in jobs if job.name.endswith("nop/verifier")]
    assert [job.cpus for job in graded] == [1.0, 1.0, 0.5]
    assert graded[-1].timeout_sec == 4 * graded[0].timeout_sec


@pytest.mark.engine
def test_a_probe_finds_the_hunk_that_no_test_guards(made: Made) -> None:
    made.fix.write_text(made.fix.read_text() + ADDED)
    report = run_probe(made)
    assert report.ok, report
    assert {p["path"]: p["noticed"] for p in report.data["parts"]} == {
        "app/src/main/calc.py": "tests",
        "core/src/main/words.py": "tests",
        "core/src/main/extra.py": "nothing",
    }
    first = report.data["parts"][0]
    assert first["tests"] == ["app.CalcTest.adds two numbers"]
    assert report.data["left_out"][0]["why"] == "documentation"
    (finding,) = report.data["findings"]
    line = made.fix.read_text().splitlines().index("diff --git a/core/src/main/extra.py"
                                                   " b/core/src/main/extra.py") + 1  # fmt: skip
    assert (finding["rule"], finding["where"]) == ("tests/unguarded-hunk", f"line {line}")
    assert "core/src/main/extra.py (new file) (+2 -0)" in finding["message"]
    assert [(c["name"], c["reward"]) for c in report.data["controls"]] == [
        ("empty patch", 0.0),
        ("test patch alone", 0.0),
    ]
    share = report.data["share"]
    assert (share["parts"], share["of_parts"]) == (2, 3)
    assert report.summary.startswith("tests guard 2 of 3 parts of the gold patch, ")
    assert report.summary.endswith(", 1 documentation or comments")


def run_probe(made: Made, **changes: Any) -> Report:
    grade = changes.pop("grade", None) or made.grader()
    return probe(made.root, TASK, grade=grade, **{"most": 40, "inputs": "i", **changes})


# --- Without an engine ---


def tried(outcome: Any, reward: float | None, **more: Any) -> Tried:
    return Tried(verdict=Verdict(outcome=outcome, reward=reward), applied=True, **more)


@pytest.fixture
def plain(tmp_path: Path) -> Made:
    """A task whose gold patch has three hunks in three files."""
    made = Made(root=tmp_path, image="-")
    made.tests.mkdir(parents=True)
    made.fix.parent.mkdir(parents=True)
    head = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
    made.fix.write_text("".join(head.format(f"{name}.kt") for name in "abc"))
    (made.fix.parent / "solve.sh").write_text("git apply fix.patch\n")
    (made.tests / "test.patch").write_text(head.format("Test.kt"))
    return made


def unguarded(name: str) -> Any:
    """A grader to which only the absence of one file makes no difference."""

    def grade(patch: bytes | None) -> Tried:
        text = (patch or b"").decode()
        missing = {n for n in "abc" if f"{n}.kt" not in text}
        return tried("resolved", 1.0) if missing <= {name} else tried("unresolved", 0.0)

    return grade


def test_a_killed_probe_goes_on_where_it_was(plain: Made) -> None:
    asked: list[bytes | None] = []

    def killed(patch: bytes | None) -> Tried:
        asked.append(patch)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return tried("unresolved", 0.0)

    with pytest.raises(KeyboardInterrupt):
        run_probe(plain, grade=killed)
    assert len(list(Store(plain.root).path("probed", "x").parent.glob("*.json"))) == 2
    again: list[bytes | None] = []

    def counted(patch: bytes | None) -> Tried:
        again.append(patch)
        return tried("unresolved", 0.0)

    report = run_probe(plain, grade=counted)
    assert len(again) == 3  # both controls, and the hunk that wasn't finished
    assert report.data["share"]["parts"] == 3
    assert list(Store(plain.root).path("probed", "x").parent.glob("*.json")) == []
    # What was remembered for other inputs doesn't count.
    assert run_probe(plain, grade=counted, inputs="other").data["tried"] == 3
    assert len(again) == 8


def test_what_an_engine_couldnt_do_is_no_judgement_and_isnt_remembered(plain: Made) -> None:
    def dead(_: bytes | None) -> Tried:
        return Tried(verdict=Verdict(outcome="infra-error", why="gone"), applied=True)

    report = run_probe(plain, grade=dead)
    assert not report.ok
    assert report.data["details"][0] == "not judged: a.kt @@ -1 +1 @@: gone"
    assert run_probe(plain, grade=unguarded("b")).ok


def test_tests_that_pass_without_the_fix_fail_the_probe(plain: Made) -> None:
    report = run_probe(plain, grade=lambda _: tried("resolved", 1.0))
    assert not report.ok
    fooled = [f for f in report.data["findings"] if f["rule"] == "tests/passes-without-fix"]
    assert [f["message"] for f in fooled] == [
        "the reward is 1 with the empty patch",
        "the reward is 1 with the test patch alone",
    ]


def test_an_unguarded_hunk_can_be_answered_for(plain: Made) -> None:
    why = Suppression(rule="tests/unguarded-hunk", task=TASK, reason="It only moves code.")
    report = run_probe(plain, grade=unguarded("b"), suppressions=[why])
    assert report.data["findings"] == []
    assert report.data["suppressed"][0]["reason"] == "It only moves code."
    assert report.summary.endswith("4 of 6 lines (67 %), 1 suppressed")


def test_a_patch_of_many_hunks_is_sampled_evenly_and_says_so(plain: Made) -> None:
    report = run_probe(plain, grade=unguarded("b"), most=2)
    assert [p["path"] for p in report.data["parts"]] == ["a.kt", "c.kt"]
    assert "2 of 3 parts tried" in report.summary
    assert (covers(report.data, 2), covers(report.data, 3)) == (True, False)


@pytest.mark.parametrize(("code", "applied"), [("0", True), ("1", False)])
def test_a_task_with_its_own_verifier_is_graded_with_another_patch(
    plain: Made, code: str, applied: bool
) -> None:
    (plain.fix.parents[1] / "task.toml").write_text("[verifier]\ntimeout_sec = 900\n")
    (plain.tests / "test.sh").write_text("exit 0\n")
    jobs: list[Job] = []

    def engine(job: Job) -> JobResult:
        jobs.append(job)
        outputs = {"/logs/agent/exit-code.txt": tars.pack({"exit-code.txt": code.encode()}),
                   "/logs/verifier": tars.pack({"verifier/reward.txt": b"0"})}  # fmt: skip
        return JobResult(status="exited", exit_code=0, outputs=outputs)

    found = plain.grader(engine)(b"another patch")
    assert (found.applied, found.verdict.reward) == (applied, 0.0)
    (solution,) = (u for u in jobs[0].uploads if u.into == "/solution")
    with tarfile.open(fileobj=io.BytesIO(solution.archive)) as tar:
        patches = [tar.extractfile(m).read() for m in tar if m.name == "fix.patch"]  # type: ignore[union-attr]
    assert patches[-1] == b"another patch"  # the last one of a name is what unpacking leaves
    assert jobs[0].timeout_sec == 60.0 + 600.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.fix.unlink(), "there is no solution/fix.patch"),
        (lambda m: m.fix.write_text(""), "empty or malformed"),
        (lambda m: (m.fix.parent / "solve.sh").write_text("cp -r /x .\n"), "doesn't apply"),
    ],
)
def test_a_task_that_cant_be_probed_says_why(plain: Made, change: Any, said: str) -> None:
    change(plain)
    report = run_probe(plain, grade=unguarded("b"))
    assert report.ok
    assert said in report.summary
    assert covers(report.data, 40)
