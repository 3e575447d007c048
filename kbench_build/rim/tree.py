"""Digests of folders: exact when computed, nearly free when nothing changed.

`scan_tree` reads every file. `TreeIndex` remembers, for each folder, the names below it, one
signature over the stat values of all that they stand for (mode, size, mtime, ctime, inode) and
whatever its owner derived from the content; while the signature is the same, nothing is read, and
no folder is listed: no name comes or goes without a change of its folder's times. The change time
catches an edit that put size and mtime back. What changed within the clock's grain before the look
is not trusted the next time.
"""

import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
from blake3 import blake3

from kbench_build import __version__
from kbench_build.errors import KbenchError
from kbench_build.model import FileEntry
from kbench_build.rim.store import STATE, write_whole

# Harbor leaves these out of a task's digest, so they are no part of a task anywhere here.
IGNORED_NAMES = frozenset({"__pycache__", ".DS_Store", ".git"})
IGNORED_ENDINGS = (".pyc", ".swp", ".swo", "~")

_CLOCK_GRAIN_NS = 50_000_000
# With the number of what is described: a later one holds other keys.
_MADE_BY = f"kbench-build {__version__} 3".encode("ascii")
Mode = Literal["100644", "100755", "120000"]
_LINK: Mode = "120000"
_MODES: Mapping[str, Mode] = {mode: mode for mode in get_args(Mode)}


class _Own(threading.local):
    """What a thread reads files into. It begins at a page: hashing is a tenth faster from there."""

    def __init__(self) -> None:
        self.piece = memoryview(mmap.mmap(-1, 1 << 20))


_own = _Own()


def ignored(name: str) -> bool:
    """Whether a file or folder of this name is left out of every tree."""
    return name in IGNORED_NAMES or name.endswith(IGNORED_ENDINGS)


def scan_tree(
    folder: Path, prefix: str = "", *, without: frozenset[str] = frozenset()
) -> tuple[FileEntry, ...]:
    """Every file below the folder with its digest, sorted by path. Links are not followed.

    Paths are relative to the folder, with the prefix in front. `without` names folders (paths
    relative to the folder) that are left out.
    """
    listed = _listed(folder, without)
    found = ((prefix + below, item) for below, files in listed for item in files)
    entries = (_entry(before + item.name, item) for before, item in found)
    return tuple(sorted(entries, key=lambda e: os.fsencode(e.path)))


def listing(files: Iterable[FileEntry]) -> str:
    """Files as one text, which costs far less to keep and read than a list of values."""
    return "".join(f"{f.mode} {f.digest} {f.size} {f.path}\0" for f in files)


def files_of(text: str, prefix: str = "") -> Iterator[FileEntry]:
    """The files of a listing, with the prefix in front of their paths."""
    for line in text.split("\0")[:-1]:
        mode, digest, size, path = line.split(" ", 3)
        yield FileEntry(mode=_MODES[mode], path=prefix + path, digest=digest, size=int(size))


def _listed(
    folder: Path, without: frozenset[str] = frozenset()
) -> Iterator[tuple[str, list["os.DirEntry[str]"]]]:
    """Each folder, as what stands before its files' names, and these files."""
    pending = [("", os.fspath(folder))]
    while pending:
        prefix, here = pending.pop()
        files = []
        try:
            with os.scandir(here) as found:
                for item in found:
                    if ignored(item.name):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        if prefix + item.name not in without:
                            pending.append((f"{prefix}{item.name}/", item.path))
                    else:
                        files.append(item)
        except OSError as error:
            raise KbenchError(f"{here}: can't be read: {error.strerror}") from error
        yield prefix, files


def _entry(path: str, item: "os.DirEntry[str]") -> FileEntry:
    try:
        if item.is_symlink():
            target = os.fsencode(os.readlink(item.path))  # noqa: PTH115 - keeps odd bytes
            mode, digest, size = _LINK, blake3(target).hexdigest(), len(target)
        elif item.is_file(follow_symlinks=False):
            mode, digest, size = _content(item.path)
        else:
            raise KbenchError(f"{item.path}: is neither a file, a folder nor a link")
    except OSError as error:
        raise KbenchError(f"{item.path}: can't be read: {error.strerror}") from error
    return FileEntry(mode=mode, path=path, digest=digest, size=size)


