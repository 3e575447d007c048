"""Marks of a fix: lines, names and texts that only the fix or its hidden tests bring.

Promises: marks are a function of a task's patches and its instruction alone, so that an image layer
can be searched for those of many tasks at once. What the patches also remove, and what the
instruction tells, is no mark. Leaves to others where to look; what the base itself holds is taken
out afterwards (`rules.leaks`), because only the image knows it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal

from kbench_build import digest
from kbench_build.rules.patches import FilePatch, parse_patch

MARKS_VERSION = 1
LONGEST = 200
"""A longer line is searched for by its beginning."""
MOST_MARKS = 20_000

_LINE_FROM = 20
_WORDS_IN_A_LINE = 3
_WORD = re.compile(rb"[^\W\d_]{2,}")
# What any project may write: where names come from, whose the file is, what a test begins with.
_ORDINARY = re.compile(
    rb"(?:import|package|from|using|use|export \*|#\s*include|#!|require|include|module)\b"
    rb"|<\?xml|<!doctype|.*\bxmlns[:=]|http://\S+\">$|-----(?:begin|end) "
    rb"|(?:\W|\d)*(?:copyright|licen[sc]ed? |spdx-|permission is hereby|distributed (?:under|on))"
    rb"|const [\w{}, ]+ = require\(",
    re.IGNORECASE,
)
_DECLARED = re.compile(
    rb"\b(?:class|interface|object|enum|struct|trait|record|fun|func|fn|def|function|type|typealias"
    rb"|const|val|var|let)\s+(?:<[^<>]*>\s*)?(?:\w+(?:<[^<>]*>)?\??\.)*(\w{8,80})\b(?!\??\.|<[^<>]*>\.)"
)
_TEXT = re.compile(rb"\"((?:[^\"\\\n$]|\\.){12,200})\"|'((?:[^'\\\n]|\\.){12,200})'")
# A name that is one plain word says nothing; a compiler keeps these as they are.
_JOINED = re.compile(rb"[a-z\d][A-Z]|[A-Za-z\d]_[A-Za-z\d]")
_WHITE = re.compile(rb"\s+")


@dataclass(frozen=True, kw_only=True, order=True)
class Mark:
    """Bytes that tell of the fix. `group` is the file of the patches that they come from.

    A `line` stands in the text of the fix. A `word` is a name that it declares, or a text in
    quotes: what is left of a fix once it is compiled.
    """

    kind: Literal["line", "word"]
    text: bytes
    group: str


@dataclass(frozen=True)
class Marks:
    """The marks of one task, in a fixed order, each text once."""

    each: tuple[Mark, ...]

    @cached_property
    def digest(self) -> str:
        """Names them: what was found in a layer holds for the same marks."""
        known = [[mark.kind, mark.text.hex(), mark.group] for mark in self.each]
        return digest.of_json([MARKS_VERSION, known])


def marks_of(patches: Sequence[bytes], instruction: bytes) -> Marks:
    """The marks of a fix: those of its patch and of its hidden tests' patch."""
    files = [file for patch in patches for file in parse_patch(patch).files]
    removed = {_plain(line) for file in files for line in file.removed}
    before = b"\n".join(removed)
    told = _plain(instruction)
    found: dict[bytes, Mark] = {}
    for file in files:
        for mark in (*_lines(file, removed), *_words(file, before)):
            if _plain(mark.text) not in told:
                found.setdefault(mark.text, mark)
    return Marks(tuple(sorted(found.values()))[:MOST_MARKS])


def new_files(patches: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Path and content of each text file that a patch makes from nothing."""
    for patch in patches:
        for file in parse_patch(patch).files:
            if file.old is None and file.new is not None and file.added:
                yield file.new, b"".join(line + b"\n" for line in file.added)


def _lines(file: FilePatch, removed: set[bytes]) -> Iterator[Mark]:
    for raw in file.added:
        line = raw.strip()
        if _plain(line) not in removed and _is_telling(line):
            yield Mark(kind="line", text=line[:LONGEST].rstrip(), group=_group(file))


def _is_telling(line: bytes) -> bool:
    return (
        len(line) >= _LINE_FROM
        and b"\0" not in line
        and len({word.lower() for word in _WORD.findall(line)}) >= _WORDS_IN_A_LINE
        and not _ORDINARY.match(line)
    )


def _words(file: FilePatch, before: bytes) -> Iterator[Mark]:
    added = b"\n".join(file.added)
    names = {match[1] for match in _DECLARED.finditer(added)}
    if file.old is None and file.new is not None:
        names.add(PurePosixPath(file.new).stem.encode("utf-8", "surrogateescape"))
    texts = {match[1] or match[2] for match in _TEXT.finditer(added)}
    telling = {n for n in names if len(n) >= 8 and _JOINED.search(n)}
    telling |= {t for t in texts if len(_WORD.findall(t)) >= _WORDS_IN_A_LINE and _is_own(t)}
    for word in sorted(telling):
        if word not in before:
            yield Mark(kind="word", text=word, group=_group(file))


def _is_own(text: bytes) -> bool:
    """Whether a text in quotes is none that the outside world gives."""
    return b"\\" not in text and b"://" not in text and not text.startswith(b"-//")


def _group(file: FilePatch) -> str:
    return file.new or file.old or ""


def _plain(text: bytes) -> bytes:
    return _WHITE.sub(b" ", text).strip()
