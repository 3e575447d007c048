"""Checks of the gold patch and the hidden patch as texts: can git take them, what they touch."""

import re
from collections.abc import Iterator

from kbench_build.rules.content import FIX, TEST_PATCH, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.patches import FilePatch, Patch, escapes

_DOCS = re.compile(
    r"(?:.*/)?(?:docs?/.*|[^/]*\.(?:md|adoc|rst)|(?:CHANGELOG|CHANGES|HISTORY|RELEASE_NOTES)[^/]*"
    r"|(?:README|CONTRIBUTING|LICENSE|AUTHORS)[^/]*)",
    re.IGNORECASE,
)
# Source sets of Gradle and Maven (test, jvmTest, androidTest), and folders of test projects. What a
# module such as `acme-test` has in src/main is shipped, though: it helps others to test.
_TEST_FOLDER = re.compile(
    r"(?:.*/)?(?:src/(?:[a-z][A-Za-z0-9]*)?[tT]est[A-Za-z0-9]*|src/it|tests?|testData|test-data"
    r"|[a-z0-9-]*-tests?(?!/src/main/)|test-[a-z0-9-]+|__tests__|fixtures)/.*"
)
_MAIN = "/src/main/"
_TEST_NAME = re.compile(
    r"(?:.*/)?(?:[^/]+(?:Tests?|Spec|IT)\.(?:kts?|java|groovy|scala)"
    r"|test_[^/]+\.py|conftest\.py|[^/]+_test\.(?:py|go)|[^/]+\.(?:test|spec)\.[cm]?[jt]sx?"
    r"|spec/.*\.[jt]s)"
)
_SOURCE = re.compile(r"(?:.*/)?src/.*\.(?:kts?|java|groovy|scala)|.*\.(?:kt|java)")


def kind_of(path: str) -> str:
    """`test`, `docs`, `source` or `other`: what a file of a repository is for, by its path.

    For checks, which know neither the language nor any setting: a file that a preset of mining (see
    `path_kinds`) would run as a test is one here, and so are projects that only serve tests.
    """
    # Below src/main folders are packages: `com/acme/test` is what its module is.
    module, main, _ = path.partition(_MAIN)
    if _TEST_FOLDER.fullmatch(module + main) or _TEST_NAME.fullmatch(path):
        return "test"
    if _DOCS.fullmatch(path):
        return "docs"
    return "source" if _SOURCE.fullmatch(path) else "other"


def _patches(task: Content) -> Iterator[tuple[str, Patch]]:
    for path in (FIX, TEST_PATCH):
        patch = task.fix if path == FIX else task.test
        if patch is not None:
            yield path, patch


def _malformed(task: Content) -> Iterator[Spot]:
    for path, patch in _patches(task):
        for flaw in patch.malformed:
            yield Spot(file=path, where=f"line {flaw.line}", message=flaw.message)


def _empty(task: Content) -> Iterator[Spot]:
    for path, patch in _patches(task):
        if not patch.files:
            yield Spot(file=path, message="changes no file")


def _paths(task: Content) -> Iterator[Spot]:
    for path, patch in _patches(task):
        for file in patch.files:
            for name in file.paths:
                if problem := escapes(name):
                    message = f"the path {name!r} {problem}"
                    yield Spot(file=path, where=f"line {file.line}", message=message)


def _twice(task: Content) -> Iterator[Spot]:
    for path, patch in _patches(task):
        seen: dict[str, FilePatch] = {}
        for file in patch.files:
            name = file.new or file.old
            if name is None:
                continue
            if name in seen:
                message = f"{name!r} is patched in line {seen[name].line} already"
                yield Spot(file=path, where=f"line {file.line}", message=message)
            seen[name] = file


def _overlap(task: Content) -> Iterator[Spot]:
    if task.fix is None or task.test is None:
        return
    shared = set(task.fix.paths)
    for file in task.test.files:
        for name in file.paths:
            if name in shared:
                message = f"{name!r} is touched by {FIX} too"
                yield Spot(file=TEST_PATCH, where=f"line {file.line}", message=message)


def _mixed(task: Content) -> Iterator[Spot]:
    for path, patch in _patches(task):
        unwanted = ("docs", "test") if path == FIX else ("source", "docs")
        for file in patch.files:
            name = file.new or file.old or ""
            kind = kind_of(name)
            if kind in unwanted:
                message = f"touches {name!r}, which looks like {_KIND[kind]}"
                yield Spot(file=path, where=f"line {file.line}", message=message)


_KIND = {"docs": "documentation", "test": "a test", "source": "source code"}


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="patch/malformed",
        severity="error",
        why="git refuses the whole patch at such a line.",
        mend="Make the patch again with `git diff --binary --full-index`.",
        find=_malformed,
        forms=("shipped", "own"),
    ),
    Check(
        id="patch/incomplete",
        severity="warning",
        why="Programs skip such a part of a patch without a word, or stop at it.",
        mend="Make the patch again with `git diff --binary --full-index`.",
        find=_malformed,
        forms=("plain",),
    ),
    Check(
        id="patch/empty",
        severity="error",
        why="Without a change there is nothing to solve or to test.",
        mend="Put the change into the patch.",
        find=_empty,
    ),
    Check(
        id="patch/path",
        severity="error",
        why="A patch must write below the checkout and nowhere else.",
        mend="Make the patch from the root of the checkout.",
        find=_paths,
    ),
    Check(
        id="patch/twice",
        severity="error",
        why="A file that is patched twice depends on an order that no reader sees.",
        mend="Make one change of the two.",
        find=_twice,
        forms=("shipped", "own"),
    ),
    Check(
        id="patch/overlap",
        severity="error",
        why="A file in both patches is changed twice, and the second change may not apply.",
        mend="Keep each file in one patch.",
        find=_overlap,
    ),
    Check(
        id="patch/mixed",
        severity="warning",
        why="The gold patch is the fix and the hidden patch its tests; other parts blur both.",
        mend="Leave the file out of this patch.",
        find=_mixed,
        forms=("shipped", "own"),
    ),
)
