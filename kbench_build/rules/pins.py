"""Which environment a merged change is tried in: one can't serve a long history.

Promises: an environment's range is measured along the branch itself, so that a change that was
written early and merged late gets the environment of what it was merged into. Leaves resolving
names of commits to the rim.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kbench_build.model.repository import Commit

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """An environment and the commits of a branch, newest first, that it serves.

    It serves bases at the places `newest` to `oldest`, both included.
    """

    name: str
    newest: int
    oldest: int


def pin(
    name: str,
    *,
    start: str,
    end: str,
    line: Sequence[Commit],
    first_with: Callable[[str], int],
) -> Pin:
    """The pin of an environment that begins with one commit, tag or day, and ends before another.

    Either may be empty: from the first commit on, up to the newest. `first_with` gives the place
    of the oldest commit of the line that contains what a name means.
    """
    oldest = len(line) - 1 if not start else _place(start, line, first_with)
    newest = 0 if not end else _place(end, line, first_with) + 1
    return Pin(name=name, newest=newest, oldest=oldest)


def _place(name: str, line: Sequence[Commit], first_with: Callable[[str], int]) -> int:
    """The place of the oldest commit from a day on, or that contains a commit."""
    if not _DAY.fullmatch(name):
        return first_with(name)
    began = datetime.fromisoformat(name).replace(tzinfo=UTC).timestamp()
    # Commit times needn't run in order: a day begins with the oldest commit that reaches it.
    return max((n for n, commit in enumerate(line) if commit.committed >= began), default=-1)


def pinned(place: int, pins: Iterable[Pin]) -> str:
    """The first environment that serves the base at a place of the line, empty where none does."""
    found = (pin.name for pin in pins if pin.newest <= place <= pin.oldest)
    return next(found, "")
