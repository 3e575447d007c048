"""Files appear whole, reports come back as they were written, one run holds a dataset."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model import Report
from kbench_build.rim.store import Store, dataset_lock, write_whole


def report(**changes: object) -> Report:
    values: dict[str, object] = {
        "step": "seal",
        "subject": "acme_text-1",
        "inputs": "ab" * 32,
        "ok": True,
        "summary": "sealed: 12 objects",
        "seconds": 1.5,
        "made": "sha256:cd",
        "data": {"ids": ["a b", "ü\udc80"]},
    }
    return Report(**{**values, **changes})  # type: ignore[arg-type]


def test_a_report_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = report(data={"ids": ["a b", "ü"], "n": 1})
    Store(tmp_path).write(written)
    assert Store(tmp_path).read("seal", "acme_text-1") == written


def test_the_head_is_read_without_the_data(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(report(summary="ß" * 2000, data={"ids": ["x" * 100] * 10_000}))
    head = store.head("seal", "acme_text-1")
    assert head is not None
    assert (head.inputs, head.ok, head.seconds, head.made) == ("ab" * 32, True, 1.5, "sha256:cd")
    assert head.summary.startswith("ßßß")


def test_a_subject_with_a_slash_or_odd_bytes_stays_in_its_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(report(subject="../../kotlin/a.tgz"))
    assert store.head("seal", "../../kotlin/a.tgz") is not None
    assert [p.parent for p in tmp_path.rglob("*.json")] == [tmp_path / ".kbench" / "seal"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]\n{}\n", b'{"inputs":1}\n{}\n', b"\xff\n{}\n"])
def test_a_damaged_report_is_no_report(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path)
    store.path("seal", "t").parent.mkdir(parents=True)
    store.path("seal", "t").write_bytes(content)
    assert store.head("seal", "t") is None
    assert store.read("seal", "t") is None


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "report"
    write_whole(target, b"old")
    with pytest.raises(KbenchError, match="report"):
        write_whole(target / "below-a-file", b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root, which CI has")
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        write_whole(disk / "old", b"old")
        with pytest.raises(KbenchError, match="disk/new: can't be written: No space left"):
            write_whole(disk / "new", b"x" * 200_000)
        assert [p.name for p in disk.iterdir()] == ["old"]
    finally:
        subprocess.run(["umount", disk], check=True)


HOLD = """
import sys, time
from pathlib import Path
from kbench_build.rim.store import dataset_lock
with dataset_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_run_says_so_in_one_line_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(KbenchError) as caught, dataset_lock(tmp_path):
            pass
        assert str(holder.pid) in str(caught.value)
        assert "\n" not in str(caught.value)
        holder.kill()
        holder.wait()
    with dataset_lock(tmp_path):
        pass


_KILLED = """
import os, sys, time
from pathlib import Path
from kbench_build.rim.store import dataset_lock
with dataset_lock(Path(sys.argv[1])):
    if os.fork():
        os._exit(0)
    print(flush=True)
    sys.stdin.read()
"""


def test_what_is_left_of_a_run_that_died_is_waited_for(tmp_path: Path) -> None:
    code = [sys.executable, "-c", _KILLED, str(tmp_path)]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin
        assert run.stdout
        run.wait()
        run.stdout.readline()
        descriptor = os.open(tmp_path / ".kbench" / "lock", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        threading.Timer(0.3, run.stdin.close).start()
        with dataset_lock(tmp_path):
            assert run.stdin.closed
