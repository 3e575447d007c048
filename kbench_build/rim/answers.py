"""Answers of a forge, kept as they come in, so that a run that broke off goes on where it was.

Promises: each answer is on disk once it is kept, and a line that was cut off by a kill costs that
one answer. Answers of a run that broke off less than a day ago hold as they are; older ones, and
those of runs that ended, are to be confirmed. No token is ever among them.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError
from kbench_build.rim.store import write_whole

_DAY = 86_400
_ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An answer, by the whole address that was asked; `at` in seconds since 1970."""

    url: str
    at: float
    etag: str
    next: str
    value: Any


class Answers:
    """The answers in one file, a JSON object a line; without a file they are kept in memory."""

    def __init__(self, path: Path | None) -> None:
        """Read what is there."""
        self._path = path
        self._known: dict[str, Kept] = {}
        self._fresh: set[str] = set()
        self._used: dict[str, None] = {}
        self._open = b""
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise KbenchError(f"{path}: can't be read: {error.strerror}") from error
        # A line that was cut off must not swallow the next one.
        self._open = b"\n" if data and not data.endswith(b"\n") else b""
        for line in data.splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            value = orjson.loads(line)
            if _ENDED in value:
                self._fresh.clear()
                return
            kept = Kept(**value)
            recent = 0 <= time.time() - float(kept.at) < _DAY
        except (orjson.JSONDecodeError, TypeError, ValueError):
            return
        if not all(isinstance(text, str) for text in (kept.url, kept.etag, kept.next)):
            return
        self._known[kept.url] = kept
        if recent:
            self._fresh.add(kept.url)

    def known(self, url: str) -> Kept | None:
        """The last answer of an address, whenever that was."""
        return self._known.get(url)

    def fresh(self, url: str) -> Kept | None:
        """The answer of an address that a run that broke off got, or this one."""
        self._used[url] = None
        return self._known[url] if url in self._fresh else None

    def keep(self, kept: Kept) -> None:
        """Keep an answer, in place of an earlier one of the same address."""
        self._known[kept.url] = kept
        self._fresh.add(kept.url)
        self._used[kept.url] = None
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(self._open + orjson.dumps(asdict(kept)) + b"\n")
        except OSError as error:
            raise KbenchError(f"{self._path}: can't be written: {error.strerror}") from error
        self._open = b""

    def end(self) -> None:
        """All was asked: keep what was used, to be confirmed by the next run."""
        if self._path is None:
            return
        lines = [asdict(self._known[url]) for url in self._used if url in self._known]
        data = b"".join(orjson.dumps(each) + b"\n" for each in [*lines, {_ENDED: time.time()}])
        write_whole(self._path, data)
