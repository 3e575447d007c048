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
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

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
_SMALL = 1 << 16
# From so many folders on it takes less time to read two at once.
_MANY, _MOST_AT_ONCE = 8, 256
_SWITCH_SEC = 1e-4
# With the number of what is described: a later one holds other keys.
_MADE_BY = f"kbench-build {__version__} 3".encode("ascii")
Mode = Literal["100644", "100755", "120000"]
_LINK: Mode = "120000"
_Folder = TypeVar("_Folder")
_Seen = TypeVar("_Seen")
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
    entries = [
        _entry(f"{prefix}{below}{item.name}", item)
        for below, files in _listed(folder, without)
        for item in files
    ]
    return tuple(sorted(entries, key=lambda e: os.fsencode(e.path)))


def scan_trees(folders: Sequence[Path]) -> list[tuple[FileEntry, ...]]:
    """What `scan_tree` says of each folder."""
    return _two_at_once(scan_tree, folders)


def _two_at_once(read: Callable[[_Folder], _Seen], folders: Sequence[_Folder]) -> list[_Seen]:
    """Read each folder; where there are many, two threads do, and nothing else meanwhile."""
    if len(folders) < _MANY:
        return [read(folder) for folder in folders]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only where files changed

    interval = sys.getswitchinterval()
    # One that comes back from reading or hashing would else wait milliseconds for the other.
    sys.setswitchinterval(_SWITCH_SEC)
    pool = ThreadPoolExecutor(2)
    try:
        return list(pool.map(read, folders))
    finally:
        pool.shutdown(cancel_futures=True)
        sys.setswitchinterval(interval)


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
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        # A small file is read and hashed by one call each.
        first = os.read(descriptor, status.st_size) if status.st_size < _SMALL else b""
        content, size = blake3(first), len(first)
        # The end isn't looked for where it must be: a call less for each file.
        while size != status.st_size and (read := os.readv(descriptor, [_own.piece])):
            content.update(_own.piece[:read])
            size += read
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

    def look(
        self,
        folders: Sequence[str],
        describe: Callable[[Path, tuple[FileEntry, ...]], Mapping[str, Any]],
    ) -> Mapping[str, Mapping[str, Any]]:
        """The value of each folder (relative to the root): remembered, or described anew.

        `describe` gets the folder and its files.
        """
        values = {folder: self._recall(folder) for folder in folders}
        changed = [folder for folder, value in values.items() if value is None]
        for start in range(0, len(changed), _MOST_AT_ONCE):
            part = changed[start : start + _MOST_AT_ONCE]
            seen = _two_at_once(self._read, part)
            for folder, (names, signature, files) in zip(part, seen, strict=True):
                value = values[folder] = describe(self._root / folder, files)
                # Not orjson: names from disk may hold lone surrogates, which it refuses.
                line = json.dumps({"names": names, "value": value}, separators=(",", ":"))
                self._known[folder] = (signature, line.encode("ascii"))
        self._changed = self._changed or bool(changed)
        return {folder: value for folder, value in values.items() if value is not None}

    def _read(self, folder: str) -> tuple[Sequence[str], str, tuple[FileEntry, ...]]:
        """The names below a folder, their signature where it is to be trusted, and the files."""
        began = time.time_ns()
        names = sorted(_names(self._root / folder))
        signature, newest = self._signature(folder, names)
        trusted = signature if newest < began - _CLOCK_GRAIN_NS else "-"
        return names, trusted, scan_tree(self._root / folder)

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
