"""Reads `bases/manifest`: one base a line, `repo base-tag dockerfile`, `#` begins a comment.

Every line that can be read is read and everything wrong is said at once. The last line counts
whether or not it ends with a newline.
"""

import re
from collections.abc import Mapping

from kbench_build.model import Base, Finding
from kbench_build.rules.findings import bounded

MANIFEST = "bases/manifest"

_REPO = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# Task images are tags of `<namespace>/task`, so no base may be called that.
_RESERVED = "task"


def parse_manifest(text: str) -> tuple[tuple[Base, ...], tuple[Finding, ...]]:
    """The bases in the order of their lines, and what is wrong with the other lines."""
    bases: dict[str, Base] = {}
    findings: list[Finding] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        problem = _problem(fields, bases)
        if problem:
            findings.append(_finding(number, *problem))
        else:
            repo, tag, dockerfile = fields
            base = Base(repo=repo, tag=tag, dockerfile=f"bases/{repo}/{dockerfile}", line=number)
            bases[base.name] = base
    if text and not text.endswith("\n"):
        findings.append(_unterminated(len(text.splitlines())))
    return tuple(bases.values()), bounded(findings)


def _problem(fields: list[str], earlier: Mapping[str, Base]) -> tuple[str, str] | None:
    """What is wrong with a line's fields and how to mend it."""
    if len(fields) != 3:
        return (
            f"{len(fields)} fields where there must be 3: repo base-tag dockerfile",
            "Write three fields, separated by spaces.",
        )
    repo, tag, dockerfile = fields
    if not _REPO.fullmatch(repo) or repo == _RESERVED:
        return (
            f"{repo!r} can't be the name of a base's repository",
            "Use lower-case letters, digits, '.', '_' and '-', and not the name 'task'.",
        )
    if not _TAG.fullmatch(tag):
        return f"{tag!r} can't be an image tag", "Use letters, digits, '.', '_' and '-'."
    if dockerfile.startswith("/") or ".." in dockerfile.split("/"):
        return (
            f"the Dockerfile {dockerfile!r} lies outside bases/{repo}/",
            f"Name a file below bases/{repo}/.",
        )
    twin = earlier.get(f"{repo}:{tag}")
    if twin:
        return (
            f"{repo}:{tag} stands in line {twin.line} already",
            "Keep one of the two lines.",
        )
    return None


def _finding(line: int, message: str, mend: str) -> Finding:
    return Finding(
        rule="manifest/line",
        severity="error",
        file=MANIFEST,
        where=f"line {line}",
        message=message,
        mend=mend,
    )


def _unterminated(line: int) -> Finding:
    return Finding(
        rule="manifest/unterminated",
        severity="warning",
        file=MANIFEST,
        where=f"line {line}",
        message="the last line has no newline, which shell scripts that read the file skip",
        mend="End the file with a newline.",
    )
