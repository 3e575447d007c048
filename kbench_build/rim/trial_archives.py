"""What a container gets of a repository, as tar archives made from git's own objects."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from kbench_build.rim.engines import tars
from kbench_build.rim.history import History


def checkout_of(history: History, commit: str, folder: Path) -> bytes:
    """A commit's files and a repository of it alone. `folder` is ours, and gone afterwards.

    Raises `ProcessError` where the clone lacks objects.
    """
    history.checkout(commit, folder)
    return _packed(folder)


def changes_of(
    history: History, tree: str, *, written: Iterable[str], deleted: Iterable[str], folder: Path
) -> bytes:
    """Changed files as the verifier takes over what an agent changed: `written` are the tree's."""
    history.write_files(tree, written, folder)
    gone = "".join(f"{path}\0" for path in deleted).encode("utf-8", "surrogateescape")
    return tars.pack({"changes.tar": _packed(folder), "deleted": gone})


def _packed(folder: Path) -> bytes:
    archive = b"".join(tars.stream(dict(_members(folder))))
    shutil.rmtree(folder)
    return archive


def _members(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file and link below a folder."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*files, *folders)):
            if path.is_symlink() or not path.is_dir():
                yield str(path.relative_to(folder)), path
