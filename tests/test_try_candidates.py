"""`kbench mine --run`, in real containers: every outcome, and nothing left behind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbench_build.steps.try_candidates import LOG
from tests.trial_kit import CONFIG, OLD, Done, Project, kbench

needs_engine = pytest.mark.engine

TWO = "def two():\n    return 2\n"
TEST_TWO = "\n\ndef test_two():\n    assert lib.two() == 2\n"
ALONE = (
    "import os\n\n\ndef test_network():\n    assert os.listdir('/sys/class/net') == ['lo']\n"
    "\n\ndef test_new():\n    import lib\n    assert lib.two() == 2\n"
)
# Everything that a patch can lose, as the fix and the tests bring it.
LOSSLESS = """
import os


def test_all():
    assert open("data/blob", "rb").read() == bytes(range(256)) * 3
    assert os.readlink("lib/link") == "../data/blob"
    assert os.access("lib/run.sh", os.X_OK)
    assert open("lib/dos.txt", "rb").read() == b"one\\r\\ntwo"
    assert open("tests/caf\\xe9.bin", "rb").read() == b"\\0\\xff"
    assert open("lib/win.bat", "rb").read() == b"one\\r\\ntwo\\r\\n"
    assert open("tests/win.bat", "rb").read() == b"one\\r\\n"
    assert not os.path.exists("lib/old.py")
