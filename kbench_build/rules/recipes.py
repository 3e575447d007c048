"""Checks of Dockerfiles: the images they stand on, what they copy, the commit they check out."""

import re
from collections.abc import Iterator, Mapping

from kbench_build.model import Upstream
from kbench_build.rules.build_context import takes
from kbench_build.rules.content import DOCKERFILE, FIX, Content
from kbench_build.rules.dockerfile import Copy, Instruction, copies, images, stages
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.patches import Patch
from kbench_build.rules.tables import table

# Lines of so many characters are hardly the same by chance, and so many of them aren't at all.
_DISTINCT = 16
_TELLING = 3
SCRIPTS = (DOCKERFILE, "environment/prepare.sh")
_COMMIT = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")


def _from(task: Content) -> Iterator[Spot]:
    if task.dockerfile is None:
        return
    known = {f"{task.around.namespace}/{base.name}" for base in task.around.bases}
    for line, message in from_problems(task.dockerfile, task.around.namespace, known):
        yield Spot(file=DOCKERFILE, where=line, message=message)


def from_problems(
    instructions: tuple[Instruction, ...], namespace: str, known: set[str]
) -> Iterator[tuple[str, str]]:
    """(place, message) for each image that nothing can provide; `known` are the dataset's own."""
    found = stages(instructions)
    if not found:
        yield "", "has no FROM, so there is no image to build"
    for stage in found:
        problem = "" if stage.image is None else _image_problem(stage.image, namespace, known)
        if problem:
            yield f"line {stage.line}", problem
    for image in images(instructions):
        if image.startswith(f"{namespace}/") and not any(s.image == image for s in found):
            problem = _image_problem(image, namespace, known)
            if problem:
                yield "", f"COPY --from: {problem}"


def _image_problem(image: str, namespace: str, known: set[str]) -> str:
    if not image:
        return "FROM names no image"
    if "$" in image:
        return f"FROM {image}: the argument has no default"
    if image.startswith(f"{namespace}/") and image not in known:
        return f"the image {image} is built by no line of bases/manifest"
    return ""


def _copied(task: Content) -> Iterator[Spot]:
    if task.dockerfile is None:
        return
    context = task.below("environment")
    for copy, source, problem in copy_problems(copies(task.dockerfile), context):
        message = f"takes {source!r}, which {problem}"
        yield Spot(file=DOCKERFILE, where=f"line {copy.line}", message=message)


def copy_problems(
    found: tuple[Copy, ...], context: tuple[str, ...]
) -> Iterator[tuple[Copy, str, str]]:
    """(instruction, source, what is wrong) for each source that the build context doesn't hold."""
    for copy in found:
        for source in copy.sources:
            name = source.removeprefix("./").strip("/")
            if ".." in name.split("/"):
                yield copy, source, "leaves the build context"
            elif name not in {"", "."} and not any(takes((name,), path) for path in context):
                yield copy, source, "isn't in the build context"


def _pinned(task: Content) -> Iterator[Spot]:
    base = base_commit(task.config)
    if base is None:
        return
    named = _commits(task)
    if named and base.encode() not in named:
        other = min(named).decode()
        message = f"task.toml has the base commit {base}, but {named[min(named)]} names {other}"
        yield Spot(file="task.toml", where="metadata.source.base_commit", message=message)
    elif not named:
        yield Spot(
            file=DOCKERFILE, message="neither it nor a script beside it names the base commit"
        )


def base_commit(config: Mapping[str, object] | None) -> str | None:
    """The base commit that task.toml names, None where it names none."""
    commit = table(config, "metadata", "source").get("base_commit")
    return commit if isinstance(commit, str) else None


def upstream_of(config: Mapping[str, object] | None) -> Upstream:
    """The repository that task.toml names."""
    metadata = (config or {}).get("metadata")
    source = metadata.get("source") if isinstance(metadata, Mapping) else None
    table = source if isinstance(source, Mapping) else {}
    said = {key: table.get(f"repository_{key}") for key in ("owner", "name", "url")}
    return Upstream(**{key: v for key, v in said.items() if isinstance(v, str)})


def _commits(task: Content) -> dict[bytes, str]:
    """Every full commit id in the Dockerfile and `prepare.sh`, and the file it stands in."""
    return commits_in({path: task.data.get(path, b"") for path in SCRIPTS})


def commits_in(texts: Mapping[str, bytes]) -> dict[bytes, str]:
    """Every full commit id in the texts, and the path of the first that it stands in."""
    found: dict[bytes, str] = {}
    for path, text in texts.items():
        for commit in _COMMIT.findall(text):
            found.setdefault(commit, path)
    return found


def checked_out(config: Mapping[str, object] | None, texts: Mapping[str, bytes]) -> str:
    """The base commit; where task.toml names none, the only commit in the texts of `SCRIPTS`."""
    commit = base_commit(config)
    if commit is None:
        named = commits_in(texts)
        commit = next(iter(named)).decode() if len(named) == 1 else ""
    return commit


def _reversed_fix(task: Content) -> Iterator[Spot]:
    for path, (shown, lines) in reversed_fixes(task).items():
        yield Spot(file=path, message=f"holds {shown} of the {lines} lines that the fix adds")


def reversed_fixes(task: Content) -> Mapping[str, tuple[int, int]]:
    """The patches of the build context that show the fix: how many lines of it, of how many."""
    fix, found = task.fix, dict[str, tuple[int, int]]()
    if fix is None:
        return found
    for name in task.below("environment"):
        path = f"environment/{name}"
        if name.endswith(".patch") and (there := task.patch(path)) is not None:
            shown, lines = shared_lines(fix, there)
            if shown and shown >= min(_TELLING, lines):
                found[path] = (shown, lines)
    return found


def shared_lines(fix: Patch, other: Patch) -> tuple[int, int]:
    """How many of the lines that a fix adds another patch shows, and how many there are.

    Short lines, such as a lone bracket or `return null;`, say nothing and aren't counted.
    """
    lines = {line for file in fix.files for line in file.added if len(line.strip()) >= _DISTINCT}
    shown = {line for file in other.files for line in (*file.added, *file.removed)}
    return len(lines & shown), len(lines)


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="recipe/from",
        severity="error",
        why="A Dockerfile on an image that nobody builds can't be built.",
        mend="Name an image of bases/manifest, or add the base there.",
        find=_from,
    ),
    Check(
        id="recipe/copy",
        severity="error",
        why="The build stops at a COPY whose source is missing.",
        mend="Add the file to environment/, or remove the line.",
        find=_copied,
    ),
    Check(
        id="recipe/base-commit",
        severity="error",
        why="The commit that is checked out must be the one that the task says it starts from.",
        mend="Use the same full commit id in both places.",
        find=_pinned,
        forms=("shipped", "own"),
    ),
    Check(
        id="leak/reversed-fix",
        severity="warning",
        why="Who can read the image or its build context can read the solution.",
        mend=f"Start from the commit before the fix, so that the image needs no copy of {FIX}.",
        find=_reversed_fix,
    ),
)
