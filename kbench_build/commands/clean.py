"""`kbench clean`: free space in the engine, by our own labels only, and under `.kbench/`."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import click

from kbench_build.commands.options import FORMAT, ROOT
from kbench_build.errors import KbenchError
from kbench_build.plan import Plan
from kbench_build.rim.store import dataset_lock
from kbench_build.rules.clean import DAY, Choice, Owner, Wish, parse_size
from kbench_build.rules.clean_layers import LayerChoice
from kbench_build.rules.images import base_image
from kbench_build.rules.room import in_words
from kbench_build.steps.clean import forget_layers, look, look_at_layers, remove

_WORDS = {
    "leftover": "no tag",
    "outdated": "outdated",
    "current": "current",
    "other": "another dataset's",
}


@click.command(short_help="Free space in the container engine, and under .kbench/layers.")
@click.option("--images", is_flag=True, help="This dataset's images, and images without a tag.")
@click.option("--containers", is_flag=True, help="Containers that killed runs left.")
@click.option("--layers", is_flag=True, help="What seal keeps of layers that no image has now.")
@click.option("--keep-current", is_flag=True, help="Keep images that the recipes of now make.")
@click.option("--all-datasets", is_flag=True, help="Other datasets' images as well.")
@click.option("--older-than", type=click.FloatRange(0), metavar="DAYS", help="Only what is older.")
@click.option("--free", metavar="SIZE", help="Stop when so much is freed, such as 20GB.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@ROOT
@FORMAT
def clean(
    *,
    images: bool,
    containers: bool,
    layers: bool,
    keep_current: bool,
    all_datasets: bool,
    older_than: float | None,
    free: str | None,
    dry_run: bool,
    yes: bool,
    root: Path,
    style: str,
) -> None:
    """Free space: in the container engine by our labels only, and under .kbench/layers.

    The oldest go first. Nothing that a container or an image that stays stands on is removed, and
    nothing of another dataset unless asked. Exit 1 where the engine wouldn't remove something.
    """
    if not (images or containers or layers):
        raise click.UsageError("say what to clean: --images, --containers, --layers, or several")
    wish = Wish(
        keep_current=keep_current,
        all_datasets=all_datasets,
        older_than=None if older_than is None else older_than * DAY,
        free=_size(free),
    )
    with nullcontext() if dry_run else dataset_lock(root):
        plan = Plan(root)
        found = _look(plan, wish, images=images, containers=containers, layers=layers)
        if style == "text":
            _show(found)
        refused: Mapping[str, str] = {}
        if not dry_run:
            _ask(found, yes=yes)
            refused, found = _remove(plan, wish, found)
    if style == "json":
        _write_json(found, refused, dry_run=dry_run)
    else:
        _conclude(found, refused, done="would go" if dry_run else "removed")
    sys.exit(1 if refused else 0)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What goes of what was asked for; None for what wasn't."""

    images: Choice | None
    layers: LayerChoice | None
    containers: Sequence[str] | None


def _look(plan: Plan, wish: Wish, *, images: bool, containers: bool, layers: bool) -> _Found:
    chosen = look(plan.engine, _owner(plan), wish) if images else None
    return _Found(
        images=chosen,
        layers=_layers(plan, wish, chosen) if layers else None,
        containers=[*plan.engine.abandoned()] if containers else None,
    )


def _layers(plan: Plan, wish: Wish, chosen: Choice | None) -> LayerChoice:
    """What goes of what is kept of layers, once the images that were chosen are gone."""
    if chosen and wish.free is not None:
        wish = replace(wish, free=max(0, wish.free - chosen.frees))
    gone = {going.image.id for going in chosen.going} if chosen else ()
    return look_at_layers(plan.root, plan.engine, wish, without=gone)


def _remove(plan: Plan, wish: Wish, found: _Found) -> tuple[Mapping[str, str], _Found]:
    """Remove it; the images that the engine wouldn't, with the reason, and what did go."""
    if found.containers:
        plan.engine.sweep()
    chosen = found.images
    removed = remove(plan.engine, chosen) if chosen else ()
    refused = {going.name: why for going, why in removed if why}
    layers = found.layers
    if layers and chosen and refused:
        # What the engine keeps has its layers still.
        going = tuple(each for each in chosen.going if each.name not in refused)
        layers = _layers(plan, wish, replace(chosen, going=going))
    if layers:
        forget_layers(plan.root, layers)
    return refused, replace(found, layers=layers)


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


def _show(found: _Found) -> None:
    now = time.time()
    for image in found.images.going if found.images else ():
        _line(image.frees, now - image.image.created, _WORDS[image.why], image.name)
    for kept in found.layers.going if found.layers else ():
        what = f"layer {kept.name}" if kept.name else "files that nothing reads any more"
        _line(kept.size, now - kept.written, "kept of", what)
    if found.images:
        for reason, count in sorted(found.images.staying.items()):
            click.echo(
                f"{_count(count, 'image')} of ours stay{'s' if count == 1 else ''}: {reason}"
            )
    if found.layers:
        for reason, count in sorted(found.layers.staying.items()):
            click.echo(f"what is kept of {_count(count, 'layer')} stays: {reason}")


def _line(frees: int, seconds: float, why: str, name: str) -> None:
    click.echo(f"{in_words(frees):>9}  {seconds / DAY:5.1f} days  {why:<10}  {name}")


def _ask(found: _Found, *, yes: bool) -> None:
    parts = [
        f"{_count(len(choice.going), what)}, up to {in_words(choice.frees)}"
        for choice, what in ((found.images, "image"), (found.layers, "layer that was searched"))
        if choice and choice.going
    ]
    if yes or not parts:
        return
    if not sys.stdin.isatty():
        raise KbenchError(
            "nothing was removed, since nobody can be asked here: say --yes, or look with --dry-run"
        )
    click.confirm(f"Remove {' and '.join(parts)}?", abort=True)


def _write_json(found: _Found, refused: Mapping[str, str], *, dry_run: bool) -> None:
    said: dict[str, object] = {"dry_run": dry_run}
    if found.containers is not None:
        said["containers"] = found.containers
    if found.images:
        said |= {
            "images": [
                {"image": g.name, "id": g.image.id, "why": g.why, "frees": g.frees}
                for g in found.images.going
            ],
            "frees_up_to": found.images.frees,
            "staying": dict(found.images.staying),
            "refused": dict(refused),
        }
    if found.layers:
        said["layers"] = {
            "going": [{"layer": k.name, "frees": k.size} for k in found.layers.going],
            "frees": found.layers.frees,
            "staying": found.layers.staying,
        }
    click.echo(json.dumps(said, indent=2, sort_keys=True))


def _conclude(found: _Found, refused: Mapping[str, str], *, done: str) -> None:
    """The last lines: what the engine wouldn't remove, and the totals."""
    for name, why in refused.items():
        click.echo(f"stays     {name}: {why}")
    if found.containers is not None:
        click.echo(f"{_count(len(found.containers), 'container')} of killed runs {done}")
    if found.images:
        gone = [going for going in found.images.going if going.name not in refused]
        freed = in_words(sum(going.frees for going in gone))
        click.echo(f"{_count(len(gone), 'image')} {done}: up to {freed}")
    if found.layers:
        count = _count(len(found.layers.going), "layer")
        click.echo(f"what was kept of {count} {done}: {in_words(found.layers.frees)}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
