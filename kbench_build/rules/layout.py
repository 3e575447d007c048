"""Checks of a task's folder: what must be there, what has no business there, names and links."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kbench_build.rules.build_context import takes
from kbench_build.rules.content import (
    DOCKERFILE,
    EXPECTED,
    FIX,
    INSTRUCTION,
    SOLVE,
    TASK,
    TEST,
    TEST_PATCH,
    VERIFY,
    Content,
    Form,
)
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.images import base_image, task_image
from kbench_build.rules.tables import table

if TYPE_CHECKING:
    from kbench_build.rules.compose import ComposeFile

# Docker cuts a tag at 128 characters; the first may be no dot or dash; doit reads `=` in names.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# What archives and most systems take, with a release's own folders in front.
_LONGEST = 512
_COMPOSE = ("environment/docker-compose.yaml", "environment/docker-compose.yml")
# Of so many lines, so large a part of all must be the same.
_TELLING_LINES, _NEARLY = 3, 0.7
_BOTH = (TASK, INSTRUCTION, TEST)
_EXPECTING = (FIX, SOLVE, TEST_PATCH, EXPECTED)
_REQUIRED: Mapping[Form, tuple[str, ...]] = {
    "plain": _BOTH,
    "own": (*_BOTH, *_EXPECTING),
    "shipped": (*_BOTH, *_EXPECTING, DOCKERFILE, VERIFY),
}
_TOP = frozenset(
    {TASK, INSTRUCTION, "README.md", "LICENSE", ".gitignore", ".harborignore", "trajectory.json"}
)
_FOLDERS = frozenset({"environment", "solution", "tests", "steps"})
_SCRAP = re.compile(
    r"(?:.*\.(?:orig|rej|bak|old|tmp|log|patch~)|\.#.*|#.*#|Thumbs\.db|\.idea|\.vscode"
    r"|.*_(?:BACKUP|BASE|LOCAL|REMOTE)_\d+.*)",
    re.IGNORECASE,
)
_READ_BY_ENGINE = frozenset(
    {"Dockerfile", ".dockerignore", "Dockerfile.dockerignore", "docker-compose.yaml"}
    | {"docker-compose.yml", "singularity-compose.yaml"}
)
_TEST_FILES = frozenset(
    {"test.sh", "test.patch", "expected_tests.json", "verify.json", "quarantine.json"}
    | {".harborignore"}
)


def _id(task: Content) -> Iterator[Spot]:
    if not _ID.fullmatch(task.id) or ".." in task.id:
        yield Spot(file="", message=f"the id {task.id!r} can't be an image tag and a task's name")


def _required(task: Content) -> Iterator[Spot]:
    for path in _REQUIRED[task.form]:
        if path not in task.files and not (path == TEST and _tests_elsewhere(task)):
            yield Spot(file=path, message=f"is missing; a task of the form {task.form!r} needs it")
    has_image = isinstance(table(task.config, "environment").get("docker_image"), str)
    if not has_image and not any(path in task.files for path in (DOCKERFILE, *_COMPOSE)):
        yield Spot(
            file=DOCKERFILE,
            message="is missing, and task.toml names no docker_image",
            mend="Add environment/Dockerfile.",
        )


def _tests_elsewhere(task: Content) -> bool:
    """Whether the tests of a Harbor task stand in its steps, or in an image of their own."""
    return any(p.startswith("steps/") for p in task.files) or "tests/Dockerfile" in task.files


def _unreadable(task: Content) -> Iterator[Spot]:
    for flaw in task.unread:
        yield Spot(file=flaw.file, message=flaw.message)


def _text(task: Content) -> Iterator[Spot]:
    data = task.data.get(INSTRUCTION)
    if data is None:
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield Spot(
            file=INSTRUCTION,
            where=f"line {data[: error.start].count(10) + 1}",
            message=f"byte 0x{data[error.start]:02x} isn't UTF-8",
        )
        return
    if not text.strip():
        yield Spot(file=INSTRUCTION, message="is empty", mend="Say what the agent is to do.")


def _names(task: Content) -> Iterator[Spot]:
    for path in task.files:
        problem = _name_problem(path)
        if problem:
            yield Spot(file=path, message=f"the name {problem}")


def _name_problem(path: str) -> str:
    if path.isascii() and path.isprintable() and "\\" not in path and len(path) <= _LONGEST:
        return ""
    if any(0xD800 <= ord(character) < 0xE000 for character in path):
        return "isn't UTF-8"
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in path):
        return "holds a control character"
    if "\\" in path:
        return "holds a backslash, which some systems take for a folder"
    return "is too long" if len(path) > _LONGEST else ""


def _links(task: Content) -> Iterator[Spot]:
    for path, entry in task.files.items():
        if entry.kind == "link" and not entry.inside:
            yield Spot(file=path, message=f"the link to {entry.target!r} leads out of the task")
        elif entry.kind == "other":
            yield Spot(file=path, message="is neither a file, a folder nor a link")


def _case(task: Content) -> Iterator[Spot]:
    for earlier, path in colliding(task.files):
        yield Spot(file=path, message=f"differs from {earlier!r} only in case or in Unicode form")


def colliding(names: Mapping[str, object] | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Pairs of names that some file systems hold for the same."""
    seen: dict[str, str] = {}
    for name in names:
        key = name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            yield seen[key], name
        else:
            seen[key] = name


