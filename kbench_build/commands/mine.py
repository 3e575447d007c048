"""`kbench mine`: merged pull requests of a repository become candidates for tasks."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbench_build.commands.options import FORMAT, ROOT
from kbench_build.errors import KbenchError

if TYPE_CHECKING:
    from kbench_build.steps.mine import Mined

_DATES = ["%Y-%m-%d", "%Y-%m"]


@click.command()
@click.argument("clone", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repository", metavar="OWNER/NAME", help="Default: as the clone's origin says.")
@click.option("--branch", default="", help="The branch that was merged into (default: HEAD).")
@click.option(
    "--pulls",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Pull request data, a JSON object a line, as GitHub's API or `gh pr list --json` has it.",
)
@click.option("--since", type=click.DateTime(_DATES), help="Merged on this day or later (UTC).")
@click.option("--until", type=click.DateTime(_DATES), help="Merged before this day (UTC).")
@click.option("--most", type=click.IntRange(1), help="Keep the newest N candidates.")
@click.option("--preset", default="", help="The language's patterns (default: mine.preset).")
@click.option("--dry-run", is_flag=True, help="Only show what would be kept; write nothing.")
@ROOT
@FORMAT
def mine(
    *,
    clone: Path,
    repository: str | None,
    branch: str,
    pulls: Path | None,
    since: datetime | None,
    until: datetime | None,
    most: int | None,
    preset: str,
    dry_run: bool,
    root: Path,
    style: str,
) -> None:
    """Find the merged pull requests of CLONE, a local clone, that may become tasks.

    Each is parted into the fix and its tests below mined/ in the dataset. Merge commits, squashed
    commits with (#n) and rebased ones are found; those that are left out keep their reason.
    """
    from kbench_build.rim.history import origin  # noqa: PLC0415 - only when asked for
    from kbench_build.rim.mine_config import load_mine_config  # noqa: PLC0415
    from kbench_build.rules.clone_origin import repository_of  # noqa: PLC0415
    from kbench_build.rules.path_kinds import Patterns  # noqa: PLC0415
    from kbench_build.steps import mine as step  # noqa: PLC0415

    name = repository or repository_of(origin(clone))
    if name.count("/") != 1 or not all(name.split("/")):
        raise KbenchError(f"{clone}: its origin names no repository: add --repository OWNER/NAME")
    config = load_mine_config(root, preset)
    records = step.read_pulls(pulls) if pulls else None
    for problem in records.problems if records else ():
        click.echo(f"{pulls}: line {problem.line}: {problem.message}", err=True)
    found = step.mine(
        clone,
        repository=name,
        filters=step.filters_of(config, Patterns(**config.patterns)),
        branch=branch,
        pulls=records.pulls if records else (),
        since=_seconds(since),
        until=None if until is None else (_seconds(until) or 1) - 1,
        most=most,
    )
    folder = step.folder_of(root, name)
    if not dry_run:
        step.write(found, folder)
    _show(found, name, folder, style, dry_run=dry_run)


def _seconds(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp())


def _show(found: "Mined", name: str, folder: Path, style: str, *, dry_run: bool) -> None:
    from kbench_build.rules.mine_filters import REASONS  # noqa: PLC0415

    counts = Counter(each.reason for each in found.refused)
    reasons = {reason: counts[reason] for reason in REASONS if counts[reason]}
    if style == "json":
        about = {"repository": name, "merged": found.merged, "refused": reasons}
        kept = [each.change.id for each in found.kept]
        click.echo(json.dumps({**about, "beyond": found.beyond, "candidates": kept}, indent=2))
        return
    _table(found, name, [(n, REASONS[reason]) for reason, n in reasons.items()])
    if not dry_run:
        click.echo(f"written to {folder}")


def _table(found: "Mined", name: str, left_out: list[tuple[int, str]]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid("", "", padding=(0, 1))
    table.columns[0].justify = "right"
    table.add_row(str(found.merged), "merged changes")
    for number, words in left_out:
        table.add_row(f"-{number}", words)
    if found.beyond:
        table.add_row(f"-{found.beyond}", "older than the newest that were asked for")
    table.add_row(str(len(found.kept)), "candidates", style="bold green")
    Console().print(f"[bold]{name}[/]", table, sep="\n", highlight=False)
