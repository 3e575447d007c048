"""Release tarballs: written so that the same files always give the same bytes, read as hostile.

Writing promises: POSIX (PAX) tar, so that every name fits; regular files and links only, in the
order in which they are added; owner and group 0 without names, modes 0644 and 0755, one fixed time.
Compressed to the same bytes with every number of threads from one up (the call without threads,
which compresses otherwise, is never made): the jobs have a fixed size. Other versions of zstd may
compress otherwise, so the tar stream has a digest of its own. Files are streamed; the window and
the tables take 140 MB.

Reading promises: one pass, nothing is extracted. Only what this module would write is accepted: a
member that leaves its folder, a link that leads out of it, a device, a folder entry, an unknown
header and more bytes than the caller allows all raise `ArchiveError`, as does a damaged stream.

Which files enter, and what the digests must be, is left to the steps.
"""

import hashlib
import io
import mmap
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard
from blake3 import blake3

from kbench_build.errors import KbenchError
from kbench_build.rim.tree import Mode

FORMAT = "pax"
COMPRESSION = "zstd level 7, window_log 27, long-distance matching from 128 bytes, 8 MiB jobs"
ZSTD_VERSION = ".".join(map(str, zstandard.ZSTD_VERSION))

# 1 February 1980: in every time zone after 1 January 1980, the first day that zip can say.
MEMBER_TIME = 318_211_200

# A third of the time less than level 10, and no larger: what the tasks of a repository share is
# long, and found by long-distance matching.
_LEVEL = 7
_WINDOW_LOG = 27
_LONG_MATCH = 128
# A quarter of the default: 14 MB less for 0.2 % more output.
_LONG_HASH_LOG = 18
_JOB_BYTES = 8 << 20
# A job begins without reading what came before it: a quarter of the time less, for 2 % more
# output, since long-distance matching looks back over the whole window all the same.
_NO_OVERLAP = 1

_NAME_BYTES = 100
_LARGE = 1 << 33
# What follows a header's checksum: a regular file, no link, the format and its version.
_REST = (b"0" + bytes(100) + b"ustar\x0000").ljust(356, b"\0")
# The checksum is taken with spaces in its own place.
_REST_SUM = sum(_REST) + 8 * ord(" ")

_BLOCK = 512
_RECORD = 10_240
_CHUNK = 1 << 20
# So small that it stays in the processor's cache while it is hashed three times.
_PIECE = 1 << 17
_MOST_HEADER_BYTES = 1 << 20
_MOST_BYTES = 1 << 38
_PAX_KEYS = frozenset({"path", "linkpath", "size", "hdrcharset"})
_BITS: dict[Mode, int] = {"100644": 0o644, "100755": 0o755, "120000": 0o777}


class ArchiveError(KbenchError):
    """A tarball is damaged, or holds what a release never holds. The text names the tarball."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file of a tarball and its digests; of a link, the digests of its target's text.

    `data` is the content where the reader was asked to keep it (always that of a link).
    """

    name: str
    mode: Mode
    size: int
    blake3: str
    sha256: str
    data: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The tar stream inside a tarball, uncompressed: its BLAKE3 and its length."""

    blake3: str
    size: int


@contextmanager
def compressed(file: IO[bytes], *, threads: int = 2) -> Iterator[IO[bytes]]:
    """A stream whose bytes end up in an open file, compressed. The file is left open.

    `threads` changes the speed, never the bytes. A full disk is a `KbenchError` with the file.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        window_log=_WINDOW_LOG,
        enable_ldm=True,
        ldm_min_match=_LONG_MATCH,
        ldm_hash_log=_LONG_HASH_LOG,
        job_size=_JOB_BYTES,
        overlap_log=_NO_OVERLAP,
        threads=max(1, threads),
        write_checksum=True,
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    stream = compressor.stream_writer(_Output(file), closefd=False)  # type: ignore[arg-type]
    yield stream
    stream.close()  # type: ignore[no-untyped-call]