def _leftovers(task: Content) -> Iterator[Spot]:
    for path in task.files:
        reason = _leftover(task, path)
        if reason:
            yield Spot(file=path, message=reason)


def _leftover(task: Content, path: str) -> str:
    """Why nothing seems to use a file; empty where something may."""
    folder, _, rest = path.partition("/")
    if path not in _TOP and (not rest or folder not in _FOLDERS):
        return "is no part of a Harbor task"
    if folder != "tests" and any(_SCRAP.fullmatch(part) for part in path.split("/")):
        return "looks like something that an editor or a tool left behind"
    if folder == "environment":
        return _unused_in_build(task, rest)
    if folder == "solution":
        return _unnamed(task, rest, SOLVE, {"solve.sh", "solve.bat", "fix.patch"})
    if folder == "tests" and task.form == "shipped":
        shipped = {p.partition("/")[2] for p in task.around.shipped}
        return _unnamed(task, rest, VERIFY, _TEST_FILES | shipped)
    return ""


def _unused_in_build(task: Content, name: str) -> str:
    """A file of the build context that no COPY takes. Other builders than Docker may take more."""
    if name in _READ_BY_ENGINE or task.dockerfile is None or _has_other_builders(task):
        return ""
    return "" if takes(task.copied, name) else "is copied into no image"


def _has_other_builders(task: Content) -> bool:
    return any("compose" in path for path in task.files if path.startswith("environment/"))


def _unnamed(task: Content, name: str, reader: str, known: set[str] | frozenset[str]) -> str:
    """A file beside a script that doesn't name it, nor any folder of it, nor works by pattern."""
    script = task.data.get(reader)
    if name in known or script is None:
        return ""
    parts = name.encode("utf-8", "surrogateescape").split(b"/")
    if any(part in script for part in parts) or re.search(
        rb"/(?:solution|tests)/?(?:\*|\s|\"|')", script
    ):
        return ""
    return f"is named nowhere in {reader}"


def _compose_files(task: Content) -> "Iterator[tuple[str, ComposeFile]]":
    for path in _COMPOSE:
        if path in task.data:
            from kbench_build.rules.compose import read_compose  # noqa: PLC0415 - few tasks have one

            yield path, read_compose(task.data[path])


def _refused_compose(task: Content) -> Iterator[Spot]:
    for path, found in _compose_files(task):
        for problem in found.problems:
            where = f"line {problem.line}" if problem.line else ""
            yield Spot(file=path, where=where, message=problem.message)


def _compose(task: Content) -> Iterator[Spot]:
    for path, found in _compose_files(task):
        built = {service.image for service in found.services if service.builds}
        for image, line in dict.fromkeys((s.image, s.line) for s in found.services):
            if image and image not in built and _is_nobodys(task, image):
                message = f"names the image {image}, which nothing builds"
                yield Spot(file=path, where=f"line {line}", message=message)


def _is_nobodys(task: Content, image: str) -> bool:
    """Whether an image looks like one of the dataset's own, and is none."""
    around = task.around
    known = {base_image(around.namespace, base) for base in around.bases}
    ours = image.startswith(f"{around.namespace}/") or task.id.lower() in image.lower()
    return (
        ours and "$" not in image and image not in known | {task_image(around.namespace, task.id)}
    )


