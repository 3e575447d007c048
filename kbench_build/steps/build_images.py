"""Build the image of a base or of a task, labelled with the digest of its recipe.

An image that carries its recipe's digest already is left alone: neither a tag nor any file's time
decides. The report says which image it is, how long it took and how large it is.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.model import Base, Outcome, Report
from kbench_build.rim.dataset import TASKS, read_task_toml
from kbench_build.rim.engines import BuildResult, BuildSpec, ContainerEngine, HeldImage
from kbench_build.rim.store import STATE
from kbench_build.rim.task_files import read_text, read_whole
from kbench_build.rim.tree import scan_tree
from kbench_build.rules.build_context import buildkit_lines, ignores, label_stages
from kbench_build.rules.dockerfile import images, parse_dockerfile, stages
from kbench_build.rules.images import (
    LABEL_DATASET,
    LABEL_KIND,
    LABEL_RECIPE,
    LABEL_STAGE,
    LABEL_SUBJECT,
    SCRATCH,
    Recipe,
    is_held,
    normal_reference,
    registry_digest,
)
from kbench_build.rules.limits import limits

BASES_STEP = "build_bases"
TASKS_STEP = "build_images"
BASE_TIMEOUT_SEC = 3600.0
_DOCKERFILE = "Dockerfile"
_LAST_LINES = 12
_LARGEST = 1 << 20
_OUTCOMES: Mapping[str, Outcome] = {
    "failed": "invalid",
    "timeout": "timeout",
    "engine-error": "infra-error",
}


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """An image to make: its recipe, and what lies on disk for it. `members` are its context."""

    root: Path
    dataset: str
    step: str
    kind: str
    recipe: Recipe
    dockerfile: str
    text: str
    members: Mapping[str, Path | bytes]
    timeout_sec: float

    @property
    def log(self) -> str:
        """Where the builder's words are kept, relative to the root."""
        return f"{STATE}/logs/{self.step}/{self.recipe.subject.replace(':', '_')}.log"


def build_base(
    root: Path,
    base: Base,
    recipe: Recipe,
    *,
    engine: ContainerEngine,
    dataset: str = "",
    rebuild: bool = False,
) -> Report:
    """Build a base from its Dockerfile, the context files its recipe names, and its inputs.

    `dataset` is the name of the dataset whose image it is.
    """
    made = root / STATE / "inputs" / base.repo
    wish = _Wish(
        root=root,
        dataset=dataset,
        step=BASES_STEP,
        kind="base",
        recipe=recipe,
        dockerfile=base.dockerfile.removeprefix(f"{base.context}/"),
        text=_text(root, base.dockerfile),
        members={
            **{path: root / base.context / path for path in recipe.files},
            **{name: made / name for name in recipe.inputs},
        },
        timeout_sec=BASE_TIMEOUT_SEC,
    )
    return _make(wish, engine, rebuild=rebuild)


def build_image(
    root: Path,
    task: str,
    recipe: Recipe,
    *,
    engine: ContainerEngine,
    dataset: str = "",
    rebuild: bool = False,
) -> Report:
    """Build a task's image from its `environment/`, or from the image that `task.toml` names."""
    wanted = limits(read_task_toml(root, task))
    folder = root / TASKS / task / "environment"
    named = wanted.image is not None and not (folder / _DOCKERFILE).is_file()
    file = f"{TASKS}/{task}/environment/{_DOCKERFILE}"
    wish = _Wish(
        root=root,
        dataset=dataset,
        step=TASKS_STEP,
        kind="task",
        recipe=recipe,
        dockerfile=_DOCKERFILE,
        text=f"FROM {wanted.image}\n" if named else _text(root, file),
        members={} if named else _environment(folder),
        timeout_sec=wanted.build_timeout_sec,
    )
    return _make(wish, engine, rebuild=rebuild)


def _environment(folder: Path) -> dict[str, Path | bytes]:
    """The files below `environment/` that its `.dockerignore` lets in."""
    ignore = folder / ".dockerignore"
    patterns = read_text(ignore, _LARGEST).splitlines()
    paths = (entry.path for entry in scan_tree(folder))
    return {path: folder / path for path in paths if not ignores(patterns, path)}


