"""From merged changes to tasks: how many are left after each step, and what took the others away.

Promises: every total is the one before it less the losses between them, so the rows always add up.
Leaves drawing and printing to others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a funnel: what is left (`total`), or what a reason took away (`loss`)."""

    label: str
    count: int
    kind: Literal["total", "loss"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step: what it takes away, by reason and in order, and what the rest is called then."""

    losses: Mapping[str, int]
    rest: str


def funnel(label: str, count: int, stages: Iterable[Stage]) -> tuple[Row, ...]:
    """The rows of a funnel that begins with `count` of something. Losses of none are left out."""
    return tuple(_rows(label, count, stages))


def _rows(label: str, count: int, stages: Iterable[Stage]) -> Iterator[Row]:
    yield Row(label=label, count=count, kind="total")
    for stage in stages:
        for reason, lost in stage.losses.items():
            if lost:
                yield Row(label=reason, count=lost, kind="loss")
        count -= sum(stage.losses.values())
        yield Row(label=stage.rest, count=count, kind="total")
