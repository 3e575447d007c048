"""One id for one change: numbers repeat where a history holds that of another repository."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbench_build.rules.merges import Candidate


def with_own_ids(changes: Iterable["Candidate"]) -> Iterator["Candidate"]:
    """The changes, newest first; one whose id a newer one has is called by its merge commit."""
    seen: set[str] = set()
    for change in changes:
        yield change if change.id not in seen else replace(change, id=change.merge[:12])
        seen.add(change.id)
