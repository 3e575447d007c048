"""Digests of folders: exact when computed, nearly free when nothing changed.

`scan_tree` reads every file. `TreeIndex` remembers, for each folder, one signature over the stat
values of all its files (path, mode, size, mtime, ctime, inode) and whatever its owner derived from
the content; while the signature is the same, nothing is read. The change time catches an edit that
put size and mtime back. A file that changed within the clock's grain before the scan is not trusted
the next time.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import orjson
from blake3 import blake3

from kbench_build.errors import KbenchError
from kbench_build.model import FileEntry
from kbench_build.rim.store import STATE, write_whole

# Harbor leaves these out of a task's digest, so they are no part of a task anywhere here.
IGNORED_NAMES = frozenset({"__pycache__", ".DS_Store", ".git"})
IGNORED_ENDINGS = (".pyc", ".swp", ".swo", "~")

_CLOCK_GRAIN_NS = 50_000_000

Mode = Literal["100644", "100755", "120000"]


def ignored(name: str) -> bool:
    """Whether a file or folder of this name is left out of every tree."""
    return name in IGNORED_NAMES or name.endswith(IGNORED_ENDINGS)


def scan_tree(folder: Path) -> tuple[FileEntry, ...]:
    """Every file below the folder with its digest, sorted by path. Links are not followed."""
    entries = (_entry(path, full, status) for path, full, status in _walk(folder))
    return tuple(sorted(entries, key=lambda e: os.fsencode(e.path)))


def _walk(folder: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """(POSIX path below the folder, full path, stat) of every file, in the file system's order."""
    pending = [("", os.fspath(folder))]
    while pending:
        prefix, here = pending.pop()
        try:
            with os.scandir(here) as found:
                for item in found:
                    if ignored(item.name):
                        continue
                    if item.is_dir(follow_symlinks=False):
                        pending.append((f"{prefix}{item.name}/", item.path))
                    else:
                        yield prefix + item.name, item.path, item.stat(follow_symlinks=False)
        except OSError as error:
            raise KbenchError(f"{here}: can't be read: {error.strerror}") from error


def _entry(path: str, full: str, status: os.stat_result) -> FileEntry:
    try:
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(full))  # noqa: PTH115 - keeps odd bytes
        elif stat.S_ISREG(status.st_mode):
            with open(full, "rb", buffering=0) as file:  # noqa: PTH123 - half the cost of Path.open
                content = file.read()
        else:
            raise KbenchError(f"{full}: is neither a file, a folder nor a link")
    except OSError as error:
        raise KbenchError(f"{full}: can't be read: {error.strerror}") from error
    digest = blake3(content).hexdigest()
    return FileEntry(mode=_mode(status.st_mode), path=path, digest=digest, size=len(content))


def _mode(bits: int) -> Mode:
    if stat.S_ISLNK(bits):
        return "120000"
    return "100755" if bits & 0o111 else "100644"


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
        for line in lines:
            fields = line.split(b"\t", 2)
            if len(fields) == 3:
                self._known[os.fsdecode(fields[0])] = (fields[1].decode("ascii"), fields[2])

    def look(self, folder: str, describe: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The value of a folder (relative to the root): remembered, or described anew."""
        began = time.time_ns()
        signature, newest = self._signature(folder)
        remembered = self._known.get(folder)
        if remembered and remembered[0] == signature:
            try:
                value: Mapping[str, Any] = orjson.loads(remembered[1])
            except ValueError:
                pass
            else:
                return value
        value = describe(self._root / folder)
        trusted = signature if newest < began - _CLOCK_GRAIN_NS else "-"
        # Not orjson: names from disk may hold lone surrogates, which it refuses.
        line = json.dumps(value, separators=(",", ":")).encode("ascii")
        self._known[folder] = (trusted, line)
        self._changed = True
        return value

    def save(self, folders: frozenset[str]) -> None:
        """Keep what is known of these folders for the next run, and forget all others."""
        if not self._changed and len(self._known) == len(folders):
            return
        lines = [
            b"%s\t%s\t%s\n" % (os.fsencode(folder), signature.encode("ascii"), value)
            for folder, (signature, value) in sorted(self._known.items())
            if folder in folders and not {"\t", "\n"} & set(folder)
        ]
        write_whole(self._path, b"".join(lines))
        self._changed = False

    def _signature(self, folder: str) -> tuple[str, int]:
        """One digest over all stat values below the folder, and the newest time among them (ns)."""
        lines: list[str] = []
        newest = 0
        for path, _, s in _walk(self._root / folder):
            lines.append(
                f"{path}\0{s.st_mode} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}"
            )
            newest = max(newest, s.st_mtime_ns, s.st_ctime_ns)
        lines.sort()
        return blake3(os.fsencode("\0".join(lines))).hexdigest(length=16), newest
