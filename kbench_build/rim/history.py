"""What was merged into a branch of a clone, and the patches between its trees.

Promises: the clone is only read, through a store of our own (`rim/git.py`), so that nothing it
configures is obeyed and nothing is fetched; patches are git's, byte for byte. A shallow or partial
clone gives what it has: missing commits and objects are reported, not guessed. Leaves to others
which commits are changes worth having.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from kbench_build.errors import KbenchError
from kbench_build.model.repository import ChangedFile, Commit
from kbench_build.rim.git import ObjectStore, last_line, refs_of
from kbench_build.rim.process import ProcessError, run
from kbench_build.rim.upstream import objects_of

# Each value ends in a zero byte, and the first of a commit begins with a byte of its own.
_START = b"\x01"
_VALUES = ("H", "P", "T", "an", "ae", "at", "cn", "ce", "ct", "B")
_FORMAT = "%x01" + "".join(f"%{value}%x00" for value in _VALUES)
_LOG = ("--first-parent", "-m", "--raw", "-z", "-r", "--no-renames", "--no-abbrev", "--no-color")
_DIFF = ("-r", "-p", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv")
_HEADER = re.compile(rb"^[0-9a-f]{40,64} [0-9a-f]{40,64}\n", re.MULTILINE)
_BATCH, _MOST_AT_ONCE, _BATCH_BYTES = 64, 1024, 8 << 20
_SUBMODULE = "160000"
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = false\n"


class MissingObjectsError(KbenchError):
    """The clone lacks objects that a patch is made of: it is a partial clone."""


class History:
    """A clone's branches, read-only. Made once; `folder` must not exist yet and belongs to it."""

    def __init__(self, clone: Path, folder: Path) -> None:
        """Open the clone (a working copy, a bare repository or a mirror)."""
        git_folder = _git_folder(clone)
        self.refs = refs_of(git_folder)
        self.shallow = _lines(git_folder / "shallow")
        self._store = ObjectStore(folder, _algorithm(self.refs))
        self._store.borrow(git_folder / "objects")
        self._store.cut_history(self.shallow)

    def tip(self, branch: str = "") -> str:
        """The commit of a branch, tag or full ref (empty: of HEAD). Raises `KbenchError`."""
        names = [branch, f"refs/heads/{branch}", f"refs/remotes/origin/{branch}"]
        names = [*names, f"refs/tags/{branch}"] if branch else ["HEAD"]
        found = next((self.refs[name] for name in names if name in self.refs), None)
        if found is None:
            known = ", ".join(sorted(_branches(self.refs))[:8]) or "none: the repository is empty"
            raise KbenchError(f"{branch or 'HEAD'}: no such branch; there is {known}")
        return self._resolve(found)

    def commits(
        self, tip: str, *, since: int | None = None, until: int | None = None
    ) -> Iterator[Commit]:
        """The first parents from the tip on, newest first, committed between two times."""
        options = [f"--format={_FORMAT}"]
        options += [] if since is None else [f"--since-as-filter=@{since}"]
        options += [] if until is None else [f"--until=@{until}"]
        try:
            output = self._store.git("log", *_LOG, *options, tip, "--").stdout
        except ProcessError as error:
            raise KbenchError(f"the history can't be read: {last_line(error.stderr)}") from error
        yield from _parse_log(output.split(b"\0"))

    def line(self, tip: str) -> tuple[Commit, ...]:
        """All first parents from the tip on, newest first, without what they changed."""
        options = ("--first-parent", "-z", "--no-color", f"--format={_FORMAT}")
        try:
            output = self._store.git("log", *options, tip, "--").stdout
        except ProcessError as error:
            raise KbenchError(f"the history can't be read: {last_line(error.stderr)}") from error
        return tuple(_parse_log(output.split(b"\0")))

    def first_with(self, name: str, line: Sequence[Commit]) -> int:
        """The place of the oldest commit of a line (newest first) that contains a commit or tag.

        `name` is a commit's id, whole or shortened, a tag or a branch. Raises `KbenchError`.
        """
        commit = self._resolve(name)
        if not line or not self._contains(line[0].id, commit):
            raise KbenchError(f"{name}: isn't in the history of the branch")
        newest, oldest = 0, len(line)
        # What contains it lies in front, what doesn't behind: halve the rest between them.
        while oldest - newest > 1:
            middle = (newest + oldest) // 2
            if self._contains(line[middle].id, commit):
                newest = middle
            else:
                oldest = middle
        return newest

    def _contains(self, commit: str, ancestor: str) -> bool:
        said = self._store.git("rev-list", "--max-count=1", ancestor, f"^{commit}", "--").stdout
        return not said

    def _resolve(self, name: str) -> str:
        heads = ("", "refs/tags/", "refs/heads/", "refs/remotes/origin/")
        found = next((self.refs[head + name] for head in heads if head + name in self.refs), name)
        try:
            said = self._store.git(
                "rev-parse", "--verify", "--end-of-options", f"{found}^{{commit}}"
            )
        except ProcessError as error:
            raise KbenchError(f"{name}: the clone has no such commit, tag or branch") from error
        return said.stdout.decode().strip()

    def tree_of(self, commit: str) -> str:
        """The id of a commit's tree."""
        return self._store.root_tree(commit)

    def patches(
        self, pairs: Sequence[tuple[str, str]], *, renames: bool = True
    ) -> Iterator[bytes | MissingObjectsError]:
        """The patch between each two trees, in order; an error in the place of one that lacks some.

        Many trees are compared by one process, so that a long history takes little longer than
        `git log -p`.
        """
        start, many = 0, _BATCH
        while start < len(pairs):
            size = 0
            for patch in self._some(pairs[start : start + many], renames):
                size += len(patch) if isinstance(patch, bytes) else 0
                yield patch
            start += many
            # As many as are likely to stay small together: each start of git takes a while.
            many = max(1, min(_MOST_AT_ONCE, many * _BATCH_BYTES // max(size, 1)))

    def _some(
        self, pairs: Sequence[tuple[str, str]], renames: bool
    ) -> Iterator[bytes | MissingObjectsError]:
        try:
            yield from self._compared(pairs, renames)
        except ProcessError as error:
            if len(pairs) == 1:
                yield MissingObjectsError(f"the clone lacks objects: {last_line(error.stderr)}")
                return
            for pair in pairs:
                yield from self._some([pair], renames)

    def _compared(self, pairs: Sequence[tuple[str, str]], renames: bool) -> Iterator[bytes]:
        detect = "--find-renames" if renames else "--no-renames"
        # Two trees that are the same leave no line at all, so they aren't asked about.
        asked = "".join(f"{old} {new}\n" for old, new in pairs if old != new).encode()
        # Patches of large files are many megabytes: only one at a time is held.
        with TemporaryFile() as file:
            self._store.git("diff-tree", "--stdin", *_DIFF, detect, stdin=asked, stdout=file)
            found = _patches_in(file)
            for old, new in pairs:
                yield b"" if old == new else next(found)

    def checkout(self, commit: str, folder: Path) -> None:
        """Check a commit out at `folder`, which must not exist yet: its files, and `.git`.

        The repository there holds this commit alone, as a shallow clone of depth 1 does.
        """
        git_folder = folder / ".git"
        (git_folder / "objects" / "pack").mkdir(parents=True)
        (git_folder / "refs" / "heads").mkdir(parents=True)
        tree = self._store.tree(commit)
        ids = [
            commit,
            self.tree_of(commit),
            *(i for mode, i in tree.values() if mode != _SUBMODULE),
        ]
        packs = str(git_folder / "objects" / "pack" / "pack")
        wanted = "".join(f"{each}\n" for each in dict.fromkeys(ids)).encode()
        self._store.git("pack-objects", "--threads=1", "--quiet", packs, stdin=wanted)
        (git_folder / "HEAD").write_text(f"{commit}\n", encoding="ascii")
        (git_folder / "shallow").write_text(f"{commit}\n", encoding="ascii")
        (git_folder / "config").write_text(_CONFIG, encoding="ascii")
        self._store.git("read-tree", commit, index=git_folder / "index")
        self._store.fill(folder, index=git_folder / "index")

    def changes(self, old: str, new: str) -> bytes:
        """What differs between two trees, as `git diff-tree --raw -z` says it, without renames."""
        options = ("-r", "--raw", "-z", "--no-renames", "--no-abbrev")
        return self._store.git("diff-tree", *options, old, new).stdout

    def files(self, tree: str) -> dict[str, tuple[str, str]]:
        """Every file of a tree or commit: path → (mode, id)."""
        found = self._store.tree(tree)
        return {path: entry for path, entry in found.items() if entry[0] != "040000"}

    def write_files(self, tree: str, paths: Iterable[str], folder: Path) -> None:
        """Write files of a tree below a folder, as a checkout would have them."""
        index = self._store.folder / "written-index"
        self._store.git("read-tree", tree, index=index)
        folder.mkdir(parents=True)
        self._store.fill(folder, index=index, paths=paths)

    def line_ends(self, tree: str, paths: Iterable[str]) -> tuple[bytes, bytes]:
        """What git says of the line ends of files: of their attributes, and of all as stored."""
        index = self._store.folder / "asked-index"
        self._store.git("read-tree", tree, index=index)
        asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
        options = ("--cached", "-z", "--stdin", "text", "eol")
        said = self._store.git("check-attr", *options, stdin=asked, index=index).stdout
        if b"\0eol\0crlf\0" not in said:
            return said, b""
        return said, self._store.git("ls-files", "--cached", "--eol", "-z", index=index).stdout

    def apply(self, tree: str, patches: Sequence[bytes]) -> str:
        """The tree that the patches make of a tree. Raises `ProcessError` where one doesn't fit."""
        return self._store.tree_after(tree, patches)


def _patches_in(file: IO[bytes]) -> Iterator[bytes]:
    """What stands behind each header of git's output."""
    if not os.fstat(file.fileno()).st_size:
        return
    with mmap(file.fileno(), 0, access=ACCESS_READ) as output:
        headers = [found.span() for found in _HEADER.finditer(output)]
        ends = [start for start, _ in headers[1:]] + [len(output)]
        for (_, start), end in zip(headers, ends, strict=True):
            yield output[start:end]


def origin(clone: Path) -> str:
    """The address of a clone's origin, empty where it has none."""
    folder = _git_folder(clone)
    command = ["git", "config", "--file", str(folder / "config"), "--get", "remote.origin.url"]
    return run(command, timeout=60, accept=(0, 1)).stdout.decode("utf-8", "replace").strip()


def _parse_log(fields: list[bytes]) -> Iterator[Commit]:
    at = 0
    while at < len(fields) and fields[at].startswith(_START):
        texts = fields[at : at + len(_VALUES)]
        values = [text.decode("utf-8", "surrogateescape") for text in texts]
        at += len(_VALUES)
        files = []
        while at < len(fields) and not fields[at].startswith(_START):
            head = fields[at].strip(b"\n")
            if head.startswith(b":"):
                files.append(_changed(head, fields[at + 1]))
            at += 2 if head.startswith(b":") else 1
        yield _commit(values, tuple(files))


def _commit(values: list[str], files: tuple[ChangedFile, ...]) -> Commit:
    number, parents, tree, author, email, authored, committer, committer_email, at, text = values
    return Commit(
        id=number.removeprefix("\x01"),
        parents=tuple(parents.split()),
        tree=tree,
        author=author,
        author_email=email,
        authored=_seconds(authored),
        committer=committer,
        committer_email=committer_email,
        committed=_seconds(at),
        message=text,
        files=files,
    )


def _changed(head: bytes, path: bytes) -> ChangedFile:
    old_mode, new_mode, old_id, new_id, _ = head.decode("ascii").removeprefix(":").split(" ")
    return ChangedFile(
        path=path.decode("utf-8", "surrogateescape"),
        old_mode=old_mode,
        new_mode=new_mode,
        old_id=old_id,
        new_id=new_id,
    )


def _seconds(text: str) -> int:
    """A time as git prints it; broken commits have none."""
    return int(text) if text.isdecimal() and len(text) < 13 else 0


def _git_folder(clone: Path) -> Path:
    try:
        return objects_of(clone).parent.resolve()
    except KbenchError as error:
        raise KbenchError(f"{clone}: is no git repository: name a local clone") from error


def _lines(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8").split())
    except OSError:
        return ()


def _algorithm(refs: dict[str, str]) -> str:
    return "sha256" if any(len(each) == 64 for each in refs.values()) else "sha1"


def _branches(refs: dict[str, str]) -> Iterator[str]:
    for name in refs:
        for head in ("refs/heads/", "refs/remotes/origin/"):
            if name.startswith(head):
                yield name.removeprefix(head)
