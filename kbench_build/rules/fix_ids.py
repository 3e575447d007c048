"""Ids of git objects that a fix makes, and the search for them in names, texts and bytes.

Promises: an id is found whole or shortened (7 digits or more), written as text in either case or as
bytes at any offset. Leaves to others where to look, and what a hit means.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from kbench_build.rules.patches import parse_patch

_EMPTY = frozenset(
    hashlib.new(algorithm, f"{kind} 0\0".encode(), usedforsecurity=False).hexdigest()
    for algorithm in ("sha1", "sha256")
    for kind in ("blob", "tree")
)
_HEX_RUN = re.compile(rb"[0-9a-fA-F]{7,}")
_BYTES_LIMIT = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Forbidden:
    """Ids that must be nowhere.

    `after`: blobs and trees that the patches make. `prefixes`: shortened ids from patches that
    couldn't be resolved. `later`: objects of the upstream repository that the base doesn't reach.
    """

    after: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()


def post_image_ids(patch: bytes) -> frozenset[str]:
    """The blob ids after the change that a patch itself names, whole or shortened."""
    ids = (file.new_blob for file in parse_patch(patch).files)
    return frozenset(each for each in ids if each and each.strip("0"))


class FixIds:
    """Forbidden ids, ready for look-ups.

    `reachable` is what the base reaches, `own` what its own tree holds. An id in `own` is no secret
    (a fix can copy or move a file), nor is that of an empty file or folder. `in_ancestors` are ids
    that the fix makes and an ancestor of the base has had already.
    """

    def __init__(
        self, forbidden: Forbidden, *, reachable: frozenset[str], own: frozenset[str]
    ) -> None:
        """Both sets are whole ids of the length that the repository has."""
        after = forbidden.after - own - _EMPTY
        self.in_ancestors = after & reachable
        self.whole = after | (forbidden.later - reachable - _EMPTY)
        self.prefixes = frozenset(p for p in forbidden.prefixes if not _starts_any(_EMPTY, p))
        self._known = reachable
        self._ordered = sorted(self.whole)
        self._known_ordered = sorted(reachable)
        self._as_bytes = {bytes.fromhex(each) for each in self.whole}

    def __len__(self) -> int:
        """How many ids are looked for."""
        return len(self.whole) + len(self.prefixes)

    def is_blob(self, object_id: str) -> bool:
        """Whether a file with this blob id is one that the fix or later history makes."""
        if object_id in self.whole:
            return True
        return object_id not in self._known and any(map(object_id.startswith, self.prefixes))

    def named_in(self, path: str) -> bool:
        """Whether a path below .git spells an id, also as a loose object's folder and name."""
        plain = re.sub(r"^objects/([0-9a-f]{2})/", r"\1", path)
        return bool(self._in_text(plain.encode("utf-8", "surrogateescape")))

    def in_bytes(self, data: bytes) -> set[str]:
        """The ids in a file's content."""
        return self._in_text(data) | self._in_binary(data)

    def _in_text(self, data: bytes) -> set[str]:
        runs = {run.decode().lower() for run in _HEX_RUN.findall(data)}
        return {run for run in runs if self._is_named(run)} | self._in_runs(runs)

    def _in_runs(self, runs: Iterable[str]) -> set[str]:
        """Whole ids inside longer runs of digits."""
        size = len(self._ordered[0]) if self._ordered else 0
        longer = (run for run in runs if 0 < size < len(run))
        windows = (run[at : at + size] for run in longer for at in range(len(run) - size + 1))
        return {window for window in windows if window in self.whole}

    def _is_named(self, run: str) -> bool:
        if run in self.whole:
            return True
        # A shortened id that fits an object of the base as well says nothing.
        if _has_prefix(self._known_ordered, run):
            return False
        return any(map(run.startswith, self.prefixes)) or _has_prefix(self._ordered, run)

    def _in_binary(self, data: bytes) -> set[str]:
        if b"\0" not in data or not self.whole or len(data) > _BYTES_LIMIT:
            return set()
        size = len(self._ordered[0]) // 2
        windows = (data[at : at + size] for at in range(len(data) - size + 1))
        return {window.hex() for window in windows if window in self._as_bytes}


def _has_prefix(ordered: list[str], text: str) -> bool:
    at = bisect_left(ordered, text)
    return at < len(ordered) and ordered[at].startswith(text)


def _starts_any(ids: Iterable[str], prefix: str) -> bool:
    return any(each.startswith(prefix) for each in ids)
