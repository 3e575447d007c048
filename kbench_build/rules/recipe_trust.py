"""Checks of what a build takes on trust: images and clones that move, downloads, lost failures.

The same questions are asked of the bases' Dockerfiles and of the tasks', with the scripts beside
them that they run. Promises: what is named is so by the text itself; what hangs on a value that is
written nowhere isn't named. Leaves whether the build works to the engine, and package managers'
own pinning to them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kbench_build.model import Severity
from kbench_build.rules.build_lines import Line, build_lines
from kbench_build.rules.content import DOCKERFILE, TEST, Content
from kbench_build.rules.dockerfile import Instruction, images, stages
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.images import SCRATCH

_MOVING_TAGS = frozenset(
    (
        "latest",
        "stable",
        "edge",
        "nightly",
        "lts",
        "main",
        "master",
        "rolling",
        "current",
        "dev",
        "devel",
        "testing",
        "unstable",
        "sid",
        "next",
        "canary",
        "beta",
    )
)
_MOST_INSTRUCTIONS = 2000
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_SHORT_COMMIT = re.compile(r"(?=[0-9a-f]*\d)[0-9a-f]{7,64}")
# A release's tag isn't meant to move.
_RELEASE = re.compile(r"(?:refs/tags/|tags/)?[A-Za-z_-]{0,20}[-_/@]?v?\d+(?:[._]\d+)+[\w.+-]*")
_URL = re.compile(r"(?:https?|ftp)://([^/\s:]+)", re.IGNORECASE)
_LOCAL_HOST = re.compile(r"localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1\]|host\.docker\.internal")
_CURL_FILE = re.compile(r"-[a-zA-Z]*o|--output")
_WGET_FILE = re.compile(r"-[a-zA-Z]*O|--output-document")
_REMOTE = re.compile(r"(?:https?|ssh|git|git\+https)://|[\w.-]+@[\w.-]+:|\$|[\w.-]+\.[a-z]+:")
_GIT_URL = re.compile(r"git\+(?:https?|ssh)://\S+?(?:@(?P<rev>[\w./-]+))?(?:#.*)?")
_ADD_GIT = re.compile(r"(?:https?://\S+\.git|git@\S+?\.git|git://\S+?)(?:#(?P<rev>[^:\s]+).*)?")
_CHECKERS = re.compile(r"(?:sha\d+|md5|b2|b3|blake3|ck)sum|shasum|gpgv|cosign|minisign|rhash")
_CHECKSUM_FILES = re.compile(r"\.(?:sha\d+|sha\d*sums?|md5|asc|sig|minisig)(?:\W|$)|sums?\.|SUMS")
_TOOLS: Mapping[str, re.Pattern[str]] = {
    "python3": re.compile(r"python3?(?:[.-].*)?"),
    "git": re.compile(r"git(?:-core|-all)?"),
    "curl": re.compile(r"curl"),
    "wget": re.compile(r"wget"),
    "jq": re.compile(r"jq"),
    "patch": re.compile(r"patch"),
    "xmllint": re.compile(r"libxml2(?:-utils)?"),
    "bc": re.compile(r"bc"),
    "unzip": re.compile(r"unzip"),
    "node": re.compile(r"node(?:js)?"),
}
_INSTALLS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("apt-get", "apt", "aptitude"), frozenset({"install", "update", "upgrade"})),
    "apk": frozenset({"add", "update"}),
    **dict.fromkeys(("yum", "dnf", "microdnf", "zypper"), frozenset({"install", "update"})),
    **dict.fromkeys(("pip", "pip3", "uv", "pipx", "poetry"), frozenset({"install", "sync"})),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"),
        frozenset(
            (
                "install",
                "i",
                "ci",
                "add",
                "run",
                "build",
                "rebuild",
            )
        ),
    ),
    "git": frozenset(
        (
            "clone",
            "fetch",
            "checkout",
            "reset",
            "apply",
            "am",
            "submodule",
            "pull",
            "switch",
        )
    ),
    "cargo": frozenset({"build", "fetch", "install", "test"}),
    "go": frozenset({"build", "install", "get", "mod", "test"}),
    "rustup": frozenset({"install", "toolchain", "default", "component", "target"}),
    "bundle": frozenset({"install"}),
    "gem": frozenset({"install"}),
    "dotnet": frozenset({"restore", "build"}),
}
_BUILDS = frozenset(
    (
        "patch",
        "curl",
        "wget",
        "tar",
        "unzip",
        "make",
        "cmake",
        "ninja",
        "mvn",
        "mvnw",
        "gradle",
        "gradlew",
        "sbt",
        "bazel",
    )
)

Place = tuple[str, str, str]
"""File, place in it, message."""


class Recipe(NamedTuple):
    """A Dockerfile, and all that it runs."""

    file: str
    instructions: tuple[Instruction, ...]
    lines: tuple[Line, ...]


# Images.


def _outside(recipe: Recipe, namespace: str) -> Iterator[tuple[str, str]]:
    """(place, image) for each image that comes from elsewhere and is named in full."""
    lines = {s.image: s.line for s in stages(recipe.instructions) if s.image is not None}
    for image in images(recipe.instructions):
        ours = not image or image == SCRATCH or image.startswith(f"{namespace}/")
        if not ours and "$" not in image:
            yield (f"line {lines[image]}" if image in lines else ""), image


def _tag(image: str) -> str:
    """An image's tag, empty where it has none."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[2]


