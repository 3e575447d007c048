"""Checks of where a build takes the repository from: the commit before the fix, or the fixed one.

Promises: decides by what the build says of itself; that a commit exists is left to others. A build
may take any commit that isn't known to be the fix's.
"""

import re
from collections.abc import Iterable, Iterator

from kbench_build.rules.build_lines import Line
from kbench_build.rules.content import Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.origin import Origin
from kbench_build.rules.recipes import reversed_fixes

_PULL = re.compile(r"(?:^|[/:+])(?:pull|merge-requests|pull-requests)/(\d+)(?:[/:].*)?")
_COMMIT = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-f]{40}|[0-9a-f]{64})(?![0-9A-Za-z])")


def _fixed_clone(task: Content) -> Iterator[Spot]:
    origin = task.origin
    lines = [line for line in task.built if line.name == "git"]
    taken_back = any(map(_COMMIT.search, _words(lines))) and bool(reversed_fixes(task))
    seen: set[str] = set()
    for line in lines:
        for what, why in _fixed(line, origin, taken_back=taken_back):
            if what not in seen:
                seen.add(what)
                yield Spot(file=line.file, where=line.where, message=f"takes {what}, {why}")


def _words(lines: Iterable[Line]) -> Iterator[str]:
    return (word for line in lines for word in line.words)


def _fixed(line: Line, origin: Origin, *, taken_back: bool) -> Iterator[tuple[str, str]]:
    """(what a command of git takes, why that is the fix); the patch is reversed afterwards."""
    for word in line.words[1:]:
        pull = _PULL.search(word)
        if pull and pull[1] == origin.change:
            yield word, "which is the change that fixes it"
        for commit in _COMMIT.findall(word):
            if commit in origin.commits:
                yield commit, "which task.toml gives beside the base commit"
            elif taken_back and commit != origin.base:
                yield commit, "where the fix is, for it is taken back afterwards"


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="leak/fixed-clone",
        severity="warning",
        why="A layer that once held the fixed tree shows it to whoever reads the image's layers.",
        mend="Take the commit before the fix.",
        find=_fixed_clone,
    ),
)
