"""Options that several commands share, and what they check."""

from collections.abc import Iterable
from pathlib import Path

import click

from kbench_build.errors import KbenchError

ROOT = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The dataset's root (default: the current folder).",
)
FORMAT = click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write the result.",
)
UPSTREAM = click.option(
    "--upstream",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of upstream repositories or bundles (default: upstream.mirrors in kbench.toml).",
)


def check_tasks(tasks: Iterable[str], known: Iterable[str]) -> None:
    """Raise a `KbenchError` for the first id that no task has."""
    known = frozenset(known)
    for task in tasks:
        if task not in known:
            raise KbenchError(f"tasks/{task}: no such task")
