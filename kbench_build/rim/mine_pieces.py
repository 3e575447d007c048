"""`[mine.emit]` and `[[mine.change]]` of `kbench.toml`: what a written `task.toml` is to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.config import CONFIG

_SECTIONS = frozenset({"task", "metadata", "environment", "agent", "verifier", "solution"})
_CHANGE = "change"

Piece = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Pieces of `task.toml`: for every task, and for single changes (by `owner/name#number`)."""

    every: Piece = field(default_factory=dict)
    changes: Mapping[str, Piece] = field(default_factory=dict)

    def of(self, repository: str, change: str) -> tuple[Piece, ...]:
        """The pieces of one change, the one that counts most last. `change` is `#7` or an id."""
        name = f"{repository}{change}" if change.startswith("#") else f"{repository}#{change}"
        return tuple(piece for piece in (self.every, self.changes.get(name)) if piece)


def read_pieces(every: Any, changes: Any) -> Pieces:
    """Both tables. Raises `KbenchError` with the place."""
    _sections(every, "mine.emit")
    if not isinstance(changes, list):
        raise _wrong("mine.change", "must be written as [[mine.change]] tables")
    found: dict[str, Piece] = {}
    for index, table in enumerate(changes):
        path = f"mine.change[{index}]"
        name = table.get(_CHANGE) if isinstance(table, Mapping) else None
        if not isinstance(name, str) or name.count("#") != 1 or name.count("/") != 1:
            raise _wrong(f"{path}.{_CHANGE}", "must name a change as owner/name#number")
        if name in found:
            raise _wrong(f"{path}.{_CHANGE}", f"{name!r} stands there already")
        found[name] = {key: value for key, value in table.items() if key != _CHANGE}
        _sections(found[name], path)
    return Pieces(every=every, changes=found)


def _sections(piece: Any, path: str) -> None:
    if not isinstance(piece, Mapping):
        raise _wrong(path, "must be a table")
    for key, value in piece.items():
        if key not in _SECTIONS:
            known = ", ".join(sorted(_SECTIONS))
            raise _wrong(f"{path}.{key}", f"is no table of task.toml; known are {known}")
        if not isinstance(value, Mapping):
            raise _wrong(f"{path}.{key}", "must be a table")


def _wrong(path: str, message: str) -> KbenchError:
    return KbenchError(f"{CONFIG}: {path}: {message}")
