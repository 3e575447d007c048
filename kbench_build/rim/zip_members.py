"""The members of a zip that lies in memory, one after another, each unpacked in pieces.

Promises: the list of members is never held as a whole, and a member is never unpacked further than
asked, so that millions of entries, overlapping ones and bombs cost what the caller allows; anything
else than stored and deflated members is `UnreadError`. Jars, wheels and the JDK's jmods are zips.
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

PIECE = 1 << 20
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_ENCRYPTED = 1
_STORED, _DEFLATED = 0, 8


class UnreadError(Exception):
    """Something packed can't be read, or isn't read any further; its text is the reason."""


class ZipMember(NamedTuple):
    """One entry of the directory. `start` is where its own header lies."""

    name: bytes
    flags: int
    method: int
    packed: int
    size: int
    start: int


def members(data: memoryview) -> Iterator[ZipMember]:
    """Every entry of the directory at a zip's end. Raises `UnreadError`."""
    at, end, before = _directory(data)
    while at + _ENTRY.size <= end:
        entry = _ENTRY.unpack_from(data, at)
        if entry[0] != b"PK\1\2":
            return
        name_size, extra_size, comment_size = entry[10:13]
        name_at = at + _ENTRY.size
        name = bytes(data[name_at : name_at + name_size])
        packed, size, start = entry[8], entry[9], entry[16]
        if 0xFFFFFFFF in (packed, size, start):
            extra = bytes(data[name_at + name_size : name_at + name_size + extra_size])
            packed, size, start = _large(extra, packed, size, start)
        yield ZipMember(name, entry[3], entry[4], packed, size, start + before)
        at = name_at + name_size + extra_size + comment_size


def pieces(data: memoryview, member: ZipMember) -> Iterator[bytes]:
    """A member's content. Raises `UnreadError`."""
    if member.flags & _ENCRYPTED:
        raise UnreadError("encrypted members of archives")
    head = bytes(data[member.start : member.start + 30])
    if len(head) < 30 or head[:4] != b"PK\3\4":
        raise UnreadError("archives that are damaged")
    start = member.start + 30 + sum(struct.unpack_from("<2H", head, 26))
    packed = data[start : start + member.packed]
    if member.method == _STORED:
        yield from (bytes(packed[at : at + PIECE]) for at in range(0, len(packed), PIECE))
    elif member.method == _DEFLATED:
        try:
            yield from inflated(packed, zlib.decompressobj(-15))
        except zlib.error as error:
            raise UnreadError("archives that are damaged") from error
    else:
        raise UnreadError("members of archives packed in rare ways")


def inflated(packed: memoryview, inflater: "zlib._Decompress") -> Generator[bytes, None, int]:
    """What comes out of packed bytes, in pieces, up to the end of the stream in them.

    Returns how many of the bytes belong to it. Raises `zlib.error`.
    """
    at = 0
    pending: bytes | memoryview = b""
    while not inflater.eof:
        if not pending:
            pending = packed[at : at + PIECE]
            at += len(pending)
        ended = not pending
        piece = inflater.decompress(pending, PIECE)
        pending = inflater.unconsumed_tail
        if piece:
            yield piece
        elif ended:
            break
    return at - len(inflater.unused_data)


def _directory(data: memoryview) -> tuple[int, int, int]:
    """Where the directory begins and ends, and how many bytes stand before the zip itself."""
    tail_at = max(0, len(data) - 65_557)
    found = bytes(data[tail_at:]).rfind(b"PK\5\6")
    if found < 0 or tail_at + found + _END.size > len(data):
        raise UnreadError("archives that are damaged")
    end = tail_at + found
    fields = _END.unpack_from(data, end)
    size, offset = fields[5], fields[6]
    if 0xFFFFFFFF in (size, offset) or fields[4] == 0xFFFF:
        size, offset, end = _directory_64(data, end, size, offset)
    start = end - size
    if start < 0 or start < offset:
        raise UnreadError("archives that are damaged")
    return start, end, start - offset


def _directory_64(data: memoryview, end: int, size: int, offset: int) -> tuple[int, int, int]:
    """The same from the end record for large zips, where there is one."""
    locator = bytes(data[max(0, end - 20) : end])
    at = end - 20 - _END_64.size
    if locator[:4] != b"PK\6\7" or at < 0 or bytes(data[at : at + 4]) != b"PK\6\6":
        return size, offset, end
    fields = _END_64.unpack_from(data, at)
    return fields[8], fields[9], at


def _large(extra: bytes, packed: int, size: int, start: int) -> tuple[int, int, int]:
    """Numbers that need 64 bits stand in an extra field, in this order, those that are needed."""
    values = [size, packed, start]
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = at + 4
            for number, value in enumerate(values):
                if value == 0xFFFFFFFF and field + 8 <= min(len(extra), at + 4 + length):
                    values[number] = struct.unpack_from("<Q", extra, field)[0]
                    field += 8
            break
        at += 4 + length
    return values[1], values[0], values[2]