def _make(wish: _Wish, engine: ContainerEngine, *, rebuild: bool) -> Report:
    began = time.monotonic()
    before = engine.images()
    held = before.get(wish.recipe.image)
    if held and is_held(held.labels, wish.recipe) and not rebuild:
        return _report(wish, {"image_id": held.id}, "held already", began)
    result = engine.build(_spec(wish, use_cache=not rebuild))
    data = _data(wish, result)
    if result.status == "built":
        data |= _stood_on(wish, result, engine, before)
    return _report(wish, data, _words(result), began)


def _stood_on(
    wish: _Wish, result: BuildResult, engine: ContainerEngine, before: Mapping[str, HeldImage]
) -> dict[str, Any]:
    """Of an image that was built: by which engine, on which foreign images, and how much it added.

    A later run compares the first two with what it finds, and estimates by the third.
    """
    instructions = parse_dockerfile(wish.text)
    names = [normal_reference(n) for n in images(instructions) if n != SCRATCH]
    # What the builder fetched wasn't there before.
    held = _by_reference(before if {*names} <= {*_by_reference(before)} else engine.images())
    foreign = [n for n in names if n in held and n not in wish.recipe.stands_on]
    data: dict[str, Any] = {
        "engine": engine.about().name,
        "froms": {
            n: {"id": held[n].id, "digest": registry_digest(n, held[n].digests)} for n in foreign
        },
    }
    last = next((stage.image for stage in reversed(stages(instructions))), None)
    below = 0 if last == SCRATCH else _size(held, last)
    return data if below is None else {**data, "grown": max(0, result.size - below)}


def _by_reference(images: Mapping[str, HeldImage]) -> Mapping[str, HeldImage]:
    return {normal_reference(tag): image for tag, image in images.items()}


def _size(held: Mapping[str, HeldImage], image: str | None) -> int | None:
    found = held.get(normal_reference(image)) if image else None
    return found.size if found else None


def _spec(wish: _Wish, *, use_cache: bool) -> BuildSpec:
    recipe, instructions = wish.recipe, parse_dockerfile(wish.text)
    stage = (LABEL_STAGE, recipe.subject)
    needs = buildkit_lines(wish.text, instructions)
    froms = [stage.line for stage in stages(instructions)]
    # BuildKit leaves no stage images behind, and a here-document may hold lines like FROM.
    sent = wish.text if needs else label_stages(wish.text, froms, *stage)
    return BuildSpec(
        image=recipe.image,
        context={**wish.members, wish.dockerfile: sent.encode("utf-8", "surrogateescape")},
        dockerfile=wish.dockerfile,
        labels={
            LABEL_RECIPE: recipe.digest,
            LABEL_KIND: wish.kind,
            LABEL_SUBJECT: recipe.subject,
            LABEL_DATASET: wish.dataset,
        },
        stage_label=stage,
        timeout_sec=wish.timeout_sec,
        log=wish.root / wish.log,
        buildkit=f"{wish.dockerfile}: line {needs[0][0]}: {needs[0][1]}" if needs else "",
        use_cache=use_cache,
    )


def _data(wish: _Wish, result: BuildResult) -> dict[str, Any]:
    data: dict[str, Any] = {
        "image_id": result.image_id,
        "size": result.size,
        "seconds": round(result.seconds, 3),
        "log": wish.log,
    }
    if result.status != "built":
        last = result.output.splitlines()[-_LAST_LINES:]
        data["outcome"] = _OUTCOMES[result.status]
        data["details"] = [*last, f"the whole log: {wish.log}"]
    return data


def _report(wish: _Wish, data: Mapping[str, Any], summary: str, began: float) -> Report:
    recipe = wish.recipe
    return Report(
        step=wish.step,
        subject=recipe.subject,
        inputs=recipe.digest,
        ok="outcome" not in data,
        summary=summary,
        seconds=time.monotonic() - began,
        made=str(data["image_id"]),
        data={"image": recipe.image, "recipe": recipe.digest, **data},
    )


def _words(result: BuildResult) -> str:
    if result.status == "built":
        return f"{result.size / 1e6:.0f} MB in {result.seconds:.1f} s"
    name = {"failed": "doesn't build", "timeout": "time-out", "engine-error": "engine failed"}
    return f"{name[result.status]}: {result.error}"


def _text(root: Path, name: str) -> str:
    """A Dockerfile's text with its own line ends; bytes that aren't UTF-8 are kept as they are."""
    try:
        return read_whole(root / name, name, _LARGEST).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        raise KbenchError(f"{name}: is missing") from None