def floating(recipe: Recipe, namespace: str) -> Iterator[Place]:
    """Images without a tag, or with one that is meant to move."""
    for where, image in _outside(recipe, namespace):
        if "@" not in image:
            tag = _tag(image)
            if not tag:
                yield recipe.file, where, f"{image} has no tag, so it is whatever is newest"
            elif tag.lower() in _MOVING_TAGS:
                yield recipe.file, where, f"the tag of {image} is meant to move"


def unpinned(recipe: Recipe, namespace: str) -> Iterator[Place]:
    """Images with a tag that says what they are, but no digest."""
    for where, image in _outside(recipe, namespace):
        if "@" not in image and _tag(image) and _tag(image).lower() not in _MOVING_TAGS:
            yield recipe.file, where, f"{image} has no digest, and its tag may be set anew"


# Clones.


def _git(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The git command among these words and what follows it; empty where it is none."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-C", "-c", "--git-dir", "--work-tree") else 1
    is_git = bool(words) and words[0].rpartition("/")[2] == "git" and at < len(words)
    return (words[at], words[at + 1 :]) if is_git else ("", ())


def moving(recipe: Recipe) -> Iterator[Place]:
    """Clones of a remote repository after which no commit is checked out."""
    clones = [i for i, line in enumerate(recipe.lines) if _clones(line)]
    pins = [i for i, line in enumerate(recipe.lines) if _pins(line)]
    for index, at in enumerate(clones):
        end = clones[index + 1] if index + 1 < len(clones) else len(recipe.lines)
        line = recipe.lines[at]
        enough = len([pin for pin in pins if pin >= clones[0]]) >= len(clones)
        if not enough and not any(at <= pin < end for pin in pins):
            yield line.file, line.where, f"{line.shown} takes what is there on that day"
    yield from _moving_sources(recipe)


def _clones(line: Line) -> bool:
    command, rest = _git(line.words)
    sources = [word for word in rest if not word.startswith("-")]
    return command == "clone" and any(_REMOTE.match(word) for word in sources)


def _pins(line: Line) -> bool:
    command, rest = _git(line.words)
    if command in ("checkout", "reset", "switch", "fetch", "worktree", "clone"):
        values = [word.rpartition("=")[2] for word in rest]
        return any(_SHORT_COMMIT.fullmatch(v) or _RELEASE.fullmatch(v) for v in values)
    return any(_COMMIT.fullmatch(word) for word in line.words)


def _moving_sources(recipe: Recipe) -> Iterator[Place]:
    for line in recipe.lines:
        for word in line.words[1:]:
            match = _GIT_URL.fullmatch(word)
            if match and not _is_fixed(match["rev"]):
                yield line.file, line.where, f"{word} names no commit"
    for instruction in recipe.instructions:
        if instruction.name == "ADD":
            for word in instruction.arguments.split():
                match = _ADD_GIT.fullmatch(word)
                if match and not _is_fixed(match["rev"]):
                    yield recipe.file, f"line {instruction.line}", f"ADD {word} names no commit"


def _is_fixed(revision: str | None) -> bool:
    return bool(revision and (_SHORT_COMMIT.fullmatch(revision) or _RELEASE.fullmatch(revision)))


# Downloads.


