"""The graph as doit's users know it, without an engine."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbench_build.rim.store import dataset_lock
from tests.graph_kit import command, counts, doit, environment, lines, make_dataset, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "small")


def test_a_second_run_has_nothing_to_do(root: Path) -> None:
    assert counts(doit(root, "validate").stdout) == {"done": 4}
    assert counts(doit(root, "validate").stdout) == {"up to date": 4}


def test_touching_files_changes_nothing(root: Path) -> None:
    doit(root, "validate")
    for path in (root / "tasks").rglob("*"):
        os.utime(path)
    assert counts(doit(root, "validate").stdout) == {"up to date": 4}


def test_one_byte_concerns_one_task(root: Path) -> None:
    doit(root, "validate")
    write(root / "tasks" / "acme__tool-2" / "instruction.md", "Other words.\n")
    done = doit(root, "validate").stdout
    assert lines(done, "validate") == ["acme__tool-2"]
    assert counts(done) == {"done": 1, "up to date": 3}


def test_a_new_task_concerns_itself_and_the_dataset(root: Path) -> None:
    doit(root, "validate")
    shutil.copytree(root / "tasks" / "acme__tool-1", root / "tasks" / "acme__tool-9")
    done = doit(root, "validate").stdout
    assert sorted(lines(done, "validate")) == ["@dataset", "acme__tool-9"]


def test_wildcards_choose_tasks(root: Path) -> None:
    assert lines(doit(root, "validate:*tool-[13]").stdout, "validate") == [
        "acme__tool-1",
        "acme__tool-3",
    ]


def test_colours_are_for_terminals(root: Path) -> None:
    plain = doit(root, "validate", NO_COLOR="").stdout
    shutil.rmtree(root / ".kbench")
    coloured = doit(root, "validate", NO_COLOR="", FORCE_COLOR="1").stdout
    shutil.rmtree(root / ".kbench")
    without = doit(root, "validate", FORCE_COLOR="1").stdout
    assert "\x1b" not in plain
    assert "\x1b[32mok" in coloured
    assert "\x1b[32m" not in without
    said = [re.sub(r"\x1b\[[\d;]*m|[\d.]+ s", "", text).split() for text in (plain, coloured)]
    assert said[0] == said[1]


def test_what_a_task_says_moves_no_cursor(root: Path) -> None:
    shutil.move(root / "tasks" / "acme__tool-1", root / "tasks" / "acme__tool-1\x1b[2J")
    done = doit(root, "validate", code=None, NO_COLOR="")
    assert "\x1b" not in done.stdout
    assert "acme__tool-1\\x1b[2J" in done.stdout


def test_processes_share_the_work(root: Path) -> None:
    assert counts(doit(root, "-n", "3", "validate").stdout) == {"done": 4}
    assert counts(doit(root, "-n", "3", "validate").stdout) == {"up to date": 4}


def test_forget_makes_a_task_run_again(root: Path) -> None:
    doit(root, "validate")
    doit(root, "forget", "validate:acme__tool-1")
    assert lines(doit(root, "validate").stdout, "validate") == ["acme__tool-1"]
    doit(root, "forget", "validate")
    assert counts(doit(root, "validate").stdout) == {"done": 4}


def test_clean_removes_reports_and_says_what_it_would_remove(root: Path) -> None:
    doit(root, "validate")
    reports = root / ".kbench" / "validate"
    said = doit(root, "clean", "--dry-run", "validate:acme__tool-1").stdout
    assert "acme__tool-1.json" in said
    assert len(list(reports.iterdir())) == 4
    doit(root, "clean", "validate:acme__tool-1")
    assert len(list(reports.iterdir())) == 3
    assert lines(doit(root, "validate").stdout, "validate") == ["acme__tool-1"]


def test_list_names_every_step_and_info_says_why_a_task_would_run(root: Path) -> None:
    steps = {line.split()[0] for line in doit(root, "list").stdout.splitlines()}
    assert steps == {
        "base_inputs", "build_bases", "validate", "build_images", "seal", "selfcheck",
        "release", "verify", "drift", "probe", "sabotage",
    }  # fmt: skip
    doit(root, "validate")
    assert "up-to-date" in doit(root, "info", "validate:acme__tool-1").stdout
    write(root / "tasks" / "acme__tool-1" / "instruction.md", "Other words.\n")
    said = doit(root, "info", "validate:acme__tool-1", code=None).stdout
    assert "the report about validate of acme__tool-1 holds" in said
    status = doit(root, "list", "--status", "--all").stdout
    assert "R validate:acme__tool-1" in status
    assert "U validate:acme__tool-2" in status


def test_steps_that_dont_apply_are_absent(root: Path) -> None:
    names = doit(root, "list", "--all").stdout
    assert "selfcheck:acme__tool-1" in names
    assert "seal:acme__tool-1" in names  # without a base commit its layers are searched
    (root / "tasks" / "acme__tool-1" / "environment" / "Dockerfile").unlink()
    names = doit(root, "list", "--all").stdout
    assert "selfcheck:acme__tool-1" not in names
    assert "seal:acme__tool-1" not in names


def test_everything_wrong_is_said_and_the_rest_goes_on(root: Path) -> None:
    write(root / "tasks" / "acme__tool-1" / "task.toml", "a = [\n")
    (root / "tasks" / "acme__tool-2" / "tests" / "test.sh").unlink()
    done = doit(root, "validate", code=1)
    assert counts(done.stdout) == {"done": 2, "failed": 2}
    assert "tasks/acme__tool-1/task.toml: line 2, column 1: " in done.stdout
    assert "tasks/acme__tool-2" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("[dataset\n", "kbench.toml: line 1, column 9"), ("[nope]\n", "kbench.toml: nope: ")],
)
def test_a_bad_setting_is_one_line_and_exit_2(root: Path, text: str, said: str) -> None:
    write(root / "kbench.toml", text)
    done = doit(root, "validate", code=2)
    assert done.stderr.startswith(f"error: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_without_tasks_is_one_line_and_exit_2(root: Path) -> None:
    shutil.rmtree(root / "tasks")
    done = doit(root, code=2)
    assert "no folder tasks/ here" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unknown_flags_and_tasks_are_refused(root: Path) -> None:
    assert "--nope" in doit(root, "build_bases", "--nope", code=3).stderr
    assert "nothing" in doit(root, "validate:nothing", code=3).stderr
    assert "from 1 up" in doit(root, "selfcheck", "--runs", "-1", code=2).stderr


def test_the_second_run_at_once_says_so_in_one_line(root: Path) -> None:
    with dataset_lock(root):
        done = doit(root, "validate", code=2)
    assert f"process {os.getpid()}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (root / ".kbench" / "validate").exists()


def test_the_machine_readable_reporter_works(root: Path) -> None:
    assert '"name": "validate:acme__tool-1"' in doit(root, "-r", "json", "validate").stdout


@pytest.mark.parametrize("processes", ["0", "2"])
def test_without_an_engine_one_line_says_so_and_what_needs_none_works(
    root: Path, processes: str
) -> None:
    nowhere = f"unix://{root}/nowhere.sock"
    done = doit(root, "-n", processes, code=2, DOCKER_HOST=nowhere)
    assert done.stderr.startswith("error: no container engine answers")
    assert len(done.stderr.splitlines()) == 1
    assert lines(done.stdout, "build_images") == []
    assert sum(counts(doit(root, "validate", DOCKER_HOST=nowhere).stdout).values()) == 4
    doit(root, "release", "verify", DOCKER_HOST=nowhere)


def started(root: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        cwd=root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def reports(root: Path) -> list[Path]:
    return sorted((root / ".kbench" / "validate").glob("*.json"))


def wait_for_reports(root: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(reports(root)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("reached", [1, 40, 150])
def test_a_run_killed_at_any_moment_loses_at_most_the_unit_in_flight(
    tmp_path: Path, reached: int
) -> None:
    root = make_dataset(tmp_path / "many", tasks=600)
    with started(root, "validate") as run:
        wait_for_reports(root, reached)
        run.kill()
        run.wait()
    finished = len(reports(root))
    assert reached <= finished < 601
    again = counts(doit(root, "validate").stdout)
    assert again.get("up to date", 0) >= finished - 1
    assert sum(again.values()) == 601


def test_killed_processes_lose_at_most_a_unit_each_and_none_is_left(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "many", tasks=600)
    with started(root, "-n", "3", "validate") as run:
        wait_for_reports(root, 50)
        workers = children(run.pid)
        run.kill()
        run.wait()
    assert len(workers) == 3
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived the run that started it"
        time.sleep(0.01)
    finished = len(reports(root))
    assert counts(doit(root, "validate").stdout)["up to date"] >= finished - 3


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("processes", ["0", "2"])
def test_an_interrupted_run_says_so_and_goes_on(
    tmp_path: Path, number: signal.Signals, processes: str
) -> None:
    root = make_dataset(tmp_path / "many", tasks=600)
    with started(root, "-n", processes, "validate") as run:
        wait_for_reports(root, 20)
        run.send_signal(number)
        _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130
    assert stderr.splitlines()[-1].startswith("interrupted: what was finished is kept")
    assert "Traceback" not in stderr
    finished = len(reports(root))
    assert counts(doit(root, "validate").stdout)["up to date"] >= finished - 2


def test_what_a_killed_run_left_can_be_forgotten(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "many", tasks=50)
    with started(root, "validate") as run:
        wait_for_reports(root, 30)
        run.kill()
        run.wait()
    victim = reports(root)[5].stem
    doit(root, "forget", f"validate:{victim}")
    assert victim in lines(doit(root, "validate").stdout, "validate")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root, which CI has")
def test_a_full_disk_is_named_and_leaves_no_half_report(full_disk: Path) -> None:
    root = make_dataset(full_disk / "small")
    doit(root, "list")
    free = os.statvfs(full_disk)
    (full_disk / "filler").write_bytes(b"x" * free.f_bavail * free.f_frsize)
    done = doit(root, "validate", code=None)
    assert done.returncode == 2
    assert "No space left on device" in done.stdout + done.stderr
    assert reports(root) == []


def test_a_release_of_what_only_needs_validation(root: Path) -> None:
    done = doit(root, "release")
    assert lines(done.stdout, "release") or "release" in done.stdout
    assert (root / "dist" / "small-1.0.0" / "lock.json").is_file()
    assert counts(doit(root, "release").stdout) == {"up to date": 5}
    assert "is whole" in doit(root, "verify").stdout


def test_verify_names_the_file_in_which_one_byte_changed(root: Path) -> None:
    doit(root, "release")
    doit(root, "verify")
    card = root / "dist" / "small-1.0.0" / "README.md"
    card.chmod(0o644)
    card.write_bytes(card.read_bytes().replace(b"a", b"b", 1))
    assert "README.md" in doit(root, "verify", code=1).stdout


def test_a_failing_task_keeps_the_release_from_being_made(root: Path) -> None:
    write(root / "tasks" / "acme__tool-1" / "task.toml", "a = [\n")
    doit(root, "release", code=1)
    assert not (root / "dist").exists()
