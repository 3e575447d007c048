"""What upkeep asks of a plan: whether due builds have room, and what a rebuild would change.

Beside the plan, so that a run with nothing to do loads none of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from kbench_build.errors import KbenchError
from kbench_build.model import Report
from kbench_build.plan import Plan
from kbench_build.rim.dataset import TASKS
from kbench_build.rim.disk import free_bytes
from kbench_build.rim.releases import DIST, LOCK, locks_in
from kbench_build.rim.task_files import read_text
from kbench_build.rim.tree import files_of
from kbench_build.rules.dockerfile import images, parse_dockerfile
from kbench_build.rules.drift import Floating, Input
from kbench_build.rules.floating import floating_sources
from kbench_build.rules.images import SCRATCH, Recipe, is_held, normal_reference
from kbench_build.rules.lock import Lock, parse_lock
from kbench_build.rules.recipe_trust import base_recipe
from kbench_build.rules.records import FormatError
from kbench_build.rules.room import GIGABYTE, Due, Kind, needed, shortage
from kbench_build.rules.versions import Version, VersionError, parse_version
from kbench_build.steps import drift
from kbench_build.steps.base_inputs import make_again, place

_LARGEST = 1 << 20
_STEPS: Mapping[Kind, str] = {"base": "build_bases", "task": "build_images"}


def check_room(plan: Plan, steps: Collection[str] | None, patterns: Sequence[str] | None) -> None:
    """Raise a `KbenchError` where what is due won't fit on the engine's disk.

    `steps` are those that the run reaches, `patterns` the subjects that it was asked for; None:
    all of them. Where the disk can't be seen from here, nothing is said.
    """
    keep = plan.config.min_free_gb
    folder = plan.engine.about().storage if keep else ""
    free = free_bytes(folder) if folder else None
    if free is None:
        return
    recipes = due_builds(plan, steps, patterns)
    due = [_due(plan, kind, recipe) for kind, found in recipes.items() for recipe in found]
    usual = {kind: [*_grown_before(plan, kind)] for kind in _STEPS}
    need = needed(due, usual)
    said = shortage(need, free=free, keep=round(keep * GIGABYTE), folder=folder)
    if said:
        raise KbenchError(said)


def due_builds(
    plan: Plan, steps: Collection[str] | None, patterns: Sequence[str] | None
) -> Mapping[Kind, Sequence[Recipe]]:
    """The recipes of the images that such a run builds, because the engine doesn't hold them."""
    reached = steps is None or _STEPS["task"] in steps
    names = plan.steps[_STEPS["task"]].subjects() if reached else ()
    tasks = [plan.recipe(name) for name in names if _asked(name, patterns)]
    by_image = {recipe.image: recipe for recipe in plan.recipes.values()}
    below = {image for recipe in tasks for image in recipe.stands_on}
    below |= {r.image for r in by_image.values() if _asked(r.subject, patterns)}
    for recipe in reversed([*by_image.values()]):
        if recipe.image in below:
            below |= {*recipe.stands_on}
    bases = [by_image[image] for image in by_image if image in below]
    return {
        "base": [recipe for recipe in bases if _is_due(plan, recipe)],
        "task": [recipe for recipe in tasks if _is_due(plan, recipe)],
    }