def downloads(recipe: Recipe) -> Iterator[Place]:
    """Files from the network whose content nothing checks."""
    lines = tuple(enumerate(recipe.lines))
    found = [(i, line, _target(line)) for i, line in lines if downloads_from(line)]
    targets = {target for _, _, target in found if target}
    checks = [(i, _mentions(line)) for i, line in lines if _checks(line)]
    # What each check names of ours; one that names nothing reads a list of names.
    named = [(i, {t for t in targets if t in text}) for i, text in checks]
    for index, line, target in found:
        if not target:
            taker = line.step.after[0].name if line.step.after else ""
            into = f" goes straight into `{taker}`" if taker else " isn't checked"
            yield line.file, line.where, f"{line.shown}: what comes{into}"
        elif not any(at > index and (target in names or not names) for at, names in named):
            yield line.file, line.where, f"{line.shown}: nothing checks what came"
    yield from _added(recipe, [text for _, text in checks])


def _added(recipe: Recipe, checks: list[str]) -> Iterator[Place]:
    for instruction in recipe.instructions[:_MOST_INSTRUCTIONS]:
        words = instruction.arguments.split()
        if instruction.name != "ADD" or any(w.startswith("--checksum=") for w in words):
            continue
        for word in words[:-1]:
            if _URL.match(word) and not _ADD_GIT.fullmatch(word):
                name = word.rstrip("/").rpartition("/")[2]
                if not any(name in text or not name for text in checks):
                    message = f"ADD {word}: nothing checks what came"
                    yield recipe.file, f"line {instruction.line}", message


def downloads_from(line: Line) -> bool:
    """Whether a command fetches something that is used from another machine."""
    if line.name not in ("curl", "wget"):
        return False
    if any(w in ("--head", "-I", "--spider", "--version", "-V", "--help") for w in line.words):
        return False
    addresses = [w for w in line.words[1:] if _URL.match(w) or (w[:1] == "$" and w[1:2] != "(")]
    if not addresses or any(_CHECKSUM_FILES.search(word) for word in addresses):
        return False
    hosts = [match[1].lower() for word in addresses if (match := _URL.match(word))]
    thrown = "/dev/null" in (*line.words, *line.step.writes)
    return not thrown and not any(_LOCAL_HOST.fullmatch(host) for host in hosts)


def _target(line: Line) -> str:
    """The last name of the file that a download is written to; empty where it is piped on."""
    words = line.words
    address = next(w for w in words[1:] if _URL.match(w) or w.startswith("$"))
    remote = address.split("?")[0].rstrip("/").rpartition("/")[2] or address
    target = ""
    flag = _WGET_FILE if line.name == "wget" else _CURL_FILE
    for at, word in enumerate(words[1:-1], 1):
        if flag.fullmatch(word):
            target = words[at + 1]
        elif word.startswith(("--output=", "--output-document=")):
            target = word.partition("=")[2]
    if not target and line.step.writes:
        target = line.step.writes[-1]
    if not target and line.name == "curl" and not _keeps_name(words):
        return ""
    if target == "-" or (not target and line.step.after):
        return ""
    return (target or remote).rpartition("/")[2] or remote


def _keeps_name(words: tuple[str, ...]) -> bool:
    """Whether curl writes a file named as the remote one."""
    return any(w == "--remote-name" or re.fullmatch(r"-[a-zA-Z]*O[a-zA-Z]*", w) for w in words)


def _checks(line: Line) -> bool:
    if line.step.dropped.startswith("`||"):
        return False
    gpg = line.name == "gpg" and "--verify" in line.words
    openssl = line.name == "openssl" and "dgst" in line.words
    return gpg or openssl or _CHECKERS.fullmatch(line.name) is not None


def _mentions(line: Line) -> str:
    """All that a check's pipe says, in which the name of the file it checks may stand."""
    command, before = line.command, line.step.before
    words = [*line.words, *command.reads, command.text]
    for part in before:
        words += [*part.words, part.text]
    return " ".join(words)


# Failures.


def swallowed(recipe: Recipe) -> Iterator[Place]:
    """Commands that the image needs, and whose failure nobody would notice."""
    for line in recipe.lines:
        if line.step.dropped and _matters(line):
            how = line.step.dropped
            if how == "the pipe" and downloads_from(line):
                continue
            yield line.file, line.where, f"{line.shown} may fail unnoticed: {_how(how)}"


def _how(dropped: str) -> str:
    if dropped == "the pipe":
        return "a pipe gives the exit code of its last command"
    if dropped == "the next command":
        return "the next command runs all the same"
    return f"{dropped} takes the failure away"


def _matters(line: Line) -> bool:
    words, name = line.words, line.name
    if name in ("sudo", "env", "timeout"):
        return False
    if name in _INSTALLS:
        command = _git(words)[0] if name == "git" else ""
        first = [w for w in words[1:] if not w.startswith("-")][:2]
        return command in _INSTALLS[name] or (
            name != "git" and any(w in _INSTALLS[name] for w in first)
        )
    if name in ("curl", "wget"):
        return downloads_from(line)
    return name in _BUILDS