"""


def grown(folder: Path) -> tuple[Project, dict[str, str]]:
    """The project, and the id of the change for each outcome."""
    project = Project(folder)
    root, git = project.upstream.root, project.upstream.git
    ids = {}

    def source() -> dict[str, str | bytes | None]:
        return {f"lib/part{project.number}.py": "a = 1\nb = 2\nc = 3\n"}

    def pull(name: str, files: Mapping[str, str | bytes | None]) -> None:
        ids[name] = project.pull({**source(), **files})

    pull("no-environment", {"tests/test_old.py": OLD + "# before the first environment\n"})
    git("tag", "v1")
    project.change({"lib/old.py": "old = 1\n", ".gitattributes": "*.bin binary\n*.bat eol=crlf\n"})
    (root / "lib" / "link").symlink_to("../data/blob")
    (root / "lib" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "lib" / "run.sh").chmod(0o755)
    fix: dict[str, str | bytes | None] = {
        "lib.py": "def one():\n    return 1\n\n\n" + TWO,
        "data/blob": bytes(range(256)) * 3,
        "lib/dos.txt": b"one\r\ntwo",
        "lib/win.bat": "one\ntwo\n",
        "lib/old.py": None,
    }
    tests: dict[str, str | bytes | None] = {
        "tests/test_old.py": OLD + TEST_TWO,
        "tests/test_net.py": ALONE,
        "tests/test_all.py": LOSSLESS,
        "tests/caf\u00e9.bin": b"\0\xff",
        "tests/win.bat": "one\n",
    }
    pull("valid", {**fix, **tests})
    pull("no-signal", {"tests/test_old.py": OLD + TEST_TWO + "\n\ndef test_x():\n    lib.one()\n"})
    pull("fails-after", {"tests/test_a.py": "def test_a():\n    assert False\n"})
    named = "import time\n\nglobals()[f'test_{time.time_ns()}'] = lambda: None\n"
    pull("unsteady", {"tests/test_b.py": named})
    pull("nothing-ran", {"tests/test_c.py": "import not_there\n\n\ndef test_c():\n    pass\n"})
    slow = "import time\n\n\ndef test_d():\n    time.sleep(60)\n"
    pull("timeout", {"tests/test_d.py": slow})
    pull("data", {"tests/data.json": "[1,\n2,\n3]\n"})
    git("update-index", "--add", "--cacheinfo", f"160000,{git('rev-parse', 'HEAD')},tests/sub")
    (root / "tests" / "sub").mkdir()
    pull("patch-fails", {"tests/test_f.py": "def test_f():\n    pass\n\n\n# and more\n"})
    return project, ids


CONFIGURED = (
    CONFIG.replace('name = "py"', 'name = "py"\nstart = "v1"')
    .replace("timeout_sec = 5", "timeout_sec = 4\nmemory_mb = 512\ndisk_mb = 64")
    .replace('preset = "python-pytest"', 'preset = "python-pytest"\nsource = ["lib*", "data/"]')
)


@dataclass(kw_only=True)
class Run:
    """One call of the command on the grown project."""

    root: Path
    project: Project
    ids: dict[str, str]
    done: Done

    def outcome(self, name: str) -> tuple[str, str]:
        found = self.done.trials["candidates"][self.ids[name]]
        return found["outcome"], found["reason"]

    def folder(self, name: str) -> Path:
        return self.root / "mined" / "acme_text" / self.ids[name].removeprefix("#")

    def trial(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder(name) / "trial.json").read_bytes())
        return value


@pytest.fixture(scope="module")
def run(trial_image: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    del trial_image
    folder = tmp_path_factory.mktemp("trials")
    project, ids = grown(folder)
    root = folder / "dataset"
    root.mkdir()
    (root / "kbench.toml").write_text(CONFIGURED, encoding="utf-8")
    place = str(project.upstream.root)
    done = kbench(root, place, "--run", "--runs", "2", "-n", "2", "--format", "json")
    assert done.stdout, done.stderr
    return Run(root=root, project=project, ids=ids, done=done)


@needs_engine
@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("valid", "valid", "3 f2p, 2 p2p"),
        ("no-signal", "no-signal", "3 p2p"),
        ("data", "no-signal", "it changes no test that can be run"),
        ("fails-after", "fails-after", "failed with the fix: tests.test_a.test_a"),
        ("unsteady", "unsteady", "tests: tests.test_b.test_"),
        ("nothing-ran", "nothing-ran", "fix: can't be loaded: tests.test_c"),
        ("timeout", "timeout", "tests: the test command didn't end within its time limit"),
        ("patch-fails", "patch-fails", "tests/sub: is a submodule"),
        ("no-environment", "no-environment", "no environment of kbench.toml serves its base"),
    ],
)
def test_each_candidate_has_one_outcome(run: Run, name: str, outcome: str, reason: str) -> None:
    found = run.outcome(name)
    assert found[0] == outcome
    assert found[1].startswith(reason), found[1]


@needs_engine
def test_the_command_counts_them(run: Run) -> None:
    counts = run.done.trials["outcomes"]
    assert sum(counts.values()) == len(run.ids)
    assert counts["valid"] == 1
    (month,) = run.done.trials["months"]
    assert (month["tried"], month["valid"], month["nothing_ran"]) == (len(run.ids) - 1, 1, 1)
    assert run.done.code == 0
    lines = [line for line in run.done.stderr.splitlines() if line.startswith("[")]
    assert len(lines) == len(run.ids)


@needs_engine
def test_a_trial_holds_the_expected_tests_and_what_made_them(run: Run) -> None:
    trial = run.trial("valid")
    found = trial["expected"]
    new = ["tests.test_all.test_all", "tests.test_net.test_new", "tests.test_old.test_two"]
    assert found["f2p_tests"] == new
    assert found["p2p_tests"] == ["tests.test_net.test_network", "tests.test_old.test_one"]
    assert found["run_result"]["passed_tests"] == ["tests.test_old.test_one"]
    files = ["tests/test_all.py", "tests/test_net.py", "tests/test_old.py"]
    assert trial["command"] == ["python3", "/run_tests.py", *files]
    repeats = {state: len(each) for state, each in trial["seconds"].items()}
    assert (trial["runs"], repeats) == (2, {"base": 2, "tests": 2, "fix": 2})
    assert len(next(iter(run.trial("unsteady")["unsteady"].values()))) == 2


@needs_engine
def test_what_containers_said_is_kept_where_a_change_is_refused(run: Run) -> None:
    assert "ModuleNotFoundError" in (run.folder("nothing-ran") / LOG).read_text(encoding="utf-8")
    assert not (run.folder("valid") / LOG).exists()


@needs_engine
def test_nothing_is_left_behind(run: Run) -> None:
    assert run.done.left == ()


@needs_engine
def test_another_run_tries_nothing_again(run: Run) -> None:
    before = run.trial("valid")
    done = kbench(run.root, str(run.project.upstream.root), "--run", "--runs", "2")
    assert (done.code, done.stderr) == (0, "")
    assert f"{len(run.ids)} tried, {len(run.ids)} of them by an earlier run" in done.stdout
    assert "yield by month" in done.stdout
    assert run.trial("valid") == before


@needs_engine
def test_one_candidate_alone_with_lines_that_prepare_it(run: Run, tmp_path: Path) -> None:
    lines = "prepare = ['test -d .git', 'echo \"def two(): return 2\" > extra.py', 'pwd']"
    text = CONFIGURED.replace("timeout_sec = 4", f"timeout_sec = 5\n{lines}")
    root = tmp_path / "dataset"
    root.mkdir()
    only = run.ids["valid"]
    call = (str(run.project.upstream.root), "--run", "--only", only, "--format", "json")
    (root / "kbench.toml").write_text(text, encoding="utf-8")
    done = kbench(root, *call)
    assert done.trials["candidates"] == {only: {"outcome": "valid", "reason": "3 f2p, 2 p2p"}}
    assert done.left == ()
    (root / "kbench.toml").write_text(text.replace("test -d .git", "exit 9"), encoding="utf-8")
    found = kbench(root, *call).trials["candidates"][only]
    assert found == {"outcome": "nothing-ran", "reason": "prepare: exited (exit code 9)"}
