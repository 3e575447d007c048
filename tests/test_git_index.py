"""The index reader agrees with git, in every version, and refuses what isn't an index."""

from pathlib import Path

import pytest

from kbench_build.rules.git_index import parse_index
from tests.seal_routes import git


@pytest.fixture(scope="module", params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("index") / request.param
    git(folder.parent, "init", "-q", f"--object-format={request.param}", str(folder))
    # Names of every length up to a few paddings, sharing beginnings, one of them very long.
    for name in [*("n" * length for length in range(1, 20)), 'é \n"', "long/" * 40 + "x" * 200]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "All")
    return folder


def listed(folder: Path) -> set[tuple[str, str, str, int]]:
    entries = set()
    for line in git(folder, "ls-files", "-s", "-z").split("\0")[:-1]:
        head, _, path = line.partition("\t")
        mode, object_id, stage = head.split()
        entries.add((path, mode, object_id, int(stage)))
    return entries


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_entries_are_those_that_git_lists(version: str, repository: Path) -> None:
    git(repository, "read-tree", "HEAD")
    git(repository, "update-index", "--index-version", version)
    # Version 3 is written only where a flag needs it.
    git(repository, "update-index", "--skip-worktree", "nn")
    git(repository, "update-index", "--assume-unchanged", "nnn")
    data = (repository / ".git" / "index").read_bytes()
    id_bytes = 20 if repository.name == "sha1" else 32
    index = parse_index(data, id_bytes)
    assert data[7] == (4 if version == "4" else 3)
    assert {(e.path, e.mode, e.id, e.stage) for e in index.entries} == listed(repository)
    flags = {e.path: e.flags for e in index.entries if e.flags}
    assert flags == {"nn": ("skip-worktree",), "nnn": ("assume-unchanged",)}


def test_cached_trees_are_those_of_the_commit(repository: Path) -> None:
    git(repository, "read-tree", "HEAD")
    id_bytes = 20 if repository.name == "sha1" else 32
    index = parse_index((repository / ".git" / "index").read_bytes(), id_bytes)
    trees = git(repository, "ls-tree", "-r", "-t", "-d", "--format=%(objectname)", "HEAD").split()
    root = git(repository, "rev-parse", "HEAD^{tree}")
    assert index.extensions == ("TREE",)
    assert index.cached_trees == {root, *trees}


def test_what_is_no_index_is_refused(repository: Path) -> None:
    id_bytes = 20 if repository.name == "sha1" else 32
    data = (repository / ".git" / "index").read_bytes()
    for broken, reason in {
        b"": "aren't DIRC",
        b"DIRC": "checksum",
        data[:-1]: "checksum",
        data + b"x": "checksum",
        b"PACK" + data[4:]: "aren't DIRC",
    }.items():
        with pytest.raises(ValueError, match=reason):
            parse_index(broken, id_bytes)


@pytest.mark.parametrize("cut", [4, 8, 12, 30, 60, 70, 75, 200, 1000])
def test_an_index_that_ends_early_is_refused(cut: int, repository: Path) -> None:
    import hashlib

    algorithm = hashlib.sha1 if repository.name == "sha1" else hashlib.sha256
    git(repository, "read-tree", "HEAD")
    body = (repository / ".git" / "index").read_bytes()[:cut]
    with pytest.raises(ValueError, match=r"ends|version"):
        parse_index(body + algorithm(body).digest(), algorithm().digest_size)


def test_other_versions_and_long_extensions_are_refused() -> None:
    import hashlib

    for body, reason in (
        (b"DIRC\0\0\0\5\0\0\0\0", "version 5"),
        (b"DIRC\0\0\0\2\0\0\0\0TREE\0\0\1\0", "ends after the index"),
        (b"DIRC\0\0\0\2\0\0\0\0TREE\0\0\0\1x", "."),
    ):
        with pytest.raises(ValueError, match=reason):
            parse_index(body + hashlib.sha1(body).digest(), 20)
