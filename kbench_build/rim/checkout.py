"""Reads a checkout out of a tar stream: what is in .git, and the blob id of every other file.

Promises: one pass over the stream; nothing is unpacked under a name from the archive; memory is
bounded (objects and packs go to numbered files in a scratch folder). Leaves to others what any of
it means (`rules.seal`).
"""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, cast

from kbench_build.errors import EngineError
from kbench_build.model.repository import CheckoutFile, GitName
from kbench_build.rim.matcher import Matcher

_CHUNK = 1 << 20
_TEXT_LIMIT = 8 << 20
_KEPT_LIMIT = 4 << 20
_KEPT_IN_ALL = 64 << 20
_INDEX_LIMIT = 512 << 20


@dataclass(kw_only=True)
class CheckoutContents:
    """What one pass over a checkout found.

    `top`: what the path itself is; `git`: what stands at .git. `texts`: files in .git other than
    objects, as far as they are small; `kept`: their size. `objects`: files below .git/objects, by
    path, where they were put. `marks`: numbers of the texts that a file's first bytes hold.
    `nested`: folders below the top that are repositories themselves.
    """

    matcher: Matcher

    top: Literal["folder", "other"] = "other"
    git: Literal["folder", "absent", "other"] = "absent"
    names: list[GitName] = field(default_factory=list)
    texts: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, Path] = field(default_factory=dict)
    files: dict[str, CheckoutFile] = field(default_factory=dict)
    marks: dict[str, frozenset[int]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    kept: int = 0

    @property
    def room(self) -> int:
        """The size up to which another file of .git is kept."""
        return min(_KEPT_LIMIT, _KEPT_IN_ALL - self.kept)

    @property
    def nested(self) -> tuple[str, ...]:
        """Folders with a .git of their own, and bare repositories (HEAD, objects, refs)."""
        entries = self.files.keys() | self.folders
        own = {p.removesuffix("/.git") for p in entries if p.endswith("/.git")}
        heads = (p.removesuffix("/HEAD") for p in self.files if p.endswith("/HEAD"))
        bare = {p for p in heads if {f"{p}/objects", f"{p}/refs"} <= self.folders}
        return tuple(sorted(own | {p for p in bare if not p.endswith("/.git")}))


def read_checkout(
    stream: Iterable[bytes], scratch: Path, algorithm: str, matcher: Matcher | None = None
) -> CheckoutContents:
    """Read the tar of a folder (members below its last path component, as `docker cp` gives it).

    `algorithm` is the repository's: `sha1` or `sha256`. `matcher` searches every file outside .git.
    Raises `EngineError` for a broken stream; `FileNotFoundError` of the stream itself passes.
    """
    contents = CheckoutContents(matcher=matcher or Matcher(()))
    try:
        reader = cast(IO[bytes], _Reader(iter(stream)))
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            for member in archive:
                _take(contents, archive, member, scratch, algorithm)
    except FileNotFoundError:
        raise
    except (tarfile.TarError, EOFError, OSError) as error:
        raise EngineError(f"the checkout can't be read from the image: {error}") from error
    return contents


class _Reader:
    """Chunks as a file that can only be read on."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]


def _take(
    contents: CheckoutContents,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    scratch: Path,
    algorithm: str,
) -> None:
    _, _, path = member.name.strip("/").partition("/")
    top, _, below = path.partition("/")
    if not path:
        contents.top = "folder" if member.isdir() else "other"
    elif path == ".git":
        contents.git = "folder" if member.isdir() else "other"
    elif top == ".git":
        _take_git(contents, archive, member, below, scratch)
    elif member.isdir():
        contents.folders.add(path)
    else:
        _take_file(contents, archive, member, path, algorithm)


def _take_git(
    contents: CheckoutContents,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: str,
    scratch: Path,
) -> None:
    kind: Literal["file", "folder", "other"]
    kind = "folder" if member.isdir() else "file" if member.isreg() else "other"
    contents.names.append(GitName(path=path, kind=kind, size=member.size))
    content = archive.extractfile(member) if kind == "file" else None
    if content is None:
        return
    if path.startswith("objects/"):
        kept = scratch / str(len(contents.objects))
        contents.objects[path] = kept
        with kept.open("wb") as file:
            file.writelines(_chunks(content))
    elif path == "index" and member.size <= _INDEX_LIMIT:
        contents.texts[path] = content.read()
    elif member.size <= contents.room:
        contents.texts[path] = content.read()
        contents.kept += member.size


def _take_file(
    contents: CheckoutContents,
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: str,
    algorithm: str,
) -> None:
    content = archive.extractfile(member) if member.isreg() else None
    if member.issym():
        blob = _blob_id(algorithm, member.linkname.encode("utf-8", "surrogateescape"))
        file = CheckoutFile(path=path, mode="120000", id=blob, text_id=blob, size=0)
    elif member.islnk():
        _, _, target = member.linkname.strip("/").partition("/")
        file = _hard_link(contents, path, target)
    elif content is not None:
        file = _regular(contents, member, content, path, algorithm)
    else:
        file = CheckoutFile(path=path, mode="special", id="", text_id="", size=0)
    contents.files[path] = file


def _hard_link(contents: CheckoutContents, path: str, target: str) -> CheckoutFile:
    first = contents.files.get(target)
    if first is None:
        return CheckoutFile(path=path, mode="special", id="", text_id="", size=0)
    return CheckoutFile(
        path=path, mode=first.mode, id=first.id, text_id=first.text_id, size=0, holds=first.holds
    )


def _regular(
    contents: CheckoutContents,
    member: tarfile.TarInfo,
    content: IO[bytes],
    path: str,
    algorithm: str,
) -> CheckoutFile:
    start = content.read(_TEXT_LIMIT)
    if marks := contents.matcher.numbers(start):
        contents.marks[path] = marks
    if len(start) == member.size:
        blob = _blob_id(algorithm, start)
        text = _blob_id(algorithm, start.replace(b"\r\n", b"\n")) if b"\r\n" in start else blob
    else:
        running = _blob_hash(algorithm, member.size)
        running.update(start)
        for chunk in _chunks(content):
            running.update(chunk)
        blob = text = running.hexdigest()
    return CheckoutFile(
        path=path,
        mode="100755" if member.mode & 0o100 else "100644",
        id=blob,
        text_id=text,
        size=member.size,
        holds=_holds(start),
    )


def _holds(start: bytes) -> Literal["", "pack", "bundle"]:
    if start.startswith((b"PACK\0\0\0\2", b"PACK\0\0\0\3")):
        return "pack"
    return "bundle" if start.startswith((b"# v2 git bundle\n", b"# v3 git bundle\n")) else ""


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    while chunk := content.read(_CHUNK):
        yield chunk


def _blob_hash(algorithm: str, size: int) -> "hashlib._Hash":
    running = hashlib.new(algorithm, usedforsecurity=False)
    running.update(b"blob %d\0" % size)
    return running


def _blob_id(algorithm: str, data: bytes) -> str:
    running = _blob_hash(algorithm, len(data))
    running.update(data)
    return running.hexdigest()
