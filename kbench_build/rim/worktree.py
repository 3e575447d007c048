"""The user's own git repository around a dataset: where its root is, and what changed in it.

Promises: names may hold any byte; what can't be compared is one line that says what to do. Reads
only. Leaves to others what a change means.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kbench_build.errors import KbenchError
from kbench_build.rim.process import Completed, ProcessError, run

_TIMEOUT = 300.0
_ID = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")


def repository_above(folder: Path) -> Path | None:
    """The nearest folder above (or the folder itself) that has a `.git`; None where none does."""
    whole = folder.resolve()
    return next((path for path in (whole, *whole.parents) if (path / ".git").exists()), None)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a commit holds at a path: git's mode, and the blob's id."""

    mode: str
    id: str


class Worktree:
    """The part of a repository's working tree below a folder; paths are relative to the folder."""

    def __init__(self, folder: Path) -> None:
        """Raises `KbenchError` where the folder isn't in a working tree."""
        self.folder = folder
        try:
            self._git("rev-parse", "--show-toplevel")
        except ProcessError as error:
            raise KbenchError(f"{folder}: can't be compared: {_reason(error)}") from None

    def base(self, revision: str, *, exact: bool = False) -> str:
        """The commit to compare with: where HEAD left the revision, or (exact) the revision."""
        theirs, ours = self._commit(revision), self._commit("HEAD")
        if exact:
            return theirs
        found = self._git("merge-base", theirs, ours, accept=(0, 1)).stdout.split()
        if found:
            return found[0].decode("ascii")
        raise KbenchError(f"{revision} and HEAD have no common ancestor here{self._advice()}")

    def _commit(self, revision: str) -> str:
        name = f"{revision}^{{commit}}"
        question = ("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        said = self._git(*question, accept=(0, 1, 128)).stdout.split()
        # Not every git leaves the option out of its answer.
        found = [word for word in said if _ID.fullmatch(word)]
        if not found:
            raise KbenchError(f"{revision!r}: no such commit here{self._advice()}")
        return found[0].decode("ascii")

    def _advice(self) -> str:
        shallow = self._git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        if shallow:
            return (
                ": the clone is shallow: `git fetch --unshallow`, or `fetch-depth: 0` in a workflow"
            )
        return ": fetch it first, or name another revision"

    def changed(self, commit: str) -> frozenset[str]:
        """Paths that differ between the commit and the files now: new, edited and deleted ones.

        A rename is two of them. Files that git ignores aren't looked at.
        """
        options = ("--name-only", "--no-renames", "--no-ext-diff", "--relative", "-z")
        edited = self._git("diff", *options, commit, "--", ".").stdout
        untracked = self._git("ls-files", "--others", "--exclude-standard", "-z").stdout
        return frozenset(map(os.fsdecode, (edited + untracked).split(b"\0")[:-1]))

    def entries(self, commit: str, folders: Sequence[str]) -> Mapping[str, Entry]:
        """Every file that the commit holds below the folders, or at these paths."""
        listing = self._git("ls-tree", "-r", "-z", commit, "--", *folders).stdout
        found = {}
        for line in listing.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, kind, blob = head.decode("ascii").split(" ")
            if kind == "blob":
                found[os.fsdecode(path)] = Entry(mode=mode, id=blob)
        return found

    def contents(self, blobs: Collection[str]) -> Mapping[str, bytes]:
        """The blobs with these ids."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
        return dict(_batch(self._git("cat-file", "--batch", stdin=asked).stdout))

    def _git(
        self, *argv: str, stdin: bytes | None = None, accept: Sequence[int] = (0,)
    ) -> Completed:
        options = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
        env = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        command = ["git", *options, *argv]
        return run(command, timeout=_TIMEOUT, cwd=self.folder, env=env, stdin=stdin, accept=accept)


def _batch(answer: bytes) -> Iterator[tuple[str, bytes]]:
    """The objects in an answer of `git cat-file --batch`."""
    start = 0
    while start < len(answer):
        end = answer.index(b"\n", start)
        blob, _, size = answer[start:end].decode("ascii").split(" ")
        start = end + 1 + int(size)
        yield blob, answer[end + 1 : start]
        start += 1


def _reason(error: ProcessError) -> str:
    lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else str(error)


def lay_out(
    worktree: Worktree,
    commit: str,
    changed: Collection[str],
    *,
    folders: Sequence[str],
    files: Sequence[str],
    into: Path,
) -> None:
    """Lay out in an empty folder what a commit had, as far as it is in these folders and files.

    What stands directly in one of the folders and hasn't changed is a link to what is there now.
    Files that git ignores stay as they are now: they are no part of the change.
    """
    here = worktree.folder
    old = worktree.entries(commit, [*folders, *files])
    now = [path for name in folders for path in here.glob(f"{name}/*")]
    places = {_place(path.relative_to(here).as_posix()) for path in now} | {*files}
    had = set(map(_place, old))
    touched: dict[str, dict[str, Entry | None]] = {}
    for path in changed:
        touched.setdefault(_place(path), {})[path] = old.get(path)
    for place in sorted((places - touched.keys()) | (had & touched.keys())):
        (into / place).parent.mkdir(parents=True, exist_ok=True)
        if place in touched:
            _take_back(worktree, place, touched[place], into)
        elif (here / place).exists():
            (into / place).symlink_to((here / place).resolve())


def _place(path: str) -> str:
    """The first two names of a path."""
    return "/".join(path.split("/", 2)[:2])


def _take_back(
    worktree: Worktree, place: str, paths: Mapping[str, Entry | None], into: Path
) -> None:
    """Copy a folder as it is now, with these paths as they were (None: not there)."""
    here = worktree.folder / place
    if here.is_dir() and not here.is_symlink():
        shutil.copytree(here, into / place, symlinks=True)
    for path in paths:
        _remove(into / path)
    contents = worktree.contents({entry.id for entry in paths.values() if entry})
    for path, entry in paths.items():
        if entry and ".." not in path.split("/"):
            _put(into, path, entry.mode, contents[entry.id])


def _put(into: Path, path: str, mode: str, content: bytes) -> None:
    """Write a file where only folders of ours lead to it."""
    target = into / path
    for parent in reversed(target.relative_to(into).parents[:-1]):
        if (into / parent).is_symlink() or not (into / parent).is_dir():
            _remove(into / parent)
            (into / parent).mkdir()
    _remove(target)
    if mode == "120000":
        target.symlink_to(os.fsdecode(content))
    else:
        target.write_bytes(content)
        target.chmod(int(mode[-3:], 8))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
