"""Versions of a dataset: semantic (`1.4.0`, `2.0.0-rc.1`) or dated (`2026.11.29`, `2026-11-29.2`).

What a semantic version means is computed from the changes since the release before it:

- MAJOR: a task was edited in a way that affects scores, or removed;
- MINOR: tasks were added, and nothing else that affects scores;
- PATCH: nothing that affects scores changed: metadata, or the same data packed anew.

Below 1.0.0 the numbers count one place further right, as is the custom: what calls for MAJOR needs
a raised second number, everything else a raised third one. A dated version says when, not what: it
must only move forward. A pre-release comes before its release and is never the one compared with
while a proper release is at hand.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Literal

Bump = Literal["none", "patch", "minor", "major"]

_RANK: dict[Bump, int] = {"none": 0, "patch": 1, "minor": 2, "major": 3}

_PLACES: tuple[Bump, ...] = ("major", "minor", "patch")

_NUMBER = r"(?:0|[1-9]\d{0,8})"
_SEMANTIC = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)
_DATED = re.compile(rf"(\d{{4}})([.-])(\d\d?)\2(\d\d?)(?:\.({_NUMBER}))?", re.ASCII)


class VersionError(ValueError):
    """A text is no version; the message says what is."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version. `numbers` are major, minor, patch, or year, month, day, count.

    `pre` are the dot-separated parts of a pre-release, empty for a proper release.
    """

    text: str
    dated: bool
    numbers: tuple[int, ...]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: "Version") -> bool:
        """Order of releases; a dated version is later than every semantic one."""
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        parts = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in self.pre)
        return (self.dated, self.numbers, not self.pre, parts)

    def is_later_than(self, other: "Version") -> bool:
        """Whether this version comes after the other one; another spelling of it doesn't."""
        return other < self


def parse_version(text: str) -> Version:
    """Read a version. Raises `VersionError`."""
    # Dates first: 2026.11.29 would be a semantic version too.
    dated = _DATED.fullmatch(text)
    if dated:
        return _dated(text, dated)
    semantic = _SEMANTIC.fullmatch(text)
    if not semantic:
        raise VersionError(
            f"{text!r} is no version: write MAJOR.MINOR.PATCH, like 1.4.0, "
            "or a date, like 2026.11.29"
        )
    pre = tuple((semantic[4] or "").split(".")) if semantic[4] else ()
    if any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in pre):
        raise VersionError(f"{text!r} is no version: a number can't begin with 0")
    numbers = tuple(int(semantic[i]) for i in (1, 2, 3))
    return Version(text=text, dated=False, numbers=numbers, pre=pre)


def _dated(text: str, found: re.Match[str]) -> Version:
    year, month, day = int(found[1]), int(found[3]), int(found[4])
    try:
        date(year, month, day)
    except ValueError:
        raise VersionError(f"{text!r} is no version: there is no such day") from None
    return Version(text=text, dated=True, numbers=(year, month, day, int(found[5] or 0)))


def previous_of(version: Version, released: Iterable[Version]) -> Version | None:
    """The release that a new version is compared with: the newest earlier one.

    Pre-releases only count where there is no proper release.
    """
    earlier = [v for v in released if version.is_later_than(v)]
    return max([v for v in earlier if not v.pre] or earlier, default=None)


def bump_between(old: Version, new: Version) -> Bump:
    """How far the version moved, in the meaning of the numbers. "none" if it didn't move forward.

    A dated version may hold any change, and so may what follows a pre-release or a change of kind.
    """
    if not new.is_later_than(old):
        return "none"
    if new.dated or old.dated or old.pre:
        return "major"
    place = _first_difference(old, new)
    if new.numbers[0] == 0:
        place -= 1
    return _PLACES[place]


def _first_difference(old: Version, new: Version) -> int:
    pairs = zip(old.numbers, new.numbers, strict=True)
    return next(place for place, (a, b) in enumerate(pairs) if a != b)


def least_version(old: Version, needed: Bump) -> str:
    """The lowest version that may follow `old` when the changes need this bump, as text."""
    if old.dated:
        return f"a date after {old.text}"
    major, minor, patch = old.numbers
    if major == 0 and needed == "major":
        return f"0.{minor + 1}.0"
    if major == 0 or needed in ("patch", "none"):
        return f"{major}.{minor}.{patch + 1}"
    return f"{major}.{minor + 1}.0" if needed == "minor" else f"{major + 1}.0.0"


def is_too_small(old: Version, new: Version, needed: Bump) -> bool:
    """Whether the version moved less than the changes call for."""
    return _RANK[bump_between(old, new)] < _RANK[needed]
