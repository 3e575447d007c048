"""Say what a rebuild would change: ask the engine, the registries and the inputs' own commands.

Promises: nothing is changed, and nothing is guessed: who can't be asked is named with the reason.
The answer is about this moment, so its report never holds for a later run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbench_build.errors import EngineError, KbenchError
from kbench_build.model import DATASET, Report
from kbench_build.rim.archive import ZSTD_VERSION
from kbench_build.rim.engines import ContainerEngine, HeldImage
from kbench_build.rules import drift as rules
from kbench_build.rules.base_inputs import BaseInput
from kbench_build.rules.drift import Floating, Identity, Image, Input, Outside, World
from kbench_build.rules.images import Recipe, is_held, is_pinned, normal_reference, registry_digest
from kbench_build.rules.lock import Lock

STEP = "drift"


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the dataset's files and reports say.

    `images` are recipes with the report about each, `outside` references of images that aren't the
    dataset's own with the subjects that stand on them.
    """

    images: Sequence[tuple[Recipe, Report | None]]
    outside: Mapping[str, Sequence[str]]
    inputs: Sequence[Input]
    floating: Sequence[Floating]
    released: Lock | None


def drift(
    known: Known, engine: ContainerEngine, *, again: Callable[[BaseInput], str] | None
) -> Report:
    """Compare everything with how it is now. `again` makes an input anew, None: none is made."""
    began = time.monotonic()
    name, held, problem = _ask(engine)
    world = World(
        images=tuple(_image(recipe, report, held) for recipe, report in known.images),
        outside=tuple(_outside(engine, name, held, *item) for item in known.outside.items()),
        inputs=tuple(_again(item, again) for item in known.inputs),
        floating=tuple(known.floating),
        engine=name,
        problem=problem,
        zstd=ZSTD_VERSION,
        released=known.released,
    )
    rows = rules.drift(world)
    return Report(
        step=STEP,
        subject=DATASET,
        inputs="",
        ok=not any(row.severity == "error" for row in rows),
        summary=rules.summary(rows),
        seconds=time.monotonic() - began,
        data={
            "release": known.released.folder if known.released else None,
            "deep": again is not None,
            "rows": [rules.to_json(row) for row in rows],
            "details": list(rules.table(rows)),
        },
    )


def _ask(engine: ContainerEngine) -> tuple[str, Mapping[str, HeldImage], str]:
    """The engine's name, its images by normal reference, and why it can't be asked."""
    try:
        images = engine.images()
        name = engine.about().name
    except EngineError as error:
        return "", {}, str(error)
    return name, {normal_reference(tag): image for tag, image in images.items()}, ""


def _image(recipe: Recipe, report: Report | None, held: Mapping[str, HeldImage]) -> Image:
    image = held.get(normal_reference(recipe.image))
    built = report if report and report.ok else None
    return Image(
        subject=recipe.subject,
        recipe=recipe.digest,
        built_from=built.inputs if built else "",
        made=built.made if built else "",
        froms=rules.identities(built.data) if built else {},
        engine=str(built.data.get("engine", "")) if built else "",
        held=image.id if image and is_held(image.labels, recipe) else "",
    )


def _outside(
    engine: ContainerEngine,
    name: str,
    held: Mapping[str, HeldImage],
    reference: str,
    subjects: Iterable[str],
) -> Outside:
    image = held.get(reference)
    local = (
        Identity(id=image.id, digest=registry_digest(reference, image.digests)) if image else None
    )
    found = Outside(reference=reference, subjects=tuple(subjects), local=local)
    if is_pinned(reference):
        return found
    if not name:
        return replace(found, problem="no container engine answers")
    try:
        return replace(found, published=engine.published(reference))
    except EngineError as error:
        return replace(found, problem=str(error))


def _again(item: Input, again: Callable[[BaseInput], str] | None) -> Input:
    if again is None:
        return item
    try:
        return replace(item, again=again(item.item))
    except KbenchError as error:
        return replace(item, problem=" ".join(str(error).split()))
