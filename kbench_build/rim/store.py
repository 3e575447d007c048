"""Files that appear whole, the reports under `.kbench/`, and the lock on a dataset.

Promises: a reader never sees half a file, whatever kills the writer; a report's head can be read
without its data; two runs never work on one dataset at once. Leaves to others what a report means.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError
from kbench_build.model import Report
from kbench_build.rim.process import is_alive

STATE = ".kbench"
_HEAD_BYTES = 4096
_ENDING_SEC = 20.0


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write under a temporary name beside it, then rename: the file is there whole or not at all.

    A full disk or a missing permission is a `KbenchError` that names the file.
    """
    temporary = ""
    try:
        handle, temporary = _temporary(path)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(handle, mode)
        os.replace(temporary, path)  # noqa: PTH105 - called for each of thousands of reports
    except BaseException as error:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()
        if isinstance(error, OSError):
            raise KbenchError(f"{path}: can't be written: {error.strerror or error}") from error
        raise


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside the path, open for writing; the folders above come to be."""
    folder, prefix = os.fspath(path.parent), f".{path.name[:100]}."
    with suppress(FileNotFoundError):
        return tempfile.mkstemp(dir=folder, prefix=prefix)
    path.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.mkstemp(dir=folder, prefix=prefix)


@dataclass(frozen=True, kw_only=True)
class ReportHead:
    """The first line of a report: what decides whether it still holds."""

    inputs: str
    ok: bool
    summary: str
    seconds: float
    made: str


class Store:
    """One dataset's reports: `.kbench/<step>/<subject>.json`, JSON Lines of a head and its data."""

    def __init__(self, root: Path) -> None:
        """`root` is the dataset's root; nothing is touched until the first write."""
        self.root = root / STATE

    def path(self, step: str, subject: str) -> Path:
        """Where the report of a step about a subject stands."""
        return Path(self.place(step, subject))

    def place(self, step: str, subject: str) -> str:
        """The same as text, for the thousands of reports of a run that has nothing to do."""
        return f"{self.root}/{step}/{subject.replace('/', '%2F')}.json"

    def head(self, step: str, subject: str) -> ReportHead | None:
        """The head of a report; None where there is none or it can't be read."""
        try:
            descriptor = os.open(self.place(step, subject), os.O_RDONLY)
        except OSError:
            return None
        try:
            line = os.read(descriptor, _HEAD_BYTES).partition(b"\n")[0]
        finally:
            os.close(descriptor)
        return _head(line)

    def read(self, step: str, subject: str) -> Report | None:
        """A whole report; None where there is none or it can't be read."""
        try:
            head_line, _, data_line = self.path(step, subject).read_bytes().partition(b"\n")
            head, data = _head(head_line), orjson.loads(data_line)
        except (OSError, ValueError):
            return None
        if head is None or not isinstance(data, dict):
            return None
        return Report(
            step=step,
            subject=subject,
            inputs=head.inputs,
            ok=head.ok,
            summary=head.summary,
            seconds=head.seconds,
            made=head.made,
            data=data,
        )

    def write(self, report: Report) -> None:
        """Keep a report, in place of an earlier one about the same subject."""
        head = {
            "inputs": report.inputs,
            "ok": report.ok,
            "summary": report.summary[:500],
            "seconds": round(report.seconds, 3),
            "made": report.made,
        }
        body = _json_line(head) + _json_line(report.data)
        write_whole(self.path(report.step, report.subject), body)


def _json_line(value: Mapping[str, Any]) -> bytes:
    # Not orjson: ids from disk and from reports may hold lone surrogates, which it refuses.
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _head(line: bytes) -> ReportHead | None:
    try:
        value = orjson.loads(line)
        return ReportHead(
            inputs=value["inputs"],
            ok=value["ok"] is True,
            summary=value["summary"],
            seconds=float(value["seconds"]),
            made=value["made"],
        )
    except (ValueError, KeyError, TypeError):
        return None


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_gone(process: str) -> bool:
    try:
        return not is_alive(int(process))
    except (ValueError, OverflowError):
        return False


@contextmanager
def dataset_lock(root: Path, name: str = "lock") -> Iterator[None]:
    """Hold the dataset for one run. A second one gets a `KbenchError` that names the first.

    Runs whose locks have other names don't concern each other.
    """
    path = root / STATE / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise KbenchError(f"{path}: can't be opened: {error.strerror}") from error
    try:
        _hold(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _hold(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + _ENDING_SEC
    while not _is_held(descriptor):
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
        # The workers of a run that was killed hold it too, until their containers are gone.
        if not _is_gone(holder) or time.monotonic() > deadline:
            message = f"another run (process {holder}) is working on this dataset: wait for it"
            raise KbenchError(message)
        time.sleep(0.05)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        raise KbenchError(f"{path}: can't be written: {error.strerror}") from error
