"""Draw what became of a repository's changes: the funnel, and the yield by month.

Promises: counts what stands in `mined/` and `tasks/` now, whichever runs left it; the two files are
written whole. Leaves listing and trying changes to other steps.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.rim.mined import TRIAL
from kbench_build.rim.pictures import (
    Alarm,
    Bar,
    Column,
    Kind,
    Panel,
    funnel_picture,
    yield_picture,
)
from kbench_build.rim.store import write_whole
from kbench_build.rules.funnel import Row, Stage, funnel
from kbench_build.rules.records import FormatError, from_json
from kbench_build.rules.trial_totals import totals
from kbench_build.rules.trials import OUTCOMES, Trial
from kbench_build.rules.yields import Drop, Month

STATEMENT = "statement.json"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What a listing found: merged changes, those left out by reason, and the tasks by candidate.

    `tasks` has each candidate's folder name and where its task would be.
    """

    repository: str
    merged: int
    refused: Mapping[str, int]
    tasks: Mapping[str, Path]


def picture(folder: Path, listed: Listed, kind: Kind) -> tuple[Path, ...]:
    """Write `funnel` and `yield` below a repository's folder of candidates; where they are.

    Raises `KbenchError` where nothing can draw.
    """
    trials = {name: t for name in listed.tasks if (t := _trial(folder / name / TRIAL))}
    name = listed.repository
    total = totals(list(trials.values()))
    bars = [
        Bar(label=row.label, count=row.count, is_total=row.kind == "total")
        for row in rows(folder, listed, trials)
    ]
    drawn = {
        "funnel": funnel_picture(f"{name}: from merged changes to tasks", bars, kind),
        "yield": yield_picture(f"{name}: yield by month", panels(total.months, total.drops), kind),
    }
    places = {folder / f"{stem}.{kind}": data for stem, data in drawn.items()}
    for place, data in places.items():
        write_whole(place, data)
    return tuple(places)


def rows(folder: Path, listed: Listed, trials: Mapping[str, Trial]) -> tuple[Row, ...]:
    """The funnel, as far as the repository's changes have come."""
    stages = [Stage(losses=listed.refused, rest="candidates")]
    if trials:
        stages.append(_tried(listed.tasks, trials))
        proved = [name for name, trial in trials.items() if trial.outcome == "valid"]
        stages += _written(folder, listed.tasks, proved)
    return funnel("merged changes", listed.merged, stages)


def _tried(names: Mapping[str, Path], trials: Mapping[str, Trial]) -> Stage:
    counts = Counter(trial.outcome for trial in trials.values())
    losses = {words: counts[o] for o, words in OUTCOMES.items() if o != "valid"}
    losses["not tried yet"] = len(names) - len(trials)
    return Stage(losses=losses, rest="proved by running")


def _written(folder: Path, tasks: Mapping[str, Path], proved: Sequence[str]) -> Iterator[Stage]:
    stated = {name: _record(folder / name / STATEMENT) for name in proved}
    outcomes = {n: v.get("outcome") for n, v in stated.items() if isinstance(v, Mapping)}
    there = [name for name in proved if tasks[name].is_dir()]
    if not outcomes and not there:
        return
    kinds = {"rejected": "the statement was rejected", "draft": "the statement is a draft"}
    open_ends = [name for name in proved if name not in there]
    counts = Counter(outcomes.get(name) for name in open_ends)
    losses = {words: counts[kind] for kind, words in kinds.items()}
    losses["without a statement"] = sum(n for kind, n in counts.items() if kind is None)
    losses["not written yet"] = len(open_ends) - sum(losses.values())
    yield Stage(losses=losses, rest="tasks")


def panels(months: Sequence[Month], drops: Sequence[Drop]) -> tuple[Panel, ...]:
    """A panel for each environment, with its alarm."""
    alarms = {drop.environment: drop for drop in drops}
    names = dict.fromkeys(month.environment for month in months)
    return tuple(
        Panel(
            name=name,
            columns=tuple(_column(month) for month in months if month.environment == name),
            alarm=_alarm(alarms[name]) if name in alarms else None,
        )
        for name in names
    )


def _column(month: Month) -> Column:
    return Column(
        month=month.month, tried=month.tried, valid=month.valid, nothing_ran=month.nothing_ran
    )


def _alarm(drop: Drop) -> Alarm:
    return Alarm(first=drop.first, last=drop.last, share=drop.share, usual=drop.usual)


def _trial(path: Path) -> Trial | None:
    value = _record(path)
    try:
        return from_json(Trial, value) if value is not None else None
    except FormatError:
        return None


def _record(path: Path) -> Any:
    """The JSON value of a file; None where there is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
