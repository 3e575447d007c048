"""What git leaves among files: repositories, packs, bundles, and the ids of objects in them.

Promises: told by names and first bytes alone; a pack's ids are read from its index, which is what
git itself would use. Leaves to others whose repository it is (`rules.leaks`).
"""

import re
from collections.abc import Iterator
from typing import Literal

from kbench_build.model.layers import GitTrace

MOST_IDS = 1_000_000
_LOOSE = re.compile(rb"(.*)/objects/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})", re.DOTALL)
_INDEX_MAGIC = b"\xfftOc\0\0\0\2"
_INDEX_HEAD = 8 + 256 * 4
_PACKS = (b"PACK\0\0\0\2", b"PACK\0\0\0\3")
_BUNDLES = (b"# v2 git bundle\n", b"# v3 git bundle\n")


_ENDS = (b"/.git", b"/HEAD", b"/objects", b"/objects/", b"/refs", b"/refs/", b"/.git/")


def is_telling(name: bytes) -> bool:
    """Whether `GitTraces` wants to know of a name. Asked of every one, so it is quick."""
    return b"/objects/" in name or name.endswith(_ENDS)


class GitTraces:
    """Collects them, name by name and file by file."""

    def __init__(self) -> None:
        """Empty."""
        self.left = 0
        self._room = MOST_IDS
        self._folders: set[bytes] = set()
        self._heads: list[bytes] = []
        self._repositories: set[bytes] = set()
        self._ids: dict[bytes, set[bytes]] = {}
        self._packs: dict[bytes, Literal["pack", "bundle"]] = {}

    def name(self, place: bytes) -> None:
        """Take note of a name; a folder's may end in a slash."""
        name = place.rstrip(b"/")
        if name.endswith((b"/objects", b"/refs")):
            self._folders.add(name)
        elif name.endswith(b"/HEAD"):
            self._heads.append(name[:-5])
            if name.endswith(b"/.git/HEAD"):
                self._repositories.add(name[:-5])
        elif name.endswith(b"/.git"):
            self._repositories.add(name)
        elif b"/objects/" in name and (loose := _LOOSE.fullmatch(name)):
            self._add(loose[1], [bytes.fromhex((loose[2] + loose[3]).decode())])

    def content(self, place: bytes, data: memoryview) -> None:
        """Take note of a file that begins like a pack, a pack's index or a bundle."""
        head = bytes(data[:16])
        if head[:8] in _PACKS:
            self._packs[place] = "pack"
        elif head.startswith(_BUNDLES):
            self._packs[place] = "bundle"
        elif head[:8] == _INDEX_MAGIC and len(data) >= _INDEX_HEAD:
            self._index(place, data)

    def traces(self) -> Iterator[GitTrace]:
        """Everything noted."""
        for place, kind in sorted(self._packs.items()):
            known = kind == "pack" and place[:-5] + b".idx" in self._ids
            if not known:
                yield _trace(place, kind, frozenset())
        for place, ids in sorted(self._ids.items()):
            yield _trace(place, "objects", frozenset(each.hex() for each in ids))
        bare = {f for f in self._heads if {f + b"/objects", f + b"/refs"} <= self._folders}
        for place in sorted(self._repositories | bare):
            yield _trace(place, "repository", frozenset())

    def _index(self, place: bytes, data: memoryview) -> None:
        count = int.from_bytes(bytes(data[_INDEX_HEAD - 4 : _INDEX_HEAD]), "big")
        # Ids, a checksum and an offset for each object, and two ids at the end.
        size = 32 if _INDEX_HEAD + count * 40 + 64 <= len(data) and _is_sha256(data, count) else 20
        if _INDEX_HEAD + count * size <= len(data):
            kept = min(count, self._room)
            self.left += count - kept
            ids = bytes(data[_INDEX_HEAD : _INDEX_HEAD + kept * size])
            self._add(place, [ids[at : at + size] for at in range(0, len(ids), size)])

    def _add(self, place: bytes, ids: list[bytes]) -> None:
        kept = ids[: self._room]
        self._room -= len(kept)
        self.left += len(ids) - len(kept)
        self._ids.setdefault(place, set()).update(kept)


def _is_sha256(data: memoryview, count: int) -> bool:
    """Whether the table of ids is in order when they are 32 bytes each, and isn't with 20."""
    end = min(count, 64)
    ids = [bytes(data[_INDEX_HEAD + n * 20 : _INDEX_HEAD + n * 20 + 20]) for n in range(end)]
    return ids != sorted(ids)


def _trace(
    place: bytes, kind: Literal["repository", "objects", "pack", "bundle"], ids: frozenset[str]
) -> GitTrace:
    return GitTrace(place=place.decode("utf-8", "surrogateescape"), kind=kind, ids=ids)
