"""Lines of the table, and the table."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.processes import Sample

_HEAD = ("figure", "tasks", "measured", "yardstick", "figure is", "of the best", "limit", "holds")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure, as text; `holds` is None where no limit is set at this size."""

    what: str
    tasks: int
    measured: str
    yardstick: str = ""
    value: str
    best: str = ""
    limit: str = ""
    holds: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """The row's cells, in the table's order; the first two say which figure it is."""
        holds = {True: "yes", False: "**no**", None: ""}[self.holds]
        tasks = f"{self.tasks:,}" if self.tasks else ""
        return (
            *(self.what, tasks, self.measured, self.yardstick),
            *(self.value, self.best, self.limit, holds),
        )


def ratio(
    what: str, tasks: int, ours: Sample, theirs: Sample, *, to: str, limit: float | None
) -> Row:
    """Seconds against a yardstick's seconds: at most so many times as many."""
    value = ours.median / theirs.median
    return Row(
        what=what,
        tasks=tasks,
        measured=_seconds(ours.median),
        yardstick=f"{to}: {_seconds(theirs.median)}",
        value=f"{value:.2f} times",
        best=f"{ours.best / theirs.best:.2f} times",
        limit="" if limit is None else f"≤ {limit:g} times",
        holds=None if limit is None else value <= limit,
    )


def speed(
    what: str, tasks: int, ours: Sample, theirs: Sample, *, size: int, to: str, limit: float | None
) -> Row:
    """Bytes a second against a yardstick's: at least so many times as fast."""
    value = theirs.median / ours.median
    return Row(
        what=what,
        tasks=tasks,
        measured=f"{size / ours.median / 1e9:.2f} GB/s",
        yardstick=f"{to}: {size / theirs.median / 1e9:.2f} GB/s",
        value=f"{value:.2f} times",
        best=f"{theirs.best / ours.best:.2f} times",
        limit="" if limit is None else f"≥ {limit:g} times",
        holds=None if limit is None else value >= limit,
    )


def sizes(what: str, tasks: int, ours: int, theirs: int, *, to: str, limit: float | None) -> Row:
    """Bytes against a yardstick's: at most so many times as many."""
    value = ours / theirs
    return Row(
        what=what,
        tasks=tasks,
        measured=f"{ours / 1e6:.2f} MB",
        yardstick=f"{to}: {theirs / 1e6:.2f} MB",
        value=f"{value:.2f} times",
        limit="" if limit is None else f"≤ {limit:g} times",
        holds=None if limit is None else value <= limit,
    )


def at_most(
    what: str,
    tasks: int,
    value: float,
    limit: float | None,
    *,
    unit: str = "",
    measured: str = "",
    yardstick: str = "",
) -> Row:
    """A figure without a ratio."""
    shown = f"{value:.3g} {unit}".strip()
    return Row(
        what=what,
        tasks=tasks,
        measured=measured or shown,
        yardstick=yardstick,
        value=shown,
        limit="" if limit is None else f"≤ {limit:g} {unit}".strip(),
        holds=None if limit is None else value <= limit,
    )


def table(rows: Iterable[Row], earlier: str = "") -> str:
    """The rows as Markdown; those of an earlier table that weren't measured again are kept."""
    known = {cells[:2]: cells for cells in _cells_of(earlier)}
    known |= {row.cells()[:2]: row.cells() for row in rows}
    ordered = sorted(known.values(), key=lambda cells: int(cells[1].replace(",", "") or 10**9))
    lines = [_HEAD, ("---",) * len(_HEAD), *ordered]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cells_of(text: str) -> Iterable[tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(line[2:-2].split(" | ")) for line in lines[2:]]


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