class _Output:
    """Where compressed bytes go, so that an error there is told from one of a file being read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            name = self._file.name
            raise KbenchError(f"{name}: can't be written: {error.strerror}") from error


class ArchiveWriter:
    """Writes one tar archive to a stream, member by member. `finish` ends it."""

    def __init__(self, stream: IO[bytes]) -> None:
        """`stream` is what `compressed` gives, or any other that can be written to."""
        self._out = stream
        self._piece = memoryview(mmap.mmap(-1, _PIECE))
        self._hash = blake3()
        self._size = 0

    def add_file(self, name: str, path: Path, mode: Mode) -> Member:
        """Add a file or a link from disk, under this name."""
        try:
            if mode == "120000":
                return self.add_data(name, os.fsencode(path.readlink()), mode)
            with path.open("rb", buffering=0) as file:
                return self._stream_file(name, file, mode, path)
        except OSError as error:
            raise KbenchError(f"{path}: can't be read: {error.strerror}") from error

    def add_data(self, name: str, data: bytes, mode: Mode = "100644") -> Member:
        """Add a file with this content, or a link with this target."""
        if mode == "120000":
            self._write(_header(name, mode, 0, os.fsdecode(data)))
        else:
            self._write(_header(name, mode, len(data)) + data + _padding(len(data)))
        return Member(
            name=name,
            mode=mode,
            size=len(data),
            blake3=blake3(data).hexdigest(),
            sha256=hashlib.sha256(data).hexdigest(),
            data=data if mode == "120000" else None,
        )

    def finish(self) -> Stream:
        """Write the end of the archive. The stream is left open."""
        end = 2 * _BLOCK
        self._write(bytes(end + -(self._size + end) % _RECORD))
        return Stream(blake3=self._hash.hexdigest(), size=self._size)

    def _stream_file(self, name: str, file: io.FileIO, mode: Mode, path: Path) -> Member:
        size = os.fstat(file.fileno()).st_size
        ours, theirs = blake3(), hashlib.sha256()
        self._write(_header(name, mode, size))
        left = size
        while read := file.readinto(self._piece):
            chunk = self._piece[:read]
            left -= read
            ours.update(chunk)
            theirs.update(chunk)
            self._write(chunk)
        if left:
            raise KbenchError(f"{path}: changed while it was read")
        self._write(_padding(size))
        return Member(
            name=name, mode=mode, size=size, blake3=ours.hexdigest(), sha256=theirs.hexdigest()
        )

    def _write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._out.write(data)


def _header(name: str, mode: Mode, size: int, link: str = "") -> bytes:
    if not link and name.isascii() and len(name) <= _NAME_BYTES and size < _LARGE:
        return _plain_header(name.encode("ascii"), _BITS[mode], size)
    info = tarfile.TarInfo(name)
    info.mode = _BITS[mode]
    info.mtime = MEMBER_TIME
    info.size = size
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _plain_header(name: bytes, bits: int, size: int) -> bytes:
    """What `tarfile` makes of a file that needs no extended header, in a fifth of the time."""
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (bits, 0, 0, size, MEMBER_TIME)
    head = name.ljust(_NAME_BYTES, b"\0") + numbers
    return head + b"%06o\0 " % (sum(head) + _REST_SUM) + _REST


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def read_archive(
    path: Path,
    *,
    keep: Callable[[str], bool] = lambda _: False,
    most_bytes: int = _MOST_BYTES,
) -> Iterator[Member | Stream]:
    """Every member of a tarball in order, with its digests, and the stream's own at the end.

    `keep` says of which members the content (at most 1 MiB) is wanted. `most_bytes` is the longest
    stream that is read. Raises `ArchiveError`.
    """
    try:
        with path.open("rb") as file:
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
            reader = decompressor.stream_reader(file, read_across_frames=True)
            yield from _Reader(reader, path.name, keep, most_bytes).members()
    except zstandard.ZstdError as error:
        raise ArchiveError(f"{path.name}: is damaged: {error}") from error
    except OSError as error:
        raise ArchiveError(f"{path.name}: can't be read: {error.strerror}") from error


class _Reader:
    """Reads one tar stream: what `ArchiveWriter` writes, and nothing else."""

    def __init__(
        self, file: IO[bytes], name: str, keep: Callable[[str], bool], most_bytes: int
    ) -> None:
        self._file = file
        self._name = name
        self._keep = keep
        self._left = most_bytes
        self._hash = blake3()
        self._size = 0
        self._links: set[str] = set()

    def members(self) -> Iterator[Member | Stream]:
        pax: dict[str, str] = {}
        while any(block := self._read(_BLOCK)):
            info = self._parse(block)
            if info.type == tarfile.XHDTYPE:
                pax = self._pax(info.size)
                continue
            yield self._member(info, pax)
            pax = {}
        self._end()
        yield Stream(blake3=self._hash.hexdigest(), size=self._size)

    def _parse(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise self._error(f"is damaged after {self._size - _BLOCK} bytes: {error}") from error

    def _member(self, info: tarfile.TarInfo, pax: dict[str, str]) -> Member:
        name = pax.get("path", info.name)
        self._check_name(name)
        if info.type == tarfile.SYMTYPE:
            return self._link(name, pax.get("linkpath", info.linkname))
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise self._error(f"{_shown(name)} is neither a file nor a link")
        mode: Mode = "100755" if info.mode & 0o111 else "100644"
        return self._file_member(name, mode, self._file_size(info, pax))

    def _file_size(self, info: tarfile.TarInfo, pax: dict[str, str]) -> int:
        size = pax.get("size")
        if size is None:
            return info.size
        if not (size.isascii() and size.isdigit() and len(size) <= 15):
            raise self._error("holds a header with a size that is no number")
        return int(size)

    def _link(self, name: str, target: str) -> Member:
        self._links.add(name)
        if leads_out(name, target):
            raise self._error(f"the link {_shown(name)} leads out, to {_shown(target)}")
        data = os.fsencode(target)
        return Member(
            name=name,
            mode="120000",
            size=len(data),
            blake3=blake3(data).hexdigest(),
            sha256=hashlib.sha256(data).hexdigest(),
            data=data,
        )

    def _file_member(self, name: str, mode: Mode, size: int) -> Member:
        ours, theirs = blake3(), hashlib.sha256()
        kept: list[bytes] | None = [] if size <= _CHUNK and self._keep(name) else None
        for chunk in self._chunks(size):
            ours.update(chunk)
            theirs.update(chunk)
            if kept is not None:
                kept.append(chunk)
        self._read(-size % _BLOCK)
        return Member(
            name=name,
            mode=mode,
            size=size,
            blake3=ours.hexdigest(),
            sha256=theirs.hexdigest(),
            data=None if kept is None else b"".join(kept),
        )

    def _chunks(self, size: int) -> Iterator[bytes]:
        while size > 0:
            chunk = self._read(min(size, _CHUNK))
            size -= len(chunk)
            yield chunk

    def _pax(self, size: int) -> dict[str, str]:
        """The records of an extended header: `length SP key=value LF`."""
        if size > _MOST_HEADER_BYTES:
            raise self._error("holds a header that is too long")
        data = self._read(size)
        self._read(-size % _BLOCK)
        found: dict[str, str] = {}
        while data:
            length, _, _ = data.partition(b" ")
            number = int(length) if length.isdigit() and len(length) <= 7 else 0
            key, mark, value = data[len(length) + 1 : number].partition(b"=")
            if not mark or not value.endswith(b"\n") or key.decode("latin-1") not in _PAX_KEYS:
                raise self._error("holds a header that no release has")
            found[key.decode("ascii")] = value[:-1].decode("utf-8", "surrogateescape")
            data = data[number:]
        return found

    def _end(self) -> None:
        """After the first empty block: nothing but zeros."""
        while chunk := self._read_some(_CHUNK):
            if any(chunk):
                raise self._error("holds data after its end")

    def _read(self, size: int) -> bytes:
        """Exactly so many bytes."""
        parts: list[bytes] = []
        while size > 0:
            part = self._read_some(size)
            if not part:
                raise self._error(f"is cut off: it ends after {self._size} bytes of tar")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._error("unpacks to more bytes than a release of these files has")
        self._hash.update(data)
        self._size += len(data)
        return data

    def _check_name(self, name: str) -> None:
        parts = name.split("/")
        if len(parts) < 2 or any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise self._error(f"a member's name leaves its folder: {_shown(name)}")
        if self._links and any("/".join(parts[:n]) in self._links for n in range(1, len(parts))):
            raise self._error(f"the member {_shown(name)} lies behind a link")

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(f"{self._name}: {message}")


def leads_out(name: str, target: str) -> bool:
    """Whether a link of this name leads out of the tarball's one folder.

    `..` may only stand at the front of the target: after a name that is itself a link it would
    lead elsewhere than it reads.
    """
    parts = target.split("/")
    up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    depth = name.count("/") - 1
    return up > depth or not {"", ".."}.isdisjoint(parts[up:]) or "\0" in target


def _shown(text: str) -> str:
    return repr(text[:200])
