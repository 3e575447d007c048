"""`kbench mine`: merged pull requests of a repository become candidates for tasks."""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbench_build.commands import mine_run, mine_state
from kbench_build.commands.mine_emit import check_pictures, draw, emit_tasks
from kbench_build.commands.mine_github import Forge, Window
from kbench_build.commands.options import FORMAT, ROOT
from kbench_build.errors import KbenchError

if TYPE_CHECKING:
    from kbench_build.rim.pictures import Kind
    from kbench_build.steps.mine import Mined

_DATES = ["%Y-%m-%d", "%Y-%m"]


@click.command(short_help="Find merged pull requests, and make tasks of them.")
@click.argument("clone", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repository", metavar="OWNER/NAME", help="Default: as the clone's origin says.")
@click.option("--branch", default="", help="The branch that was merged into (default: HEAD).")
@click.option(
    "--pulls",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Pull request data, a JSON object a line, as GitHub's API or `gh pr list --json` has it.",
)
@click.option("--github", is_flag=True, help="Ask GitHub's API (GITHUB_TOKEN, GITHUB_API_URL).")
@click.option(
    "--issues",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Issues' texts, a JSON object a line, as `gh issue list --json` has it.",
)
@click.option("--since", type=click.DateTime(_DATES), help="Merged on this day or later (UTC).")
@click.option("--until", type=click.DateTime(_DATES), help="Merged before this day (UTC).")
@click.option("--most", type=click.IntRange(1), help="Keep the newest N candidates.")
@click.option("--preset", default="", help="The language's patterns (default: mine.preset).")
@click.option("--emit", is_flag=True, help="Write tasks of what is proved and has a statement.")
@click.option("--force", is_flag=True, help="Also replace tasks that differ.")
@click.option(
    "--pictures",
    type=click.Choice(["svg", "png"]),
    help="Draw the funnel and the yield by month beside the candidates.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be kept; write nothing.")
@click.option("--run", "try_them", is_flag=True, help="Run their tests, before and after the fix.")
@click.option("--runs", type=click.IntRange(1), default=1, help="Runs of each state (default: 1).")
@click.option("-n", "jobs", type=click.IntRange(1), default=1, help="Try N at once (default: 1).")
@click.option("--only", multiple=True, metavar="ID", help="Only this one; may be given again.")
@click.option("--statements", is_flag=True, help="Give them statements: an issue's, a judge's.")
@ROOT
@FORMAT
def mine(
    *,
    clone: Path,
    repository: str | None,
    branch: str,
    pulls: Path | None,
    github: bool,
    issues: Path | None,
    since: datetime | None,
    until: datetime | None,
    most: int | None,
    preset: str,
    emit: bool,
    force: bool,
    pictures: "Kind | None",
    dry_run: bool,
    try_them: bool,
    runs: int,
    jobs: int,
    only: tuple[str, ...],
    statements: bool,
    root: Path,
    style: str,
) -> None:
    """Find the merged pull requests of CLONE, a local clone, that may become tasks.

    Each is parted into the fix and its tests below mined/ in the dataset. Merge commits, squashed
    commits with (#n) and rebased ones are found; those that are left out keep their reason.

    With --run their tests are run in the images of [[mine.environment]] in kbench.toml; what came
    of one that was tried stands until something that decided it changes. With --statements each
    gets its statement: the linked issue's text, that of [mine.judge], or a draft to finish. With
    --emit those that are proved and have a statement become tasks. Exit 1: one couldn't be tried,
    the judge wasn't heard, an environment's yield drops sharply, or a task that is there differs.
    """
    from kbench_build.rim.mine_config import load_mine_config  # noqa: PLC0415 - only when asked for
    from kbench_build.rim.store import dataset_lock  # noqa: PLC0415
    from kbench_build.rules.path_kinds import Patterns  # noqa: PLC0415
    from kbench_build.steps import mine as step  # noqa: PLC0415

    if dry_run and (try_them or statements):
        flag = "--run" if try_them else "--statements"
        raise click.UsageError(f"--dry-run writes nothing, {flag} keeps what it finds: give one")
    check_pictures(pictures)
    name = _name_of(clone, repository)
    config = load_mine_config(root, preset, name)
    folder = step.folder_of(root, name)
    if not dry_run:
        lock = dataset_lock(root, f"{folder.name}.lock")
        click.get_current_context().with_resource(lock)
    window = Window(
        branch=branch,
        since=_seconds(since),
        until=None if until is None else (_seconds(until) or 1) - 1,
    )
    forge = Forge(
        clone,
        folder,
        name,
        window=window,
        files=(pulls, issues),
        ask=github,
        keep=not dry_run,
    )
    found = step.mine(
        clone,
        repository=name,
        filters=step.filters_of(config, Patterns(**config.patterns)),
        branch=branch,
        pulls=forge.pulls(),
        since=window.since,
        until=window.until,
        most=most,
    )
    texts = forge.issues(each.change for each in found.kept)
    if not dry_run:
        step.write(found, folder)
    about = {**_as_json(found, name), "problems": list(forge.problems)}
    if style == "text":
        _table(found, name)
        if not dry_run:
            click.echo(f"written to {folder}")
    fine = True
    if try_them:
        from kbench_build.steps.try_candidates import Wish  # noqa: PLC0415

        wish = Wish(branch=branch, runs=runs, jobs=jobs, only=only)
        done = mine_run.tried(root, clone, folder, config=config, wish=wish)
        fine, about["trials"] = done.fine, done.value
        if style == "text":
            done.show()
    if statements:
        told = mine_state.stated(
            clone,
            folder,
            name,
            found.kept,
            issues=texts,
            judge=config.judge,
            jobs=jobs,
            only=only,
        )
        fine, about["statements"] = fine and told.fine, told.value
        _say(told.lines, style)
    if emit:
        emitted = emit_tasks(
            root,
            repository=name,
            clone=clone,
            folder=folder,
            kept=found.kept,
            only=only,
            config=config,
            force=force,
            dry_run=dry_run,
        )
        fine, about["emitted"] = fine and not emitted.open_ends, emitted.value
        _say(emitted.lines, style)
    drawn = draw(root, folder, found, name, None if dry_run else pictures)
    click.echo(json.dumps(about, indent=2) + "\n" if style == "json" else drawn, nl=False)
    sys.exit(0 if fine else 1)


def _name_of(clone: Path, given: str | None) -> str:
    from kbench_build.rim.history import origin  # noqa: PLC0415 - only when asked for
    from kbench_build.rules.clone_origin import repository_of  # noqa: PLC0415

    name = given or repository_of(origin(clone))
    if name.count("/") != 1 or not all(name.split("/")):
        raise KbenchError(f"{clone}: its origin names no repository: add --repository OWNER/NAME")
    return name


def _say(lines: Iterable[str], style: str) -> None:
    if style == "text":
        click.echo("\n".join(lines))


def _seconds(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp())


def _refused(found: "Mined") -> dict[str, int]:
    from kbench_build.rules.mine_filters import REASONS  # noqa: PLC0415

    counts = Counter(each.reason for each in found.refused)
    return {reason: counts[reason] for reason in REASONS if counts[reason]}


def _as_json(found: "Mined", name: str) -> dict[str, Any]:
    about = {"repository": name, "merged": found.merged, "refused": _refused(found)}
    kept = [each.change.id for each in found.kept]
    return {**about, "beyond": found.beyond, "candidates": kept}


def _table(found: "Mined", name: str) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from kbench_build.rules.mine_filters import REASONS  # noqa: PLC0415

    table = Table.grid("", "", padding=(0, 1))
    table.columns[0].justify = "right"
    table.add_row(str(found.merged), "merged changes")
    for reason, number in _refused(found).items():
        table.add_row(f"-{number}", REASONS[reason])
    if found.beyond:
        table.add_row(f"-{found.beyond}", "older than the newest that were asked for")
    table.add_row(str(len(found.kept)), "candidates", style="bold green")
    Console().print(f"[bold]{name}[/]", table, sep="\n", highlight=False)
