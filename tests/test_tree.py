"""Digests of folders, and the index that knows when nothing changed."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import FileEntry
from kbench_build.rim.tree import TreeIndex, files_of, listing, scan_tree, scan_trees


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    task = tmp_path / "tasks" / "t"
    (task / "tests").mkdir(parents=True)
    (task / "tests" / "test.sh").write_bytes(b"exit 0\n")
    (task / "a b ü.txt").write_bytes(b"x")
    (task / "run").write_bytes(b"#!")
    (task / "run").chmod(0o755)
    (task / "link").symlink_to("run")
    (task / "__pycache__").mkdir()
    (task / "__pycache__" / "x.pyc").write_bytes(b"left out")
    settle()
    return task


def settle() -> None:
    """Let the clock leave the grain in which the index doesn't trust a change time."""
    time.sleep(0.06)


def test_every_file_is_listed_with_gits_mode(folder: Path) -> None:
    found = {f.path: f.mode for f in scan_tree(folder)}
    assert found == {
        "a b ü.txt": "100644",
        "link": "120000",
        "run": "100755",
        "tests/test.sh": "100644",
    }


def test_a_listing_is_the_files_as_one_text(folder: Path) -> None:
    (folder / "two\nlines 1").write_bytes(b"")
    files = scan_tree(folder)
    assert tuple(files_of(listing(files))) == files
    assert [f.path for f in files_of(listing(files[:1]), "tasks/t/")] == ["tasks/t/a b ü.txt"]


def test_folders_can_be_left_out(folder: Path) -> None:
    found = scan_tree(folder, "tasks/", without=frozenset({"tests"}))
    assert [f.path for f in found] == ["tasks/a b ü.txt", "tasks/link", "tasks/run"]


def test_a_file_larger_than_a_piece_has_the_digest_of_all_its_bytes(folder: Path) -> None:
    content = os.urandom(1 << 20) + b"and the rest"
    (folder / "large").write_bytes(content)
    entry = next(f for f in scan_tree(folder) if f.path == "large")
    assert (entry.digest, entry.size) == (digest.of_bytes(content), len(content))


@pytest.mark.skipif(shutil.which("b3sum") is None, reason="b3sum isn't installed")
def test_file_digests_are_those_of_b3sum(folder: Path) -> None:
    said = subprocess.run(
        ["b3sum", "--no-names", folder / "run"], check=True, capture_output=True, text=True
    )
    entry = next(f for f in scan_tree(folder) if f.path == "run")
    assert entry.digest == said.stdout.strip()


def test_the_tree_digest_is_over_sorted_lines(folder: Path) -> None:
    lines = "".join(
        f"{mode} {path} {digest.of_bytes(content)}\n"
        for mode, path, content in [
            ("100644", "a b ü.txt", b"x"),
            ("120000", "link", b"run"),
            ("100755", "run", b"#!"),
            ("100644", "tests/test.sh", b"exit 0\n"),
        ]
    )
    assert digest.of_tree(scan_tree(folder)) == digest.of_text(lines)


def test_many_folders_are_read_as_one_is(tmp_path: Path) -> None:
    folders = [tmp_path / f"t{number}" for number in range(20)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "small").write_bytes(b"x" * number)
        (folder / "large").write_bytes(b"y" * (3 << 16) + bytes([number]))
    before = sys.getswitchinterval(), threading.active_count()
    assert scan_trees(folders) == [scan_tree(folder) for folder in folders]
    os.mkfifo(folders[13] / "pipe")
    with pytest.raises(KbenchError, match="t13/pipe: is neither"):
        scan_trees(folders)
    # Steps are forked into workers, which must find no other thread.
    assert (sys.getswitchinterval(), threading.active_count()) == before


