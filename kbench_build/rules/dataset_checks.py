"""Checks of a dataset as a whole: what is beside the tasks, its bases, and its suppressions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kbench_build.model import DATASET, Base, FileEntry, Finding, Suppression
from kbench_build.rules.base_inputs import BaseInput
from kbench_build.rules.build_context import ignores
from kbench_build.rules.content import FIX, TASK
from kbench_build.rules.dockerfile import Instruction, copies, images, parse_dockerfile
from kbench_build.rules.duplicates import ambiguous, deviating, same_change, same_fix, same_tag
from kbench_build.rules.findings import Check, Spot, run_checks
from kbench_build.rules.layout import colliding
from kbench_build.rules.manifest import MANIFEST
from kbench_build.rules.recipe_trust import QUESTIONS, Question, base_recipe, spots
from kbench_build.rules.recipes import copy_problems, from_problems
from kbench_build.rules.traits import Traits


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A dataset: its tasks' ids, what else lies in `tasks/`, its bases and their folders.

    `folders` and `texts` go by repository: the files of `bases/<repo>/`, and the Dockerfiles and
    scripts (by path in it) as text. `inputs` are the generated files of each repository. `rules`
    are the ids of all rules that there are. `traits` go by task.
    """

    tasks: tuple[str, ...]
    strays: tuple[str, ...]
    namespace: str
    bases: tuple[Base, ...]
    folders: Mapping[str, tuple[FileEntry, ...]]
    texts: Mapping[str, Mapping[str, str]]
    inputs: Mapping[str, tuple[BaseInput, ...]]
    suppress: tuple[Suppression, ...]
    rules: frozenset[str]
    traits: Mapping[str, Traits]


def _strays(dataset: Whole) -> Iterator[Spot]:
    for name in dataset.strays:
        yield Spot(file=f"tasks/{name}", message="is no task's folder, so no release holds it")


def _case(dataset: Whole) -> Iterator[Spot]:
    for earlier, task in colliding(dataset.tasks):
        message = f"the id differs from {earlier!r} only in case or in Unicode form"
        yield Spot(file=f"tasks/{task}", message=message)


def _no_tasks(dataset: Whole) -> Iterator[Spot]:
    if not dataset.tasks:
        yield Spot(file="tasks", message="holds no task")


def _dockerfiles(dataset: Whole) -> Iterator[Spot]:
    for base in dataset.bases:
        if _text(dataset, base) is None:
            message = f"{base.name}: there is no {base.dockerfile} that can be read"
            yield Spot(file=MANIFEST, where=f"line {base.line}", message=message)


def _text(dataset: Whole, base: Base) -> str | None:
    return dataset.texts.get(base.repo, {}).get(base.dockerfile.removeprefix(f"{base.context}/"))


def _recipes(dataset: Whole) -> Iterator[tuple[Base, tuple[Instruction, ...]]]:
    for base in dataset.bases:
        text = _text(dataset, base)
        if text is not None:
            yield base, parse_dockerfile(text)


def _from(dataset: Whole) -> Iterator[Spot]:
    known = {f"{dataset.namespace}/{base.name}" for base in dataset.bases}
    for base, instructions in _recipes(dataset):
        for where, message in from_problems(instructions, dataset.namespace, known):
            yield Spot(file=base.dockerfile, where=where, message=message)


def _asked(question: Question) -> Callable[[Whole], Iterator[Spot]]:
    """A question about recipes, asked of every base's Dockerfile and the scripts that it runs."""

    def find(dataset: Whole) -> Iterator[Spot]:
        for base, instructions in _recipes(dataset):
            recipe = base_recipe(base.dockerfile, instructions, _scripts(dataset, base))
            yield from spots(question.ask(recipe, dataset.namespace))

    return find


def _scripts(dataset: Whole, base: Base) -> Mapping[str, tuple[str, str]]:
    texts = dataset.texts.get(base.repo, {}).items()
    return {name: (f"{base.context}/{name}", text) for name, text in texts if name.endswith(".sh")}


def _circles(dataset: Whole) -> Iterator[Spot]:
    on = {
        f"{dataset.namespace}/{base.name}": (base, images(instructions))
        for base, instructions in _recipes(dataset)
    }
    for name, (base, _) in on.items():
        if _reaches(name, name, on, set()):
            message = f"{name} stands on itself, through the bases it is FROM"
            yield Spot(file=MANIFEST, where=f"line {base.line}", message=message)


def _reaches(
    start: str, target: str, on: Mapping[str, tuple[Base, tuple[str, ...]]], seen: set[str]
) -> bool:
    for image in on[start][1]:
        if image == target:
            return True
        if image in on and image not in seen:
            seen.add(image)
            if _reaches(image, target, on, seen):
                return True
    return False


def _copied(dataset: Whole) -> Iterator[Spot]:
    for base, instructions in _recipes(dataset):
        context = _context(dataset, base)
        for copy, source, problem in copy_problems(copies(instructions), context):
            message = f"takes {source!r}, which {problem}"
            yield Spot(file=base.dockerfile, where=f"line {copy.line}", message=message)


def _context(dataset: Whole, base: Base) -> tuple[str, ...]:
    """What the build of a base sees: its folder, less `.dockerignore`, and its generated files."""
    patterns = dataset.texts.get(base.repo, {}).get(".dockerignore", "").splitlines()
    files = (f.path for f in dataset.folders.get(base.repo, ()))
    made = (i.file for i in dataset.inputs.get(base.repo, ()) if i.serves(base.tag))
    return (*(f for f in files if not ignores(patterns, f)), *made)


