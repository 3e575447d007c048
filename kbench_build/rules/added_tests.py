"""Tests that a patch adds, told by their declarations in Kotlin, Java and Groovy.

Promises: only plain `@Test` functions; one that may be named or skipped by something else (a
display name, a condition, parameters) is left out, as is what stands in a raw string. Linear in
the patch.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbench_build.rules.patches import FilePatch, Patch

_FILE = re.compile(r".*\.(?:kt|java|groovy)")
_ANNOTATION = re.compile(r"\s*@(?:[\w.]+\.)?(\w+)(?:\((?:[^()]|\([^()]*\))*\))?")
_FUN = re.compile(
    r"\s*(?:(?:public|internal|private|protected|override|open|final|suspend|abstract|inline)\s+)*"
    r"fun\s+(?:<[^>]{1,80}>\s*)?(?:[\w.]{1,80}\.)?(?:`([^`\n]+)`|(\w+))\s*\("
)
_METHOD = re.compile(
    r"\s*(?:(?:public|protected|private|static|final|synchronized|default)\s+)*"
    r"(?:void|def)\s+(?:\"([^\"\n]+)\"|(\w+))\s*\("
)
# Annotations that leave a test's name and whether it runs as they are.
_HARMLESS = frozenset(
    {
        "Test",
        "Throws",
        "Timeout",
        "Tag",
        "Order",
        "Suppress",
        "SuppressWarnings",
        "OptIn",
        "JvmName",
    }
    | {"Override", "Deprecated", "JsName", "Ticket", "Issue", "GitHubIssue"}
)
_LONGEST = 2_000
_MOST_LINES = 8


@dataclass(frozen=True, kw_only=True)
class AddedTest:
    """A test's name as declared, the file it is added to, and the line of the file's patch."""

    name: str
    path: str
    line: int


def added_tests(patch: Patch) -> Iterator[AddedTest]:
    """The tests that a patch declares in lines that it adds and doesn't take away elsewhere."""
    removed = {name for file in patch.files for name in _names(file, file.removed)}
    for file in patch.files:
        for name in _names(file, file.added):
            if name not in removed:
                yield AddedTest(name=name, path=file.new or "", line=file.line)


def _names(file: FilePatch, lines: Iterable[bytes]) -> Iterator[str]:
    path = file.new or file.old or ""
    if not _FILE.fullmatch(path):
        return
    code = _outside_strings(lines)
    for index, line in enumerate(code):
        if "@" in line and (match := _ANNOTATION.match(line)):
            name = _declared(code[index : index + _MOST_LINES]) if match[1] == "Test" else None
            if name and (index == 0 or not _ANNOTATION.match(code[index - 1])):
                yield name


def _outside_strings(lines: Iterable[bytes]) -> Sequence[str]:
    """The lines as text, those in or at a raw string made empty."""
    inside, code = False, []
    for line in lines:
        marks = line.count(b'"""')
        plain = not inside and not marks and len(line) <= _LONGEST
        code.append(line.decode("utf-8", "replace") if plain else "")
        inside ^= marks % 2 == 1
    return code


def _declared(lines: Sequence[str]) -> str | None:
    """The name of the function that annotations stand before; None where that isn't plain."""
    for line in lines:
        rest = line
        while match := _ANNOTATION.match(rest):
            if match[1] not in _HARMLESS:
                return None
            rest = rest[match.end() :]
        if rest.strip() and not rest.lstrip().startswith(("//", "*", "/*")):
            found = _FUN.match(rest) or _METHOD.match(rest)
            return (found[1] or found[2]) if found else None
    return None
