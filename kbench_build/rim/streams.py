"""Unpacks compressed files in pieces: gzip, bzip2, xz and zstandard.

Promises: never more in memory than a piece and a bounded window; a broken stream is `UnreadError`.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator

import zstandard

from kbench_build.rim.zip_members import PIECE, UnreadError, inflated

_MOST_MEMORY = 256 << 20


def kind_of(head: bytes) -> str:
    """The kind of a compressed file by its first four bytes; empty for any other file."""
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if head[:3] == b"BZh":
        return "bzip2"
    return {b"\xfd7zX": "xz", b"(\xb5/\xfd": "zstandard"}.get(head, "")


def pieces(kind: str, data: memoryview) -> Iterator[bytes]:
    """What a compressed file holds. Raises `UnreadError`."""
    try:
        yield from _KINDS[kind](data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, ValueError):
        raise UnreadError("compressed files that are damaged") from None


def _gzip(data: memoryview) -> Iterator[bytes]:
    """One member after another; padding may follow the last."""
    at = 0
    while bytes(data[at : at + 2]) == b"\x1f\x8b":
        inflater = zlib.decompressobj(31)
        at += yield from inflated(data[at:], inflater)
        if not inflater.eof:
            raise EOFError


def _zstandard(data: memoryview) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY // 2)
    with unpacker.stream_reader(data, read_across_frames=True) as file:
        while piece := file.read(PIECE):
            yield piece


def _bzip2(data: memoryview) -> Iterator[bytes]:
    return _fed(data, bz2.BZ2Decompressor)


def _xz(data: memoryview) -> Iterator[bytes]:
    return _fed(data, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY))


def _fed(
    data: memoryview, new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
) -> Iterator[bytes]:
    """One stream after another; each is given its input bit by bit, or it would keep a copy."""
    unpacker, at = new(), 0
    while at < len(data) or not unpacker.needs_input:
        fresh = data[at : at + PIECE] if unpacker.needs_input else memoryview(b"")
        at += len(fresh)
        yield unpacker.decompress(fresh, PIECE)
        if unpacker.eof:
            at -= len(unpacker.unused_data)
            if not bytes(data[at : at + 4]).strip(b"\0"):
                return
            unpacker = new()
    if not unpacker.eof:
        raise EOFError


_KINDS: dict[str, Callable[[memoryview], Iterator[bytes]]] = {
    "gzip": _gzip,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstandard": _zstandard,
}
