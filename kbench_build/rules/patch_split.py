"""A change's patch parted by what its files are for, without losing a byte.

Promises: the parts are the patch's own sections, each in one part, in order; applied one after
another, in any order, they make the tree that the whole patch makes. A patch where a file moves
from one part to another can't be parted so, and says so: it is to be made without renames. Takes
patches that git made; leaves others to `patches`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from kbench_build.rules.patches import parse_patch
from kbench_build.rules.path_kinds import KINDS, Kind, Patterns

# In a hunk each line begins with a mark, in a binary part with a letter and no space follows.
_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)
_BODY = re.compile(rb"^(?:@@ |GIT binary patch$)", re.MULTILINE)
_CHANGED = re.compile(rb"^[+-]", re.MULTILINE)
_SUBMODULE = "160000"


@dataclass(frozen=True, kw_only=True)
class Section:
    """One file's part of a patch. `lines` are those added and removed, 0 for a binary file."""

    old: str | None
    new: str | None
    kind: Kind
    lines: int
    data: bytes
    crosses: bool = False
    submodule: bool = False

    @property
    def path(self) -> str:
        """The path after the change; before it where the file goes."""
        return self.new or self.old or ""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The sections of a patch, by what their files are for."""

    sections: tuple[Section, ...]

    @property
    def crosses(self) -> bool:
        """Whether a file is moved from one kind to another: make the patch without renames."""
        return any(section.crosses for section in self.sections)

    @property
    def lines(self) -> Mapping[Kind, int]:
        """How many lines each kind adds and removes."""
        return {k: sum(s.lines for s in self.sections if s.kind == k) for k in KINDS}

    def patch(self, *kinds: Kind) -> bytes:
        """The part of these kinds."""
        return b"".join(section.data for section in self.sections if section.kind in kinds)

    def paths(self, *kinds: Kind) -> tuple[str, ...]:
        """The paths of these kinds, as they are after the change."""
        return tuple(section.path for section in self.sections if section.kind in kinds)


def split_patch(patch: bytes, patterns: Patterns) -> Split:
    """Part a patch of `git diff` (with `--full-index --binary`)."""
    return Split(sections=tuple(_section(data, patterns) for data in _pieces(patch)))


def _pieces(patch: bytes) -> Iterator[bytes]:
    starts = [found.start() for found in _SECTION.finditer(patch)]
    for start, end in pairwise([*starts, len(patch)]):
        yield patch[start:end]


def _section(data: bytes, patterns: Patterns) -> Section:
    body = _BODY.search(data)
    head = data[: body.start()] if body else data
    file = parse_patch(head).files[0]
    kinds = patterns.kinds_of(file.paths)
    is_text = body is not None and body[0].startswith(b"@@")
    return Section(
        old=file.old,
        new=file.new,
        kind=patterns.kind_of(file.new or file.old or ""),
        lines=len(_CHANGED.findall(data, body.start())) if body and is_text else 0,
        data=data,
        crosses=len(kinds) > 1,
        submodule=_SUBMODULE in (file.old_mode, file.new_mode),
    )
