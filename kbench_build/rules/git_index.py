"""Reads git's index file: every entry, every flag, every object id it holds.

Promises: a pure reading of bytes that may be hostile, in versions 2, 3 and 4, for SHA-1 and
SHA-256; `ValueError` with one sentence for what isn't an index. Leaves to others what the entries
should be.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FIXED = 40  # ten 32-bit numbers: times, device, inode, mode, owner, size
_ASSUME_VALID, _EXTENDED, _SKIP_WORKTREE, _INTENT_TO_ADD = 0x8000, 0x4000, 0x4000, 0x2000


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """One path: octal mode as text, object id, merge stage, and flags that hide changes."""

    path: str
    mode: str
    id: str
    stage: int
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Index:
    """A whole index: entries in order, the names of its extensions, the ids in its tree cache."""

    entries: tuple[IndexEntry, ...]
    extensions: tuple[str, ...]
    cached_trees: frozenset[str]


def parse_index(data: bytes, id_bytes: int) -> Index:
    """Parse an index whose object ids are `id_bytes` long (20 or 32)."""
    body = _checked_body(data, id_bytes)
    try:
        version, count = struct.unpack_from(">II", body, 4)
        if version not in (2, 3, 4):
            raise ValueError(f"index version {version} isn't known")
        entries, at = _entries(body, version, count, id_bytes)
        extensions = tuple(_extensions(body, at))
        trees = [
            i for name, part in extensions if name == "TREE" for i in _tree_ids(part, id_bytes)
        ]
    except (struct.error, IndexError):
        raise ValueError("the index ends in the middle") from None
    return Index(
        entries=tuple(entries),
        extensions=tuple(name for name, _ in extensions),
        cached_trees=frozenset(trees),
    )


def _checked_body(data: bytes, id_bytes: int) -> bytes:
    if not data.startswith(b"DIRC"):
        raise ValueError("no index: its first bytes aren't DIRC")
    body, checksum = data[:-id_bytes], data[-id_bytes:]
    algorithm = hashlib.sha1 if id_bytes == 20 else hashlib.sha256
    if algorithm(body, usedforsecurity=False).digest() != checksum:
        raise ValueError("the index's checksum is wrong")
    return body


def _entries(body: bytes, version: int, count: int, id_bytes: int) -> tuple[list[IndexEntry], int]:
    entries: list[IndexEntry] = []
    at, path = 12, b""
    for _ in range(count):
        start = at
        (mode,) = struct.unpack_from(">I", body, at + 24)
        object_id = body[at + _FIXED : at + _FIXED + id_bytes]
        at += _FIXED + id_bytes
        flags, more, at = _flags(body, at)
        path, at = _path(body, at, start, path, compressed=version == 4)
        entries.append(_entry(path, mode, object_id, flags, more))
    return entries, at


def _flags(body: bytes, at: int) -> tuple[int, int, int]:
    (flags,) = struct.unpack_from(">H", body, at)
    if not flags & _EXTENDED:
        return flags, 0, at + 2
    (more,) = struct.unpack_from(">H", body, at + 2)
    return flags, more, at + 4


def _path(
    body: bytes, at: int, start: int, before: bytes, *, compressed: bool
) -> tuple[bytes, int]:
    if compressed:
        drop, at = _varint(body, at)
        if drop > len(before):
            raise ValueError("an index path drops more than the path before it has")
    end = body.find(b"\0", at)
    if end < 0:
        raise ValueError("the index ends in the middle")
    if compressed:
        return before[: len(before) - drop] + body[at:end], end + 1
    # Entries are padded with 1 to 8 NULs to a multiple of eight bytes.
    return body[at:end], start + (end - start + 8) // 8 * 8


def _varint(body: bytes, at: int) -> tuple[int, int]:
    # Git's offset encoding: each continued byte stands for one more than its bits say.
    value = body[at] & 0x7F
    while body[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (body[at] & 0x7F)
    return value, at + 1


def _entry(path: bytes, mode: int, object_id: bytes, flags: int, more: int) -> IndexEntry:
    said = {
        "assume-unchanged": flags & _ASSUME_VALID,
        "skip-worktree": more & _SKIP_WORKTREE,
        "intent-to-add": more & _INTENT_TO_ADD,
    }
    return IndexEntry(
        path=path.decode("utf-8", "surrogateescape"),
        mode=f"{mode:06o}",
        id=object_id.hex(),
        stage=flags >> 12 & 3,
        flags=tuple(name for name, on in said.items() if on),
    )


def _extensions(body: bytes, at: int) -> Iterator[tuple[str, bytes]]:
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at + 4)
        if at + 8 + size > len(body):
            raise ValueError("an index extension ends after the index")
        yield body[at : at + 4].decode("latin-1"), body[at + 8 : at + 8 + size]
        at += 8 + size


def _tree_ids(part: bytes, id_bytes: int) -> Iterator[str]:
    at = 0
    while at < len(part):
        counts_at = part.index(b"\0", at) + 1
        ids_at = part.index(b"\n", counts_at) + 1
        at = ids_at
        # A negative count says that the cached tree is out of date: no id follows.
        if not part.startswith(b"-", counts_at):
            at = ids_at + id_bytes
            yield part[ids_at:at].hex()
