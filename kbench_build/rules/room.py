"""What builds will add to the engine's disk, and whether that fits: an estimate, not a promise.

An image that was built before is taken to grow by as much as it did then; one that wasn't, by what
images of its kind usually add in this dataset, and by what its context holds. Little is assumed
where nothing is known, so that an estimate never stops a build that might well fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Kind = Literal["base", "task"]

GIGABYTE = 10**9
# Of an image that nothing is known of: a toolchain on a distribution, and a checkout on a base.
_UNKNOWN: Mapping[Kind, int] = {"base": 200 * 10**6, "task": 20 * 10**6}
# What a context holds lies in the image, and where it is an archive in a larger form.
_UNPACKED = 2
_MARGIN = 1.1


@dataclass(frozen=True, kw_only=True)
class Due:
    """An image to build. `grown` is what it added to its base when it was last built, if known.

    `context` are the bytes of its build context.
    """

    kind: Kind
    grown: int | None
    context: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """What builds will take: the bytes, of how many images, and how many of those are guessed."""

    size: int
    images: int
    guessed: int


def needed(due: Sequence[Due], usual: Mapping[Kind, Sequence[int]]) -> Need:
    """What the builds need. `usual` is what images of each kind in this dataset added before."""
    known = [d.grown for d in due if d.grown is not None]
    guesses = [_guess(d, usual.get(d.kind, ())) for d in due if d.grown is None]
    size = _MARGIN * (sum(known) + sum(guesses))
    return Need(size=round(size), images=len(due), guessed=len(guesses))


def _guess(due: Due, usual: Sequence[int]) -> int:
    return max(int(median(usual)) if usual else _UNKNOWN[due.kind], _UNPACKED * due.context)


def shortage(need: Need, *, free: int, keep: int, folder: str) -> str:
    """Why builds shouldn't begin, empty where they may. `keep` bytes are to stay free."""
    if not need.images or need.size <= free - keep:
        return ""
    images = f"{need.images} image{'s' if need.images > 1 else ''}"
    guessed = f", {need.guessed} of them guessed" if need.guessed else ""
    return (
        f"{folder} has {in_words(free)} free, and the builds that are due need about "
        f"{in_words(need.size)} ({images}{guessed}) beside the {in_words(keep)} of "
        "engine.min_free_gb: free space with `kbench clean --images`, or lower that setting "
        "(0: don't look)"
    )


def in_words(size: float) -> str:
    """Bytes for people: `1.2 GB`, `35 MB`, `0.4 MB`."""
    if size >= GIGABYTE:
        return f"{size / GIGABYTE:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 10**7 else f"{size / 1e6:.1f} MB"
