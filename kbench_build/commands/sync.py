"""`kbench sync`: renew what all tasks share."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from kbench_build.commands.options import ROOT, UPSTREAM, check_tasks

# What is said of so many tasks or more is said once.
_TOGETHER = 3


@click.command(short_help="Renew the files that all tasks share.")
@click.argument("tasks", nargs=-1)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file differs.")
@click.option(
    "--repository",
    type=click.Path(exists=True, path_type=Path),
    help="A repository or bundle that holds the base commits (default: the generated bundles).",
)
@UPSTREAM
@ROOT
def sync(
    tasks: tuple[str, ...],
    check: bool,
    repository: Path | None,
    upstream: Path | None,
    root: Path,
) -> None:
    """Renew the files that all tasks share, and what verify.json takes from upstream.

    TASKS are ids; without one, every task of the dataset.
    """
    from kbench_build.rim.dataset import open_dataset  # noqa: PLC0415
    from kbench_build.steps.sync import sync as renew  # noqa: PLC0415

    dataset = open_dataset(root)
    check_tasks(tasks, dataset.tasks)
    mirrors = str(upstream.absolute()) if upstream else dataset.config.mirrors
    chosen = tasks or dataset.tasks
    done = renew(root, chosen, check=check, repository=repository, mirrors=mirrors)
    for result in done:
        for path in result.changed:
            click.echo(f"{'differs' if check else 'written'}  tasks/{result.task}/{path}")
        for finding in result.findings:
            click.echo(f"{finding.severity:<8} {finding}")
    _show_notes([(result.task, result.note) for result in done if result.note])
    changed = sum(bool(result.changed) for result in done)
    click.echo(f"{changed} of {len(done)} tasks {'differ' if check else 'renewed'}")
    problems = any(f.severity == "error" for result in done for f in result.findings)
    sys.exit(1 if problems or (check and changed) else 0)


def _show_notes(notes: Sequence[tuple[str, str]]) -> None:
    """The notes, what is said of three tasks or more in one line."""
    counts = Counter(note for _, note in notes)
    for task, note in notes:
        if counts[note] < _TOGETHER:
            click.echo(f"note     tasks/{task}: {note}")
    for note, count in counts.items():
        if count >= _TOGETHER:
            click.echo(f"note     {count} tasks: {note}")
