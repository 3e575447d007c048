"""Measure, print the table, and with --write keep it in benchmarks/README.md."""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.figures import FIGURES, LARGE, SMALL
from benchmarks.graded import selfcheck
from benchmarks.ground import Ground
from benchmarks.mined import mining
from benchmarks.rows import Row, table
from benchmarks.scanned import content_scan
from benchmarks.tried import trial

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
# Figures that don't depend on a dataset's size.
_ONCE = {"selfcheck": selfcheck, "scan": content_scan, "mining": mining, "trial": trial}
# What reads every file takes long where there are many, and then agrees after fewer repeats.
_READING, _MOST_READING = frozenset({"digest", "cold", "checks", "release"}), 3


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    options = _options(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="kbench-benchmarks-") as temporary:
        for row in _rows(options, options.folder or Path(temporary)):
            print(" | ".join(cell for cell in row.cells() if cell), flush=True)
            rows.append(row)
    print(f"\n{_machine()}\n\n{table(rows)}")
    if options.write:
        _keep(rows)
    sys.exit(1 if any(row.holds is False for row in rows) else 0)


def _keep(rows: Sequence[Row]) -> None:
    """Renew these rows of the table in the README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    earlier, _, after = rest.partition(END)
    text = f"{_machine()}\n\n{table(rows, earlier)}"
    README.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[105, 1_000, LARGE],
        help="tasks in the generated datasets (default: 105,1000,5000; 5,000 take 5.4 GB)",
    )
    parser.add_argument(
        "--only", action="append", choices=[*FIGURES, *_ONCE], help="a figure; may repeat"
    )
    parser.add_argument("--repeats", type=int, default=7, help="of each run (default: 7)")
    parser.add_argument(
        "--folder", type=Path, help="where datasets are made and kept (default: a temporary one)"
    )
    parser.add_argument(
        "--write", action="store_true", help="renew what was measured in the table of README.md"
    )
    return parser.parse_args(arguments)


def _rows(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    wanted = options.only or [*FIGURES, *_ONCE]
    for tasks in options.sizes:
        ground = Ground(folder=folder.resolve(), tasks=tasks)
        ground.make()
        for name, figure in FIGURES.items():
            long = tasks > SMALL and name in _READING
            if name in wanted:
                yield from figure(
                    ground, min(options.repeats, _MOST_READING) if long else options.repeats
                )
    for name, once in _ONCE.items():
        if name in wanted:
            yield from once(options.repeats)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GB of memory; Python {platform.python_version()}, doit {version('doit')}."
    )


if __name__ == "__main__":
    main()
