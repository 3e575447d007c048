"""Tar archives on their way into and out of containers.

Promises: what goes in is a function of names, modes and bytes alone (owner root, one fixed date);
what comes out is bounded, never unpacked from a compressed form, held in memory, and only its
regular files count, so no name, link or device in it can reach anything.
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kbench_build.errors import EngineError, KbenchError
from kbench_build.model.jobs import Upload
from kbench_build.rim.tree import scan_tree

# The first moment that every archive format can hold.
FIXED_DATE = 315532800
_CHUNK = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)


def stream(members: Mapping[str, Path | bytes]) -> Iterator[bytes]:
    """A tar of files on disk and bytes, in pieces, nothing kept in memory; sorted by name."""
    for name in sorted(members):
        content = members[name]
        if isinstance(content, bytes):
            yield from _file(name, 0o644, len(content), [content])
        else:
            yield from _from_disk(name, content)
    yield _END


def pack(members: Mapping[str, bytes], folders: Iterable[str] = ()) -> bytes:
    """A tar of regular files, and of folders that anyone may write to."""
    heads = (_header(_info(f.rstrip("/"), tarfile.DIRTYPE, 0o777)) for f in folders)
    return b"".join([*heads, *stream(members)])


def pack_folder(folder: Path) -> bytes:
    """A tar of what lies below a folder; a file's run bit and links are kept."""
    return b"".join(stream({entry.path: folder / entry.path for entry in scan_tree(folder)}))


def merge(uploads: Iterable[Upload]) -> bytes:
    """Uploads as one tar to unpack at the root of a container."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as merged:
        for upload in uploads:
            with tarfile.open(fileobj=io.BytesIO(upload.archive), mode="r:") as archive:
                for member in archive:
                    _add(merged, archive, member, upload.into.strip("/"))
    return out.getvalue()


def unpack(archive: bytes) -> Mapping[str, bytes]:
    """The regular files of a tar that a container gave, below its one top folder.

    Names that climb are left out. A tar that can't be read is an `EngineError`.
    """
    files = _regular(archive)
    below = ((name.partition("/")[2], content) for name, content in files.items())
    return {name: content for name, content in below if safe(name)}


def unpack_one(archive: bytes) -> bytes:
    """The one file of a tar that a container gave; empty when it is no regular file."""
    return next(iter(_regular(archive).values()), b"")


def _regular(archive: bytes) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            # A sparse member can claim more than all the bytes there are.
            members = [m for m in tar if m.isreg() and m.size <= len(archive)]
            return {m.name.removeprefix("./"): _content(tar, m) for m in members}
    except tarfile.TarError as error:
        raise EngineError(f"the engine gave an archive that can't be read: {error}") from error


def bounded(chunks: Iterable[bytes], limit: int) -> bytes | None:
    """All chunks as one, or None when there are more than `limit` bytes."""
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            return None
        parts.append(chunk)
    return b"".join(parts)


def safe(name: str) -> bool:
    """Whether a member's name stays below the folder it is unpacked in."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/")


def _from_disk(name: str, path: Path) -> Iterator[bytes]:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            info = _info(name, tarfile.SYMTYPE, 0o777)
            info.linkname = os.readlink(path)  # noqa: PTH115 - keeps the text as it stands
            yield _header(info)
        else:
            mode = 0o755 if status.st_mode & 0o111 else 0o644
            with path.open("rb") as file:
                pieces = iter(lambda: file.read(_CHUNK), b"")
                yield from _file(name, mode, status.st_size, pieces)
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def _file(name: str, mode: int, size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    info = _info(name, tarfile.REGTYPE, mode)
    info.size = size
    yield _header(info)
    sent = 0
    for piece in pieces:
        sent += len(piece)
        yield piece
    if sent != size:
        raise KbenchError(f"{name}: changed while it was read")
    yield bytes(-size % tarfile.BLOCKSIZE)


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, FIXED_DATE
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _add(out: tarfile.TarFile, source: tarfile.TarFile, member: tarfile.TarInfo, into: str) -> None:
    """Copy one member under its new name: files, folders and symbolic links that don't climb."""
    if not (member.isreg() or member.isdir() or member.issym()) or not safe(member.name):
        return
    member.name = f"{into}/{member.name}".strip("/")
    out.addfile(member, source.extractfile(member) if member.isreg() else None)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


class Reader(io.RawIOBase):
    """Chunks as a readable stream, for `tarfile.open(fileobj=…, mode="r|")`."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        """`chunks` may be endless; they are taken as they are read."""
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        parts, missing = [], size if size >= 0 else 1 << 62
        while missing > 0:
            chunk = self._rest or next(self._chunks, b"")
            if not chunk:
                break
            parts.append(chunk[:missing])
            self._rest = chunk[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)
