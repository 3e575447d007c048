"""Release folders on disk: written whole, read back, and the checksums of their files.

Promises: a folder appears complete or not at all, whatever interrupts the writing; its files are
read-only; an earlier release is only ever read. Leaves to others what stands in the files.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from blake3 import blake3

from kbench_build.errors import KbenchError
from kbench_build.rim.tree import ignored

DIST = "dist"
LOCK = "lock.json"
CHANGELOG = "CHANGELOG.md"
CHANGES = "changes.json"
CARD = "README.md"
B3SUMS = "B3SUMS"
SHA256SUMS = "SHA256SUMS"
TARBALL_ENDING = ".tar.zst"

_PARTIAL = ".partial"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Sums:
    """The two digests of a file, and its size."""

    blake3: str
    sha256: str
    size: int


@contextmanager
def new_release(dist: Path, folder: str) -> Iterator[Path]:
    """A temporary folder that becomes `dist/<folder>` when the block ends well.

    Otherwise it is removed, and so is what a killed run left. Its files become read-only.
    """
    try:
        dist.mkdir(parents=True, exist_ok=True)
        for leftover in dist.glob(f".*{_PARTIAL}"):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(dir=dist, prefix=f".{folder}.", suffix=_PARTIAL))
    except OSError as error:
        raise KbenchError(f"{dist}: can't be written: {error.strerror}") from error
    try:
        yield temporary
        _put_in_place(temporary, dist / folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(temporary: Path, final: Path) -> None:
    try:
        for path in temporary.iterdir():
            path.chmod(0o444)
        temporary.chmod(0o755)
        temporary.rename(final)
    except OSError as error:
        raise KbenchError(f"{final}: can't be written: {error.strerror}") from error


@contextmanager
def open_new(path: Path) -> Iterator[IO[bytes]]:
    """Open a file of a new release to write. A full disk is a `KbenchError` that names the file."""
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise KbenchError(f"{path}: can't be written: {error.strerror}") from error


def write_new(path: Path, data: bytes) -> None:
    """Write a file of a new release. A full disk is a `KbenchError` that names the file."""
    with open_new(path) as file:
        file.write(data)


def sums_of(path: Path) -> Sums:
    """Both digests of a file, in one pass."""
    ours, theirs, size = blake3(), hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                ours.update(chunk)
                theirs.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error
    return Sums(blake3=ours.hexdigest(), sha256=theirs.hexdigest(), size=size)


def locks_in(dist: Path) -> dict[Path, bytes]:
    """The lock of every release in the folder, by the release's folder."""
    try:
        folders = sorted(p for p in dist.iterdir() if p.is_dir() and not p.name.startswith("."))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KbenchError(f"{dist}: can't be read: {error.strerror}") from error
    found = {folder: read_if_there(folder / LOCK) for folder in folders}
    return {folder: data for folder, data in found.items() if data is not None}


def read_if_there(path: Path) -> bytes | None:
    """The content of a file, None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def entries_of(folder: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the files in a release folder, and of everything else in it."""
    try:
        found = [p for p in folder.iterdir() if not ignored(p.name)]
    except OSError as error:
        raise KbenchError(f"{folder}: can't be read: {error.strerror}") from error
    files = frozenset(p.name for p in found if p.is_file() and not p.is_symlink())
    return files, frozenset(p.name for p in found) - files
