"""A checkout of one commit, made from a clone's objects."""

import os
import subprocess
from pathlib import Path

import pytest

from kbench_build.rim.history import History
from tests.upstream_kit import Upstream, new_upstream


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    root = repository.root
    repository.git("config", "core.autocrlf", "false")
    (root / ".gitattributes").write_text("*.bat eol=crlf\nhidden export-ignore\n", encoding="utf-8")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "win.bat").write_bytes(b"one\ntwo\n")
    (root / "hidden").write_bytes(b"\0\1")
    (root / "note~").write_bytes(b"kept\n")
    (root / "link").symlink_to("run.sh")
    Path(os.fsdecode(os.fsencode(root) + b"/odd\xff\n")).write_bytes(b"odd")
    repository.commit("a", "Base")
    return repository


def git(folder: Path, *argv: str) -> str:
    done = subprocess.run(["git", *argv], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_checkout_holds_the_commit_and_nothing_else(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.commit("secret.kt", "The fix")
    place = tmp_path / "checkout"
    History(upstream.root, tmp_path / "store").checkout(base, place)
    assert git(place, "rev-parse", "HEAD") == base
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "log", "--format=%s") == "Base"
    objects = git(place, "cat-file", "--batch-all-objects", "--batch-check")
    assert len(objects.splitlines()) == 2 + 8  # a commit, a tree, and its files
    assert "commit" in objects
    assert git(place, "fsck", "--no-dangling") == ""


def test_files_are_what_git_would_check_out(upstream: Upstream, tmp_path: Path) -> None:
    place = tmp_path / "checkout"
    History(upstream.root, tmp_path / "store").checkout(upstream.git("rev-parse", "HEAD"), place)
    names = {os.fsencode(p.name) for p in place.iterdir()} - {b".git"}
    wanted = {b".gitattributes", b"run.sh", b"win.bat", b"hidden", b"note~", b"link", b"odd\xff\n"}
    assert names == wanted | {b"a"}
    assert (place / "win.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert (place / "run.sh").stat().st_mode & 0o111
    assert (place / "link").readlink() == Path("run.sh")


def test_a_submodule_is_an_empty_folder(upstream: Upstream, tmp_path: Path) -> None:
    commit = upstream.git("rev-parse", "HEAD")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib")
    upstream.git("commit", "-q", "-m", "Add a submodule")
    place = tmp_path / "checkout"
    History(upstream.root, tmp_path / "store").checkout(upstream.git("rev-parse", "HEAD"), place)
    assert list((place / "lib").iterdir()) == []
