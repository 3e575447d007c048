"""What upkeep asks of a plan: whether due builds have room on the engine's disk.

Beside the plan, so that a run with nothing to do loads none of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from kbench_build.errors import KbenchError
from kbench_build.plan import Plan
from kbench_build.rim.dataset import TASKS
from kbench_build.rim.disk import free_bytes
from kbench_build.rim.tree import files_of
from kbench_build.rules.images import Recipe, is_held
from kbench_build.rules.room import GIGABYTE, Due, Kind, needed, shortage
from kbench_build.steps.base_inputs import place

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