def _base_copies(task: Content) -> Iterator[Spot]:
    for path, data in task.data.items():
        if path == DOCKERFILE or "dockerfile" not in path.rpartition("/")[2].lower():
            continue
        text = data.decode("utf-8", "replace")
        for base, recipe in task.around.recipes.items():
            if _nearly(text, recipe):
                same = "is" if text == recipe else "is nearly"
                yield Spot(file=path, message=f"{same} a copy of {base}, which the task stands on")
                break


def _nearly(text: str, other: str) -> bool:
    """Whether two Dockerfiles have the same bytes, or nearly all their lines in common."""
    if text == other:
        return True
    mine, theirs = (
        {line.strip() for line in lines.splitlines() if line.strip() and line.strip()[0] != "#"}
        for lines in (text, other)
    )
    shared = len(mine & theirs)
    return shared >= _TELLING_LINES and shared >= _NEARLY * len(mine | theirs)


def _line_ends(task: Content) -> Iterator[Spot]:
    for path, data in task.data.items():
        if path.endswith(".sh") and (at := data.find(b"\r\n")) >= 0:
            line = data.count(b"\n", 0, at) + 1
            yield Spot(
                file=path, where=f"line {line}", message="ends in CR LF, which shells refuse"
            )


def _mixed_line_ends(task: Content) -> Iterator[Spot]:
    data = task.data.get(INSTRUCTION, b"")
    windows = data.count(b"\r\n")
    if windows and windows != data.count(b"\n"):
        yield Spot(file=INSTRUCTION, message=f"mixes line ends: {windows} of them are CR LF")


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="layout/id",
        severity="error",
        why="The id names the task's folder, its image tag and its place in the graph.",
        mend="Rename the folder: letters, digits, '_', '.' and '-', at most 128.",
        find=_id,
    ),
    Check(
        id="layout/required",
        severity="error",
        why="Harbor drops such a task silently, and a verifier without its files can't judge.",
        mend="Add the file.",
        find=_required,
    ),
    Check(
        id="layout/unreadable",
        severity="error",
        why="What can't be read can't be checked, and nobody else can read it either.",
        mend="Make it a readable file of usual size.",
        find=_unreadable,
    ),
    Check(
        id="layout/instruction",
        severity="error",
        why="The instruction is all that the agent is told.",
        mend="Write it as UTF-8 text.",
        find=_text,
    ),
    Check(
        id="layout/name",
        severity="error",
        why="Such names break lists of files, archives, or other systems.",
        mend="Rename the file.",
        find=_names,
    ),
    Check(
        id="layout/link",
        severity="error",
        why="A release must hold all that it needs, and unpacking it must write nothing elsewhere.",
        mend="Put the file itself in place of the link.",
        find=_links,
    ),
    Check(
        id="layout/case",
        severity="error",
        why="On file systems that ignore case one of the two files is lost.",
        mend="Rename one of them.",
        find=_case,
    ),
    Check(
        id="layout/leftover",
        severity="warning",
        why="Files that nothing uses mislead readers, and may show what should be hidden.",
        mend="Delete it, or use it.",
        find=_leftovers,
    ),
    Check(
        id="layout/compose",
        severity="error",
        why="Compose refuses such a file, and so every run of the task that goes by it fails.",
        mend="Mend it (`docker compose config` says what Compose reads), or delete it.",
        find=_refused_compose,
    ),
    Check(
        id="layout/compose-image",
        severity="warning",
        why="Who follows the file starts an image that isn't there, or another one of that name.",
        mend="Delete the file, or name the image that the Dockerfile beside it makes.",
        find=_compose,
    ),
    Check(
        id="layout/base-copy",
        severity="warning",
        why="A copy of the base's recipe builds nothing, and goes stale when the base changes.",
        mend="Delete it: the task's Dockerfile names the base.",
        find=_base_copies,
    ),
    Check(
        id="layout/script-line-ends",
        severity="error",
        why="A shell takes the CR for part of the last word of the line.",
        mend="Save the script with LF line ends.",
        find=_line_ends,
    ),
    Check(
        id="layout/line-ends",
        severity="note",
        why="Mixed line ends show up in prompts, and make diffs noisy.",
        mend="Save the file with LF line ends.",
        find=_mixed_line_ends,
    ),
)