def installs(line: Line) -> tuple[str, ...]:
    """The packages that a system's package manager is asked for by a command."""
    managers = ("apt-get", "apt", "aptitude", "apk", "yum", "dnf", "microdnf", "zypper")
    if line.name not in managers or not {"install", "add"} & set(line.words):
        return ()
    return tuple(w for w in line.words[1:] if not w.startswith("-") and w not in ("install", "add"))


def provides(tool: str, package: str) -> bool:
    """Whether a package, by its name, brings a tool."""
    pattern = _TOOLS.get(tool)
    return pattern is not None and pattern.fullmatch(package.partition("=")[0]) is not None


def tools_of(lines: Iterable[Line]) -> frozenset[str]:
    """The tools that these commands run, of those whose packages are known here."""
    return frozenset(line.name for line in lines if line.name in _TOOLS)


def optional_tools(recipe: Recipe, needed: Iterable[str]) -> Iterator[Place]:
    """Lines that install a tool of the verifier and go on when that fails."""
    for line in recipe.lines:
        if line.step.dropped:
            packages = installs(line)
            for tool in sorted(needed):
                if any(provides(tool, package) for package in packages):
                    message = f"brings {tool}, which {TEST} runs, and {_how(line.step.dropped)}"
                    yield line.file, line.where, message


# The same questions, asked of tasks and of bases.

_Question = Callable[[Recipe, str], Iterator[Place]]


def recipe_of(task: Content) -> Recipe:
    """The Dockerfile of a task with what it runs; empty where there is none."""
    return Recipe(DOCKERFILE, task.dockerfile or (), task.built)


def base_recipe(
    file: str, instructions: tuple[Instruction, ...], scripts: Mapping[str, tuple[str, str]]
) -> Recipe:
    """A base's Dockerfile with what it runs."""
    return Recipe(file, instructions, build_lines(file, instructions, scripts))


def spots(places: Iterable[Place]) -> Iterator[Spot]:
    """The same places as checks name them."""
    return (Spot(file=file, where=where, message=message) for file, where, message in places)


def _optional_tools(task: Content) -> Iterator[Spot]:
    yield from spots(optional_tools(recipe_of(task), tools_of(task.graded)))


def _of_task(question: _Question) -> Callable[[Content], Iterator[Spot]]:
    return lambda task: spots(question(recipe_of(task), task.around.namespace))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a recipe, with what a check says of it (see `findings.Check`)."""

    name: str
    severity: Severity
    why: str
    mend: str
    ask: _Question


QUESTIONS: tuple[Question, ...] = (
    Question(
        name="floating-tag",
        severity="warning",
        why="An image on a tag that moves is another one next month, and so are its results.",
        mend="Name a release's tag and its digest: image:1.2@sha256:….",
        ask=floating,
    ),
    Question(
        name="unpinned-image",
        severity="note",
        why="Tags are set anew with every security update: only a digest names one image.",
        mend="Add the digest: image:1.2@sha256:….",
        ask=unpinned,
    ),
    Question(
        name="moving-clone",
        severity="warning",
        why="A clone of whatever is there can't be made again, and brings what came later.",
        mend="Check out a full commit id after the clone.",
        ask=lambda recipe, _: moving(recipe),
    ),
    Question(
        name="download",
        severity="warning",
        why="What a server gives today it may not give tomorrow, and nobody would notice.",
        mend="Download to a file, and check it with sha256sum --check before its use.",
        ask=lambda recipe, _: downloads(recipe),
    ),
    Question(
        name="swallowed",
        severity="warning",
        why="An image that lacks what failed is built all the same, and fails its tests later.",
        mend="Let the build stop: join commands by &&, set -e, set -o pipefail, no || true.",
        ask=lambda recipe, _: swallowed(recipe),
    ),
)

CHECKS: tuple[Check[Content], ...] = (
    *(
        Check(
            id=f"recipe/{question.name}",
            severity=question.severity,
            why=question.why,
            mend=question.mend,
            find=_of_task(question.ask),
        )
        for question in QUESTIONS
    ),
    Check(
        id="recipe/optional-tool",
        severity="warning",
        why="Without its tools a verifier gives the reward that its fallback gives.",
        mend="Let the build stop when the installation fails.",
        find=_optional_tools,
    ),
)