def _tags(dataset: Whole) -> Iterator[Spot]:
    for repo, inputs in dataset.inputs.items():
        known = {base.tag for base in dataset.bases if base.repo == repo}
        for item in inputs:
            for tag in item.bases:
                if tag not in known:
                    message = f"{item.file}: names the tag {tag!r}, which {MANIFEST} doesn't have"
                    yield Spot(file=f"bases/{repo}/inputs.toml", message=message)


def _made_and_kept(dataset: Whole) -> Iterator[Spot]:
    for repo, inputs in dataset.inputs.items():
        kept = {file.path for file in dataset.folders.get(repo, ())}
        for item in inputs:
            if item.file in kept:
                message = "is made by inputs.toml, and lies here too"
                yield Spot(file=f"bases/{repo}/{item.file}", message=message)


def _suppressions(dataset: Whole) -> Iterator[Spot]:
    for index, item in enumerate(dataset.suppress):
        if "*" not in item.rule and item.rule not in dataset.rules:
            message = f"there is no rule {item.rule!r}"
            yield Spot(file="kbench.toml", where=f"suppress[{index}].rule", message=message)
        if not set("*?[") & set(item.task) and item.task not in (*dataset.tasks, DATASET):
            message = f"there is no task {item.task!r}"
            yield Spot(file="kbench.toml", where=f"suppress[{index}].task", message=message)


def _same_change(dataset: Whole) -> Iterator[Spot]:
    for task, message in same_change(dataset.traits):
        yield Spot(file=f"tasks/{task}", message=message)


def _same_fix(dataset: Whole) -> Iterator[Spot]:
    for task, message in same_fix(dataset.traits):
        yield Spot(file=f"tasks/{task}/{FIX}", message=message)


def _same_tag(dataset: Whole) -> Iterator[Spot]:
    for task, message in same_tag(dataset.tasks):
        yield Spot(file=f"tasks/{task}", message=message)


def _ambiguous(dataset: Whole) -> Iterator[Spot]:
    for task, message in ambiguous(dataset.traits):
        yield Spot(file=f"tasks/{task}", message=message)


def _deviating(dataset: Whole) -> Iterator[Spot]:
    for task, where, message in deviating(dataset.traits):
        yield Spot(file=f"tasks/{task}/{TASK}", where=where, message=message)


DATASET_CHECKS: tuple[Check[Whole], ...] = (
    Check(
        id="dataset/stray",
        severity="note",
        why="Who reads the folder may take it for part of the dataset.",
        mend="Move it elsewhere.",
        find=_strays,
    ),
    Check(
        id="dataset/case",
        severity="error",
        why="On file systems that ignore case one of the two tasks is lost.",
        mend="Rename one of them.",
        find=_case,
    ),
    Check(
        id="duplicate/change",
        severity="error",
        why="One change under two ids counts twice in every score.",
        mend="Delete one of the two tasks.",
        find=_same_change,
    ),
    Check(
        id="duplicate/fix",
        severity="warning",
        why="Who solves one of two equal tasks has solved both, so that it counts twice.",
        mend="Delete one of the two tasks.",
        find=_same_fix,
    ),
    Check(
        id="duplicate/tag",
        severity="error",
        why="Image tags and container names are cut there: one task's image replaces the other's.",
        mend="Give one of them a shorter id.",
        find=_same_tag,
    ),
    Check(
        id="duplicate/owner",
        severity="warning",
        why="An id is read as owner, repository and number; two readings mix up two projects.",
        mend="Correct owner and name in [metadata.source], or rename the tasks of one repository.",
        find=_ambiguous,
    ),
    Check(
        id="network/deviation",
        severity="warning",
        why="Results of tasks that let through more, or less, can't be compared with the others'.",
        mend="Use the settings of the other tasks, or suppress this with the reason.",
        find=_deviating,
    ),
    Check(
        id="dataset/empty",
        severity="warning",
        why="A dataset without tasks measures nothing.",
        mend="Add a task.",
        find=_no_tasks,
    ),
    Check(
        id="bases/dockerfile",
        severity="error",
        why="A line of the manifest without its Dockerfile is a base that can't be built.",
        mend="Add the Dockerfile, or correct the third field of the line.",
        find=_dockerfiles,
    ),
    Check(
        id="bases/from",
        severity="error",
        why="A Dockerfile on an image that nobody builds can't be built.",
        mend="Name an image of bases/manifest, or add the base there.",
        find=_from,
    ),
    Check(
        id="bases/circle",
        severity="error",
        why="Bases that stand on each other can't be built in any order.",
        mend="Take one of the FROM lines out of the circle.",
        find=_circles,
    ),
    Check(
        id="bases/copy",
        severity="error",
        why="The build stops at a COPY whose source is missing.",
        mend="Add the file, or describe in inputs.toml how it is made.",
        find=_copied,
    ),
    *(
        Check(
            id=f"bases/{question.name}",
            severity=question.severity,
            why=question.why,
            mend=question.mend,
            find=_asked(question),
        )
        for question in QUESTIONS
    ),
    Check(
        id="bases/input-tag",
        severity="error",
        why="A generated file for a base that isn't there is never used.",
        mend="Correct the tag in `bases`.",
        find=_tags,
    ),
    Check(
        id="bases/input-kept",
        severity="error",
        why="Two files of one name: which of them the build sees is anybody's guess.",
        mend="Delete the file here, or the input.",
        find=_made_and_kept,
    ),
    Check(
        id="suppress/unknown",
        severity="warning",
        why="A suppression that fits nothing hides a typing error, or outlived its task.",
        mend="Correct or delete it.",
        find=_suppressions,
    ),
)


def check_dataset(dataset: Whole) -> tuple[Finding, ...]:
    """Everything that the checks find in the dataset as a whole."""
    return tuple(run_checks(DATASET_CHECKS, dataset, ""))
