"""What `kbench mine` left of a repository: its candidates, read back from `mined/`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError

CANDIDATES = "candidates.jsonl"
TRIAL = "trial.json"


@dataclass(frozen=True, kw_only=True)
class MinedChange:
    """A candidate: its id, where its files are, the commit before it, and when it was merged."""

    id: str
    folder: Path
    base: str
    base_tree: str
    merged: int

    def patch(self, name: str) -> bytes:
        """One of its patches. Raises `KbenchError` where it can't be read."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise KbenchError(f"{self.folder / name}: can't be read: {error.strerror}") from error


def read_candidates(folder: Path) -> tuple[MinedChange, ...]:
    """The candidates in `candidates.jsonl`, in its order. Raises `KbenchError`."""
    path = folder / CANDIDATES
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error
    return tuple(_read(path, lines))


def _read(path: Path, lines: list[bytes]) -> Iterator[MinedChange]:
    for number, line in enumerate(lines, start=1):
        try:
            yield _change(path.parent, orjson.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise KbenchError(f"{path}: line {number}: isn't a candidate: {error}") from error


def _change(folder: Path, value: Any) -> MinedChange:
    name = str(value["id"]).removeprefix("#")
    if not name.isalnum():
        raise ValueError(f"id {name[:40]!r}")
    return MinedChange(
        id=str(value["id"]),
        folder=folder / name,
        base=str(value["base"]),
        base_tree=str(value["base_tree"]),
        merged=int(value["merged"]),
    )