class Watcher:
    """Counts how often the index asked for a folder to be described."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, folder: Path, files: tuple[FileEntry, ...]) -> Mapping[str, Any]:
        self.asked += 1
        assert files == scan_tree(folder)
        return {"digest": digest.of_tree(files)}


def look(root: Path, watcher: Watcher) -> str:
    index = TreeIndex(root)
    value = index.look(["tasks/t"], watcher)
    index.save(frozenset({"tasks/t"}))
    return str(value["tasks/t"]["digest"])


def test_an_unchanged_folder_is_described_once(tmp_path: Path, folder: Path) -> None:
    watcher = Watcher()
    assert look(tmp_path, watcher) == look(tmp_path, watcher) == digest.of_tree(scan_tree(folder))
    assert watcher.asked == 1


def test_touching_a_file_changes_no_digest(tmp_path: Path, folder: Path) -> None:
    watcher = Watcher()
    before = look(tmp_path, watcher)
    os.utime(folder / "run", (1, 1))
    settle()
    assert look(tmp_path, watcher) == before


@pytest.mark.parametrize("change", ["content", "mode", "name", "link", "added", "removed"])
def test_every_kind_of_change_is_seen(tmp_path: Path, folder: Path, change: str) -> None:
    watcher = Watcher()
    before = look(tmp_path, watcher)
    if change == "content":
        status = (folder / "run").stat()
        (folder / "run").write_bytes(b"!#")
        # The size is the same, and the time is put back: only the change time tells.
        os.utime(folder / "run", ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "mode":
        (folder / "run").chmod(0o644)
    elif change == "name":
        (folder / "run").rename(folder / "ran")
    elif change == "link":
        (folder / "link").unlink()
        (folder / "link").symlink_to("ran")
    elif change == "added":
        (folder / "tests" / "more").write_bytes(b"")
    else:
        (folder / "run").unlink()
    assert look(tmp_path, watcher) != before


def test_a_file_in_a_folder_that_was_empty_is_seen(tmp_path: Path, folder: Path) -> None:
    (folder / "environment" / "deep").mkdir(parents=True)
    settle()
    watcher = Watcher()
    before = look(tmp_path, watcher)
    (folder / "environment" / "deep" / "new").write_bytes(b"")
    assert look(tmp_path, watcher) != before


def test_a_folder_behind_a_link_is_looked_into(tmp_path: Path, folder: Path) -> None:
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    settle()
    watcher = Watcher()
    before = look(tmp_path, watcher)
    assert look(tmp_path, watcher) == before
    assert watcher.asked == 1
    (tmp_path / "elsewhere" / "new").write_bytes(b"")
    assert look(tmp_path, watcher) != before


def test_a_change_within_the_clocks_grain_isnt_trusted(tmp_path: Path, folder: Path) -> None:
    watcher = Watcher()
    (folder / "run").write_bytes(b"just now")
    look(tmp_path, watcher)
    look(tmp_path, watcher)
    assert watcher.asked == 2


@pytest.mark.usefixtures("folder")
def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    index = TreeIndex(tmp_path)
    old, new = {"tasks/t": {"kind": "old"}}, {"tasks/t": {"kind": "new"}}
    index.look(["tasks/t"], lambda *_: {"kind": "old"})
    index.save(frozenset({"tasks/t"}))
    path = tmp_path / ".kbench" / "index"
    first, rest = path.read_bytes().split(b"\n", 1)
    assert TreeIndex(tmp_path).look(["tasks/t"], lambda *_: {"kind": "new"}) == old
    path.write_bytes(first + b".1\n" + rest)
    assert TreeIndex(tmp_path).look(["tasks/t"], lambda *_: {"kind": "new"}) == new


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"tasks/t\tx\t{\n", b"\t\t\t\t\n\n"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, folder: Path, content: bytes) -> None:
    TreeIndex(tmp_path).save(frozenset({"none"}))
    path = tmp_path / ".kbench" / "index"
    path.write_bytes(path.read_bytes().rstrip(b"\n") + b"\n" + content)
    assert look(tmp_path, Watcher()) == digest.of_tree(scan_tree(folder))


def test_what_is_neither_file_nor_link_is_named(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(KbenchError, match="t/pipe: is neither a file"):
        scan_tree(folder)


def test_a_name_that_isnt_text_survives(tmp_path: Path, folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"")
    settle()
    watcher = Watcher()
    assert look(tmp_path, watcher) == look(tmp_path, watcher)