def _asked(subject: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(fnmatchcase(subject, pattern) for pattern in patterns)


def _is_due(plan: Plan, recipe: Recipe) -> bool:
    held = plan.ask().get(recipe.image)
    return plan.rebuild or held is None or not is_held(held.labels, recipe)


def _due(plan: Plan, kind: Kind, recipe: Recipe) -> Due:
    sizes = _base_context(plan, recipe) if kind == "base" else _task_context(plan, recipe.subject)
    report = plan.store.read(_STEPS[kind], recipe.subject)
    grown = report.data.get("grown") if report else None
    known = grown if isinstance(grown, int) else None
    return Due(kind=kind, grown=known, context=sum(sizes))


def _grown_before(plan: Plan, kind: Kind) -> Iterator[int]:
    """What images of this kind added to those they stand on, as far as reports say."""
    for subject in plan.steps[_STEPS[kind]].subjects():
        report = plan.store.read(_STEPS[kind], subject)
        grown = report.data.get("grown") if report else None
        if isinstance(grown, int):
            yield grown


def _base_context(plan: Plan, recipe: Recipe) -> Iterator[int]:
    repo = recipe.subject.partition(":")[0]
    taken = {*recipe.files}
    yield from (f.size for f in plan.survey.folders[repo].files if f.path in taken)
    for name in recipe.inputs:
        made = place(plan.root, plan.base_inputs[f"{repo}/{name}"])
        yield made.stat().st_size if made.is_file() else 0


def _task_context(plan: Plan, task: str) -> Iterator[int]:
    files = files_of(plan.survey.listings[f"{TASKS}/{task}"])
    return (f.size for f in files if f.path.startswith("environment/"))


def report_drift(plan: Plan, *, deep: bool) -> Report:
    """What a rebuild would change, as a report; `deep` makes the generated inputs again."""
    known = drift.Known(
        images=[*_built(plan)],
        outside=_outside(plan),
        inputs=[_input(plan, name) for name in plan.base_inputs],
        floating=[*_floating(plan)],
        released=_released(plan),
    )
    again = partial(make_again, plan.root) if deep else None
    return drift.drift(known, plan.engine, again=again)


def _built(plan: Plan) -> Iterator[tuple[Recipe, Report | None]]:
    for recipe in plan.recipes.values():
        yield recipe, plan.store.read(_STEPS["base"], recipe.subject)
    for task in plan.steps[_STEPS["task"]].subjects():
        yield plan.recipe(task), plan.store.read(_STEPS["task"], task)


def _outside(plan: Plan) -> Mapping[str, Sequence[str]]:
    """The images that aren't the dataset's own, and the bases and tasks that stand on each."""
    found: dict[str, list[str]] = {}
    ours = f"{plan.config.namespace}/"
    for subject, below in _froms(plan):
        for image in map(normal_reference, below):
            if not image.startswith(ours) and image != normal_reference(SCRATCH):
                found.setdefault(image, []).append(subject)
    return {image: found[image] for image in sorted(found)}


def _froms(plan: Plan) -> Iterator[tuple[str, Sequence[str]]]:
    for base in plan.survey.bases:
        yield base.name, images(parse_dockerfile(read_text(plan.root / base.dockerfile, _LARGEST)))
    for task in plan.steps[_STEPS["task"]].subjects():
        yield task, plan.survey.tasks[task].froms


def _input(plan: Plan, name: str) -> Input:
    item = plan.base_inputs[name]
    head = plan.store.head("base_inputs", name)
    built = head if head and head.ok else None
    return Input(
        item=item,
        bases=tuple(base.name for base in plan.survey.bases if item in plan.serving(base)),
        sources=plan.steps["base_inputs"].inputs(name),
        built_from=built.inputs if built else "",
        made=built.made if built else "",
    )


def _floating(plan: Plan) -> Iterator[Floating]:
    """What no recipe of a base or task pins."""
    bases = ((base.dockerfile, base.context) for base in plan.survey.bases)
    tasks = (f"{TASKS}/{task}/environment" for task in plan.steps[_STEPS["task"]].subjects())
    for file, folder in (*bases, *((f"{task}/Dockerfile", task) for task in tasks)):
        instructions = parse_dockerfile(read_text(plan.root / file, _LARGEST))
        recipe = base_recipe(file, instructions, _scripts(plan.root, folder))
        yield from floating_sources(recipe, plan.config.namespace)


def _scripts(root: Path, folder: str) -> Mapping[str, tuple[str, str]]:
    """The scripts beside a Dockerfile by name: where each stands, and its text."""
    found = (path for path in sorted((root / folder).glob("*.sh")) if not path.is_symlink())
    return {path.name: (f"{folder}/{path.name}", read_text(path, _LARGEST)) for path in found}


def _released(plan: Plan) -> Lock | None:
    """The lock of the dataset's newest release in `dist/`. Raises `KbenchError` for a bad one."""
    locks: dict[Version, Lock] = {}
    for folder, data in locks_in(plan.root / DIST).items():
        try:
            lock = parse_lock(data)
            if lock.name == plan.config.name:
                locks[parse_version(lock.version)] = lock
        except (FormatError, VersionError) as error:
            raise KbenchError(f"{folder / LOCK}: {error}") from error
    proper = [version for version in locks if not version.pre]
    return locks[max(proper or locks)] if locks else None
