"""Recipe digests: what an image is made from, as one digest, and the order to make images in.

An image is up to date when the engine holds one labelled with its recipe's digest. So a recipe
holds everything that the build sees and nothing else: for a base its Dockerfile, the context files
and generated inputs that its COPY and ADD lines name (`.` or a variable there means all of them),
and the recipes of the bases it stands on; for a task the whole `environment/` and those recipes. An
image from outside the dataset counts by its reference, which stands in the Dockerfile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbench_build import digest
from kbench_build.model import Base, FileEntry, Finding
from kbench_build.rules.build_context import ignores, takes
from kbench_build.rules.manifest import MANIFEST

RECIPE_VERSION = 1
LABEL_RECIPE = "dev.kbench.recipe"
LABEL_KIND = "dev.kbench.kind"
LABEL_SUBJECT = "dev.kbench.subject"
LABEL_DATASET = "dev.kbench.dataset"
# On the images of stages alone: images made from an image inherit its other labels.
LABEL_STAGE = "dev.kbench.stage"
# The name that a Dockerfile gives to no image at all.
SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class BaseSource:
    """What lies on disk for one base. Paths are relative to its context folder.

    `images` are those that its Dockerfile stands on, `sources` what it copies. `inputs` names its
    generated files, each with the identity that its recipe counts: the pin, or the digest of the
    file that was made when there is no pin (empty while it isn't made yet).
    """

    base: Base
    images: tuple[str, ...]
    sources: tuple[str, ...]
    dockerfile_digest: str
    files: tuple[FileEntry, ...]
    inputs: Mapping[str, str]
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image to make. `files` and `inputs` are what its context holds, beside the Dockerfile.

    `stands_on` are the dataset's own images it needs first. `digest` is empty while a generated
    file that counts by its content hasn't been made.
    """

    image: str
    subject: str
    digest: str
    files: tuple[str, ...]
    inputs: tuple[str, ...]
    stands_on: tuple[str, ...]


def base_image(namespace: str, base: Base) -> str:
    """The image of a base."""
    return f"{namespace}/{base.name}"


def task_image(namespace: str, task: str) -> str:
    """The image of a task."""
    return f"{namespace}/task:{task}"


def normal_reference(image: str) -> str:
    """An image reference with the part that Docker lets one leave out: `a/b` is `a/b:latest`."""
    short = image.removeprefix("docker.io/").removeprefix("library/")
    last = short.rsplit("/", 1)[-1]
    return short if ":" in last or "@" in last else f"{short}:latest"


def is_pinned(image: str) -> bool:
    """Whether a reference names a digest, so that no registry can move it."""
    return "@" in image


def registry_digest(image: str, digests: Iterable[str]) -> str:
    """The digest that the image's own registry knows it by, empty where the engine has none.

    `digests` are all that the engine has for it, of any name (`name@sha256:…`).
    """
    found = {_repository(of): of.partition("@")[2] for of in digests}
    return found.get(_repository(image), "")


def _repository(image: str) -> str:
    """An image reference without tag and digest."""
    folder, slash, last = normal_reference(image).partition("@")[0].rpartition("/")
    return folder + slash + last.partition(":")[0]


def base_recipes(
    sources: Sequence[BaseSource], namespace: str
) -> tuple[tuple[Recipe, ...], tuple[Finding, ...]]:
    """The recipes in the order to build them, and what keeps others from having one."""
    by_image = {base_image(namespace, s.base): s for s in sources}
    findings = [f for s in sources for f in _own_findings(s, by_image, namespace)]
    uses = {image: _own(s.images, by_image) for image, s in by_image.items()}
    order, circles = build_order(uses)
    findings += [_circle(circle, by_image) for circle in circles]
    made: dict[str, Recipe] = {}
    for image in order:
        if all(on in made for on in uses[image]):
            made[image] = _base_recipe(by_image[image], image, uses[image], made)
    return tuple(made.values()), tuple(findings)


def task_recipe(
    *,
    namespace: str,
    task: str,
    images: Iterable[str],
    environment: str,
    settings: str,
    bases: Mapping[str, str],
) -> Recipe:
    """A task image's recipe: `environment` is its tree's digest, `bases` recipe digests by image.

    `images` are those that its Dockerfile stands on. A task without a Dockerfile names its image in
    `task.toml`, whose digest `settings` then counts. A base without a recipe (see `missing_bases`)
    leaves the digest empty.
    """
    images = tuple(map(normal_reference, images))
    stands_on = tuple(image for image in images if _is_ours(image, namespace))
    parts = {
        "environment": environment,
        "settings": "" if images else settings,
        "bases": {on: bases.get(on, "") for on in stands_on},
    }
    return Recipe(
        image=task_image(namespace, task),
        subject=task,
        digest=_digest(parts) if all(bases.get(on) for on in stands_on) else "",
        files=(),
        inputs=(),
        stands_on=stands_on,
    )


def is_held(labels: Mapping[str, str], recipe: Recipe) -> bool:
    """Whether an image with these labels was made from this recipe."""
    return bool(recipe.digest) and labels.get(LABEL_RECIPE) == recipe.digest


def missing_bases(recipe: Recipe, bases: Mapping[str, str]) -> tuple[str, ...]:
    """The images of the dataset's namespace that a recipe needs and no manifest line makes."""
    return tuple(on for on in recipe.stands_on if on not in bases)


def build_order(
    uses: Mapping[str, Iterable[str]],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Images so that each comes after those it stands on, and the circles that have no order.

    What stands on a circle has no order either, and isn't listed.
    """
    waiting = {image: set(on) & set(uses) for image, on in uses.items()}
    order: list[str] = []
    while ready := [image for image, on in waiting.items() if not on]:
        order += ready
        waiting = {i: on - set(ready) for i, on in waiting.items() if i not in ready}
    return tuple(order), _circles(waiting)


def _circles(waiting: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for start in waiting:
        path = [start]
        while (following := min(waiting[path[-1]])) not in path:
            path.append(following)
        circle = _from_least(path[path.index(following) :])
        found.setdefault(frozenset(circle), circle)
    return tuple(found.values())


def _from_least(circle: Sequence[str]) -> tuple[str, ...]:
    start = circle.index(min(circle))
    return (*circle[start:], *circle[:start])


def _base_recipe(
    source: BaseSource, image: str, uses: Sequence[str], made: Mapping[str, Recipe]
) -> Recipe:
    own = source.base.dockerfile.removeprefix(f"{source.base.context}/")
    taken = [
        f
        for f in source.files
        if f.path != own and takes(source.sources, f.path) and not ignores(source.ignore, f.path)
    ]
    inputs = {n: i for n, i in source.inputs.items() if takes(source.sources, n)}
    bases = {on: made[on].digest for on in uses}
    parts = {
        "dockerfile": source.dockerfile_digest,
        "context": digest.of_tree(taken),
        "inputs": inputs,
        "bases": bases,
    }
    return Recipe(
        image=image,
        subject=source.base.name,
        digest=_digest(parts) if all([*inputs.values(), *bases.values()]) else "",
        files=tuple(f.path for f in taken),
        inputs=tuple(inputs),
        stands_on=tuple(uses),
    )


def _digest(parts: Mapping[str, Any]) -> str:
    return digest.of_json({"recipe": RECIPE_VERSION, **parts})


def _is_ours(image: str, namespace: str) -> bool:
    return normal_reference(image).startswith(f"{namespace}/")


def _own(images: Iterable[str], ours: Mapping[str, BaseSource]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for n in map(normal_reference, images) if n in ours))


def _own_findings(
    source: BaseSource, ours: Mapping[str, BaseSource], namespace: str
) -> Iterable[Finding]:
    for image in map(normal_reference, source.images):
        if "$" in image:
            message = f"FROM {image}: no image can be told from it"
            yield _finding(source, "", message, "Name an image, or give the ARG a default.")
        elif _is_ours(image, namespace) and image not in ours:
            message = f"stands on {image}, which no line of {MANIFEST} makes"
            yield _finding(source, "", message, "Add the base to the manifest, or mend the name.")


def _circle(circle: Sequence[str], ours: Mapping[str, BaseSource]) -> Finding:
    way = " stands on ".join([*circle, circle[0]])
    return _finding(ours[circle[0]], "", f"bases in a circle: {way}", "Break the circle.")


def _finding(source: BaseSource, where: str, message: str, mend: str) -> Finding:
    return Finding(
        rule="bases/from",
        severity="error",
        file=source.base.dockerfile,
        where=where,
        message=message,
        mend=mend,
    )
