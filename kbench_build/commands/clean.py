"""`kbench clean`: free space in the engine, by our own labels only."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import click

from kbench_build.commands.options import FORMAT, ROOT
from kbench_build.errors import KbenchError
from kbench_build.plan import Plan
from kbench_build.rim.store import dataset_lock
from kbench_build.rules.clean import DAY, Choice, Owner, Wish, parse_size
from kbench_build.rules.images import base_image
from kbench_build.rules.room import in_words
from kbench_build.steps.clean import look, remove

_WORDS = {
    "leftover": "no tag",
    "outdated": "outdated",
    "current": "current",
    "other": "another dataset's",
}


@click.command()
@click.option("--images", is_flag=True, help="This dataset's images, and images without a tag.")
@click.option("--containers", is_flag=True, help="Containers that killed runs left.")
@click.option("--keep-current", is_flag=True, help="Keep what the recipes of now would make.")
@click.option("--all-datasets", is_flag=True, help="Other datasets' images as well.")
@click.option("--older-than", type=click.FloatRange(0), metavar="DAYS", help="Only older images.")
@click.option("--free", metavar="SIZE", help="Stop when so much is freed, such as 20GB.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@ROOT
@FORMAT
def clean(
    *,
    images: bool,
    containers: bool,
    keep_current: bool,
    all_datasets: bool,
    older_than: float | None,
    free: str | None,
    dry_run: bool,
    yes: bool,
    root: Path,
    style: str,
) -> None:
    """Free space in the container engine: by our labels only, the oldest first.

    Nothing that a container or an image that stays stands on is removed, and nothing of another
    dataset unless asked. Exit 1 where the engine wouldn't remove something.
    """
    if not images and not containers:
        raise click.UsageError("say what to clean: --images, --containers, or both")
    wish = Wish(
        keep_current=keep_current,
        all_datasets=all_datasets,
        older_than=None if older_than is None else older_than * DAY,
        free=_size(free),
    )
    with nullcontext() if dry_run else dataset_lock(root):
        plan = Plan(root)
        left = _containers(plan, dry_run=dry_run) if containers else None
        choice = look(plan.engine, _owner(plan), wish) if images else None
        if choice and style == "text":
            _show(choice)
        refused: Mapping[str, str] = {}
        if choice and choice.going and not dry_run:
            _ask(choice, yes=yes)
            refused = {going.name: why for going, why in remove(plan.engine, choice) if why}
    if style == "json":
        _write_json(choice, left, refused, dry_run=dry_run)
    else:
        _conclude(choice, left, refused, done="would go" if dry_run else "removed")
    sys.exit(1 if refused else 0)


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    size = parse_size(text)
    if size is None:
        raise click.UsageError(f"--free: {text!r} is no size: write 500MB, 20GB or a number")
    return size


def _owner(plan: Plan) -> Owner:
    tasks = map(plan.recipe, plan.steps["build_images"].subjects())
    found = [*plan.recipes.values(), *tasks]
    # A base whose recipe can't be told yet isn't among them.
    unknown = {base_image(plan.config.namespace, base): "" for base in plan.survey.bases}
    return Owner(
        name=plan.config.name,
        namespace=plan.config.namespace,
        recipes={**unknown, **{recipe.image: recipe.digest for recipe in found}},
        subjects=frozenset([r.subject for r in found] + [b.name for b in plan.survey.bases]),
    )


def _containers(plan: Plan, *, dry_run: bool) -> list[str]:
    left = [*plan.engine.abandoned()]
    if left and not dry_run:
        plan.engine.sweep()
    return left


def _show(choice: Choice) -> None:
    for going in choice.going:
        days = (time.time() - going.image.created) / DAY
        click.echo(
            f"{in_words(going.frees):>9}  {days:5.1f} days  {_WORDS[going.why]:<10}  {going.name}"
        )
    for reason, count in sorted(choice.staying.items()):
        click.echo(f"{_count(count, 'image')} of ours stay{'s' if count == 1 else ''}: {reason}")


def _ask(choice: Choice, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise KbenchError(
            "nothing was removed, since nobody can be asked here: say --yes, or look with --dry-run"
        )
    count = _count(len(choice.going), "image")
    click.confirm(f"Remove {count}, up to {in_words(choice.frees)}?", abort=True)


def _write_json(
    choice: Choice | None, left: list[str] | None, refused: Mapping[str, str], *, dry_run: bool
) -> None:
    found: dict[str, object] = {"dry_run": dry_run}
    if left is not None:
        found["containers"] = left
    if choice:
        found |= {
            "images": [
                {"image": g.name, "id": g.image.id, "why": g.why, "frees": g.frees}
                for g in choice.going
            ],
            "frees_up_to": choice.frees,
            "staying": dict(choice.staying),
            "refused": dict(refused),
        }
    click.echo(json.dumps(found, indent=2, sort_keys=True))


def _conclude(
    choice: Choice | None, left: list[str] | None, refused: Mapping[str, str], *, done: str
) -> None:
    """The last lines: what the engine wouldn't remove, and the totals."""
    for name, why in refused.items():
        click.echo(f"stays     {name}: {why}")
    if left is not None:
        click.echo(f"{_count(len(left), 'container')} of killed runs {done}")
    if choice:
        gone = [going for going in choice.going if going.name not in refused]
        freed = in_words(sum(going.frees for going in gone))
        click.echo(f"{_count(len(gone), 'image')} {done}: up to {freed}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
