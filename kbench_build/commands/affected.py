"""`kbench affected`: what doit has to do for a change."""

import json
from pathlib import Path

import click

from kbench_build.commands.options import FORMAT, ROOT

_FORMAT_VERSION = 1
_STEPS = ("validate", "base_inputs", "build_bases", "build_images", "seal", "selfcheck")


@click.command()
@click.option(
    "--base", "revision", required=True, metavar="REV", help="What the change is against."
)
@click.option("--exact", is_flag=True, help="Compare with REV itself (two dots, not three).")
@click.option(
    "--step",
    "steps",
    type=click.Choice(_STEPS),
    multiple=True,
    help="Print subtasks of this step only; may be repeated.",
)
@click.option(
    "--never-empty",
    is_flag=True,
    help="Where nothing is touched, print validate:@dataset: doit without a name does everything.",
)
@ROOT
@FORMAT
def affected(
    revision: str,
    exact: bool,
    steps: tuple[str, ...],
    *,
    never_empty: bool,
    root: Path,
    style: str,
) -> None:
    """Print the doit subtasks that a change touches, one a line.

    The change is what the files here differ in from the commit where HEAD left REV (as in `git diff
    REV...`, the way pull requests are shown), with what isn't committed yet and new files that git
    doesn't ignore. A step is touched when what it reads differs: for a base also those that stand
    on it, and their tasks. Nothing is printed where nothing is touched, so either of

    \b
        kbench affected --base origin/main | xargs -r doit
        doit $(kbench affected --base origin/main --never-empty)

    does what the change asks for and no more. Characters that a shell or xargs would take apart are
    printed as `*`, which doit understands.
    """
    from kbench_build.affected import affected as find  # noqa: PLC0415 - only when asked for
    from kbench_build.affected import words  # noqa: PLC0415

    found = find(root, revision, steps=steps or _STEPS, exact=exact)
    if style == "json":
        value = {
            "version": _FORMAT_VERSION,
            "commit": found.commit,
            "changed": sorted(found.changed),
            "subtasks": [
                {"name": s.name, "step": s.step, "subject": s.subject} for s in found.subtasks
            ],
        }
        click.echo(json.dumps(value, indent=2))
        return
    for word in words(found, never_empty=never_empty):
        click.echo(word)