def _content(path: str) -> tuple[Mode, str, int]:
    """A file's mode, digest and size, all three of the one that was opened."""
    content, size, piece = blake3(), 0, _own.piece
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        while read := os.readv(descriptor, [piece]):
            content.update(piece[:read])
            size += read
            # The end isn't looked for where it must be: a call less for each file.
            if size == status.st_size:
                break
    finally:
        os.close(descriptor)
    mode: Mode = "100755" if status.st_mode & 0o111 else "100644"
    return mode, content.hexdigest(), size


class TreeIndex:
    """What is known of a dataset's folders, kept in `.kbench/index`.

    Each folder's value is what the caller's `describe` returned for it: a JSON object.
    """

    def __init__(self, root: Path) -> None:
        """Read the index of the dataset at `root`; a missing or damaged one is an empty one."""
        self._root = root
        self._path = root / STATE / "index"
        self._known: dict[str, tuple[str, bytes]] = {}
        self._changed = False
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return
        # What another version described may hold other keys.
        for line in lines if lines[0] == _MADE_BY else ():
            fields = line.split(b"\t", 2)
            if len(fields) == 3:
                self._known[os.fsdecode(fields[0])] = (fields[1].decode("ascii"), fields[2])

    def look(self, folder: str, describe: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The value of a folder (relative to the root): remembered, or described anew."""
        remembered = self._recall(folder)
        if remembered is not None:
            return remembered
        began = time.time_ns()
        names = sorted(_names(self._root / folder))
        signature, newest = self._signature(folder, names)
        value = describe(self._root / folder)
        trusted = signature if newest < began - _CLOCK_GRAIN_NS else "-"
        # Not orjson: names from disk may hold lone surrogates, which it refuses.
        line = json.dumps({"names": names, "value": value}, separators=(",", ":")).encode("ascii")
        self._known[folder] = (trusted, line)
        self._changed = True
        return value

    def _recall(self, folder: str) -> Mapping[str, Any] | None:
        """What is remembered of a folder; None when anything in it isn't as it was."""
        signature, line = self._known.get(folder, ("-", b""))
        try:
            known = orjson.loads(line)
            found, _ = self._signature(folder, known["names"])
            value: Mapping[str, Any] = known["value"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if found == signature else None

    def save(self, folders: frozenset[str]) -> None:
        """Keep what is known of these folders for the next run, and forget all others."""
        if not self._changed and len(self._known) == len(folders):
            return
        lines = [
            b"%s\t%s\t%s" % (os.fsencode(folder), signature.encode("ascii"), value)
            for folder, (signature, value) in sorted(self._known.items())
            if folder in folders and not {"\t", "\n"} & set(folder)
        ]
        write_whole(self._path, b"\n".join([_MADE_BY, *lines, b""]))
        self._changed = False

    def _signature(self, folder: str, names: Iterable[str]) -> tuple[str, int]:
        """One digest over the stat values of names below the folder, and the newest time (ns)."""
        # The folder itself has the empty name; with the slash behind it lstat follows a link there.
        top = f"{self._root}/{folder}/"
        lines: list[str] = []
        newest = 0
        for name in names:
            s = os.lstat(top + name)
            changed, moved = s.st_mtime_ns, s.st_ctime_ns
            lines.append(f"{name}\0{s.st_mode} {s.st_size} {changed} {moved} {s.st_ino}")
            newest = max(newest, changed, moved)
        return blake3(os.fsencode("\0".join(lines))).hexdigest(length=16), newest


def _names(folder: Path) -> Iterator[str]:
    """The folder, every folder below it and every file, as what follows the folder's own path."""
    for prefix, files in _listed(folder):
        yield prefix
        for item in files:
            yield prefix + item.name
