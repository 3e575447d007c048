"""The `kbench` command: what it prints, and its exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.graph_kit import ROOT, doit, environment, make_dataset
from tests.samples import TASK, Sample

MAIN = "import sys; from kbench_build.cli import main; sys.exit(main())"


def kbench(
    folder: Path, *arguments: str, code: int = 0, **changes: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=folder,
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def released(tmp_path: Path) -> Path:
    root = make_dataset(tmp_path / "small")
    doit(root, "release")
    return root


def test_help_and_version(tmp_path: Path) -> None:
    said = kbench(tmp_path, "-h").stdout
    assert all(command in said for command in ("verify", "sync", "engine"))
    assert "RELEASES are release folders" in kbench(tmp_path, "verify", "--help").stdout
    assert kbench(tmp_path, "--version").stdout.startswith("kbench, version ")


def test_the_list_of_commands_says_of_each_what_it_does(tmp_path: Path) -> None:
    listed = kbench(tmp_path, "--help").stdout.partition("Commands:")[2]
    lines = [line for line in listed.splitlines() if line.strip()]
    assert len(lines) > 8
    assert all(line.endswith(".") and not line.endswith("...") for line in lines), listed


def test_what_is_said_of_many_tasks_is_said_once(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "small")
    shown = kbench(root, "sync").stdout
    assert shown.splitlines() == [
        "note     3 tasks: own verifier, left alone",
        "0 of 3 tasks renewed",
    ]


@pytest.mark.parametrize("call", [["nope"], ["verify", "--nope"], ["sync", "--nope"]])
def test_an_unusable_call_is_exit_2(tmp_path: Path, call: list[str]) -> None:
    assert "No such" in kbench(tmp_path, *call, code=2).stderr


def test_verify_prints_the_tarball_and_the_content_hash(released: Path) -> None:
    tarball, content = (
        line.split()[-1] for line in kbench(released, "verify").stdout.splitlines()[-2:]
    )
    assert (released / tarball).is_file()
    assert len(content.removeprefix("blake3:")) == 64


def test_a_moved_release_needs_nothing_else(released: Path, tmp_path: Path) -> None:
    moved = shutil.move(released / "dist" / "small-1.0.0", tmp_path / "elsewhere")
    shutil.rmtree(released)
    assert kbench(tmp_path, "verify", str(moved)).stdout.startswith("ok  small-1.0.0 is whole")


def test_a_damaged_release_is_exit_1_and_names_the_file(released: Path) -> None:
    card = released / "dist" / "small-1.0.0" / "CHANGELOG.md"
    card.chmod(0o644)
    card.write_bytes(card.read_bytes() + b"x")
    assert "CHANGELOG.md" in kbench(released, "verify", code=1).stdout
    found = json.loads(kbench(released, "verify", "--format", "json", code=1).stdout)
    assert [r["ok"] for r in found] == [False]
    assert found[0]["findings"][0]["file"] == "CHANGELOG.md"


def test_without_a_release_one_line_says_what_to_name(tmp_path: Path) -> None:
    done = kbench(tmp_path, "verify", code=2)
    assert done.stderr == "error: dist: no release here: name a release's folder\n"
    assert "isn't a folder" in kbench(tmp_path, "verify", "nowhere", code=2).stderr


def test_sync_checks_then_renews_then_has_nothing_to_do(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.write("tests/test.sh", "exit 0\n")
    assert (
        f"differs  tasks/{TASK}/tests/test.sh" in kbench(tmp_path, "sync", "--check", code=1).stdout
    )
    assert f"written  tasks/{TASK}/tests/test.sh" in kbench(tmp_path, "sync").stdout
    shipped = (ROOT / "kbench_build" / "runtime" / "test.sh").read_bytes()
    assert (sample.task / "tests" / "test.sh").read_bytes() == shipped
    assert "0 of 1 tasks differ" in kbench(tmp_path, "sync", "--check").stdout
    assert "no such task" in kbench(tmp_path, "sync", "other", code=2).stderr


def test_the_engine_that_doesnt_answer_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = kbench(tmp_path, "engine", code=2, DOCKER_HOST=f"unix://{tmp_path}/nowhere.sock")
    assert len(done.stderr.splitlines()) == 1
    assert "dockerd" in done.stderr


@pytest.mark.engine
def test_the_engine_that_answers_is_named(tmp_path: Path) -> None:
    assert "answers and holds" in kbench(tmp_path, "engine").stdout


def test_a_repository_that_is_none_is_named(tmp_path: Path) -> None:
    Sample(tmp_path)
    (tmp_path / "empty").mkdir()
    done = kbench(tmp_path, "sync", "--repository", "empty", code=2)
    assert done.stderr == "error: empty: isn't a git repository or a bundle\n"


def test_a_command_that_there_is_not_is_answered_with_one_that_there_is(tmp_path: Path) -> None:
    said = kbench(tmp_path, "valdate", code=2).stderr
    assert "there is no command 'valdate'; is 'validate' meant?" in said


def test_only_the_called_command_is_imported() -> None:
    script = "import sys; from kbench_build.cli import cli; "
    script += "cli(['verify', '--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.split())
    assert "kbench_build.commands.verify" in imported
    assert imported.isdisjoint({"kbench_build.commands.mine", "kbench_build.plan"})
