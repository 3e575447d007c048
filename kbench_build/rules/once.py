"""What several checks ask of one task, worked out once: they ask one after the other."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_Facts = TypeVar("_Facts")
_Answer = TypeVar("_Answer")


def once(make: Callable[[_Facts], _Answer]) -> Callable[[_Facts], _Answer]:
    """Remember the answer for the facts that were asked about last; it isn't to be changed."""
    last: list[tuple[_Facts, _Answer]] = []

    @wraps(make)
    def asked(facts: _Facts) -> _Answer:
        if not last or last[0][0] is not facts:
            last[:] = [(facts, make(facts))]
        return last[0][1]

    return asked
