"""`kbench mine --run`: try the candidates, and say what came of them."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

    from kbench_build.rim.mine_config import MineConfig
    from kbench_build.rules.trial_totals import Totals
    from kbench_build.steps.try_candidates import Tried, Wish

_COLOURS = {"valid": "green", "error": "red", "nothing-ran": "yellow"}


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of it: whether all is well, and the value for JSON."""

    fine: bool
    value: Mapping[str, Any]
    show: Callable[[], None]


def tried(root: Path, clone: Path, folder: Path, *, config: "MineConfig", wish: "Wish") -> Done:
    """Try the candidates below a folder; a line for each goes to standard error.

    `show` of the result writes the totals to standard output.
    """
    from kbench_build.rules.trial_totals import totals  # noqa: PLC0415 - only when asked for

    found = _run(root, clone, folder, config, wish)
    total = totals([each.trial for each in found])
    show = partial(_show, found, total, folder)
    return Done(fine=total.fine, value=_as_json(found, total), show=show)


def _run(
    root: Path, clone: Path, folder: Path, config: "MineConfig", wish: "Wish"
) -> Sequence["Tried"]:
    from kbench_build.rim.config import load_config  # noqa: PLC0415 - only when asked for
    from kbench_build.rim.engines import connect  # noqa: PLC0415
    from kbench_build.steps.try_candidates import try_candidates  # noqa: PLC0415

    engine = connect(load_config(root).engine)
    engine.images()  # says at once where none answers
    signal.signal(signal.SIGTERM, _interrupt)
    with _Screen() as screen:
        return try_candidates(
            root,
            clone,
            folder,
            config.environments,
            engine=engine,
            wish=wish,
            began=screen.began,
            done=screen.done,
        )


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Screen:
    """A line for each candidate that ends; on a terminal also a bar below the lines."""

    def __init__(self) -> None:
        self._total = 0
        self._ended = 0
        self._progress: Progress | None = None
        self._bar: Any = None

    def __enter__(self) -> "_Screen":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def began(self, number: int) -> None:
        """So many candidates will end."""
        self._total = number
        if sys.stderr.isatty():
            self._progress, self._bar = _progress(number)

    def done(self, tried: "Tried") -> None:
        """One more has ended."""
        self._ended += 1
        if not tried.kept:
            self._say(tried)
        if self._progress:
            self._progress.advance(self._bar)

    def _say(self, tried: "Tried") -> None:
        trial = tried.trial
        line = f"{trial.outcome:<14}  {tried.id:<8}  {trial.reason}  {tried.seconds:.1f} s"
        if self._progress:
            from rich.text import Text  # noqa: PLC0415

            text = Text(line)
            text.stylize(_COLOURS.get(trial.outcome, ""), 0, len(trial.outcome))
            self._progress.console.print(text)
        else:
            click.echo(f"[{self._ended}/{self._total}] {line}", err=True)


def _progress(number: int) -> tuple["Progress", Any]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    progress = Progress(*Progress.get_default_columns(), console=console, transient=True)
    progress.start()
    return progress, progress.add_task("trying", total=number)


def _as_json(tried: Sequence["Tried"], totals: "Totals") -> Mapping[str, Any]:
    """What `--format json` says of the trials."""
    from kbench_build.rules.records import to_json  # noqa: PLC0415
    from kbench_build.rules.trial_totals import usual  # noqa: PLC0415

    new = [each for each in tried if not each.kept]
    return {
        "outcomes": dict(totals.outcomes),
        "months": to_json(totals.months),
        "drops": to_json(totals.drops),
        "kept": len(tried) - len(new),
        "seconds": {
            "median": round(usual([each.seconds for each in new]), 3),
            "median_beside_tests": round(usual([each.added for each in new]), 3),
        },
        "candidates": {
            each.id: {"outcome": each.trial.outcome, "reason": each.trial.reason} for each in tried
        },
    }


def _show(tried: Sequence["Tried"], totals: "Totals", folder: Path) -> None:
    """The same for people."""
    from rich.console import Console  # noqa: PLC0415

    from kbench_build.rules.trial_totals import alarm, mute, usual  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    new = [each for each in tried if not each.kept]
    kept = f", {len(tried) - len(new)} of them by an earlier run" if len(new) < len(tried) else ""
    console.print(f"\n[bold]{len(tried)} tried[/]{kept}")
    for line in _outcomes(totals):
        console.print(line)
    if totals.months:
        console.print("\n[bold]yield by month[/]", _months(totals), sep="\n")
    if new:
        beside = usual([each.added for each in new])
        seconds = usual([each.seconds for each in new])
        console.print(f"\nmedian {seconds:.1f} s a candidate, {beside:.1f} s beside its tests")
    for drop in totals.drops:
        console.print(f"[bold red]alarm[/] {alarm(drop)}")
    for name in mute([each.trial for each in tried]):
        one = next(each for each in tried if each.trial.environment == name)
        log = folder / one.id.removeprefix("#") / "trial.log"
        console.print(f"[bold red]alarm[/] {name}: nothing ran in any candidate: see {log}")


def _outcomes(totals: "Totals") -> Iterator["Text"]:
    from rich.text import Text  # noqa: PLC0415

    from kbench_build.rules.trials import OUTCOMES  # noqa: PLC0415

    width = len(str(max(totals.outcomes.values(), default=0)))
    for outcome, number in totals.outcomes.items():
        line = f"{number:>{width}} {outcome:<14} {OUTCOMES[outcome]}"
        yield Text(line, style=_COLOURS.get(outcome, ""))


def _months(totals: "Totals") -> Any:
    from rich.table import Table  # noqa: PLC0415

    table = Table("environment", "month", "tried", "tasks", "share", "nothing ran", box=None)
    for column in table.columns[2:]:
        column.justify = "right"
    for month in totals.months:
        share = f"{month.share:.0%}"
        numbers = (month.tried, month.valid, share, month.nothing_ran or "")
        table.add_row(month.environment, month.month, *map(str, numbers))
    return table
