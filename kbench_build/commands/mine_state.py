"""`kbench mine --statements`: give the candidates their statements, and say what came of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from kbench_build.errors import KbenchError

if TYPE_CHECKING:
    from kbench_build.rim.mine_judge import JudgeConfig
    from kbench_build.rules.issue_records import Issues
    from kbench_build.steps.mine import Parted
    from kbench_build.steps.state_candidates import Stated

_BY = {"issue": "of issues", "judge": "by the judge", "draft": "by hand"}
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of it: whether the judge was heard, the value for JSON, and lines for people."""

    fine: bool
    value: Mapping[str, Any]
    lines: tuple[str, ...]


def stated(
    clone: Path,
    folder: Path,
    repository: str,
    kept: "Sequence[Parted]",
    *,
    issues: "Issues",
    judge: "JudgeConfig | None",
    jobs: int,
    only: Sequence[str],
) -> Done:
    """State the candidates, or those of `only`; a line for each new one goes to standard error."""
    from kbench_build.rim.judge import judge_of  # noqa: PLC0415 - only when asked for
    from kbench_build.steps import state_candidates as step  # noqa: PLC0415

    stop = Event()
    stating = step.Stating(
        clone=clone,
        folder=folder,
        repository=repository,
        issues=issues,
        config=judge,
        judge=judge_of(judge, stop=stop.is_set) if judge else None,
        stop=stop,
    )
    wanted = [
        step.Wanted(
            candidate=each.change,
            fix=each.split.patch("source", "build"),
            test=each.split.patch("test"),
        )
        for each in _chosen(kept, only)
    ]
    found = []
    for number, each in enumerate(step.state(wanted, stating, jobs), start=1):
        found.append(each)
        if not each.kept:
            click.echo(f"[{number}/{len(wanted)}] {_line(each)}", err=True)
    return _done(found, folder)


def _chosen(kept: "Sequence[Parted]", only: Sequence[str]) -> "Sequence[Parted]":
    by_id = {each.change.id.removeprefix("#"): each for each in kept}
    names = [name.removeprefix("#") for name in only]
    for name in names:
        if name not in by_id:
            raise KbenchError(f"--only {name}: no such candidate")
    return [by_id[name] for name in names] if names else kept


def _line(each: "Stated") -> str:
    made = each.statement
    said = made.reason or f"{_BY[made.source]}"
    return f"{made.outcome:<9} {each.id:<8} {said}"


def _done(found: "Sequence[Stated]", folder: Path) -> Done:
    outcomes = Counter(each.statement.outcome for each in found)
    sources: Counter[str] = Counter(
        e.statement.source for e in found if e.statement.outcome == "accepted"
    )
    value = {
        "outcomes": dict(sorted(outcomes.items())),
        "accepted_from": dict(sorted(sources.items())),
        "kept": sum(each.kept for each in found),
        "candidates": {each.id: _as_json(each) for each in found},
    }
    unheard = any(not each.statement.key for each in found)
    return Done(fine=not unheard, value=value, lines=tuple(_lines(found, folder)))


def _as_json(each: "Stated") -> Mapping[str, Any]:
    made = each.statement
    return {"outcome": made.outcome, "source": made.source, "reason": made.reason}


def _lines(found: "Sequence[Stated]", folder: Path) -> list[str]:
    outcomes = Counter(each.statement.outcome for each in found)
    sources: Counter[str] = Counter(
        e.statement.source for e in found if e.statement.outcome == "accepted"
    )
    by = ", ".join(f"{sources[source]} {words}" for source, words in _BY.items() if sources[source])
    accepted = f"{outcomes['accepted']} accepted" + (f" ({by})" if by else "")
    drafts = f"{outcomes['draft']} draft" + ("s" if outcomes["draft"] != 1 else "")
    lines = [f"statements: {accepted}, {outcomes['rejected']} rejected, {drafts}"]
    open_ends = [each for each in found if each.statement.outcome != "accepted"]
    for each in open_ends[:_LISTED]:
        place = folder / each.id.removeprefix("#") / "instruction.md"
        lines.append(f"to finish {place}: {each.statement.reason}")
    if len(open_ends) > _LISTED:
        lines.append(f"and {len(open_ends) - _LISTED} more")
    return lines
