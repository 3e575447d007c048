"""Where in a repository a finding stands: its file from the repository's root, and its line.

A finding's `where` names a line, or a key of the document. Keys of TOML tables and of a JSON
object's top are looked for in the text; where one isn't there, the nearest thing around it is
meant. Never raises, and takes a time that grows with the text alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kbench_build.model import Finding
from kbench_build.rules.findings import printable

_LINE = re.compile(r"lines? (\d{1,9})(?!\d)(?:, column (\d{1,9})(?!\d))?")
_PART = re.compile(r"[^.\[\]]+|\[\d{1,9}\]")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY = re.compile(r"\s*([\w.\"' -]{1,200}?)\s*=")


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A finding in its repository. `line` and `column` count from 1; 0: not known.

    `finding.file` is relative to the repository's root. `reason` says why it may stand; empty for
    findings that count.
    """

    finding: Finding
    line: int = 0
    column: int = 0
    reason: str = ""


def place(finding: Finding, *, folder: str = "", text: str = "", reason: str = "") -> Placed:
    """Put a finding in its place. `folder` is the dataset's in its repository.

    `text` is the file's content, for a `where` that names a key.
    """
    line, column = spot(finding.where) or (_line_of(finding.file, finding.where, text), 0)
    parts = (folder, printable(finding.file))
    moved = replace(
        finding,
        file="/".join(part for part in parts if part not in ("", ".")) or ".",
        where=printable(finding.where),
        message=printable(finding.message),
    )
    return Placed(finding=moved, line=line, column=column, reason=reason)


def spot(where: str) -> tuple[int, int] | None:
    """The line and column (0: none) that `where` names, if it does."""
    found = _LINE.match(where)
    return (max(1, int(found[1])), int(found[2] or 0)) if found else None


def names_key(finding: Finding) -> bool:
    """Whether the file's text is needed to know the line."""
    documents = (".toml", ".json")
    return bool(finding.where) and not spot(finding.where) and finding.file.endswith(documents)


def _line_of(file: str, where: str, text: str) -> int:
    keys = _PART.findall(where)
    if not keys or not text:
        return 0
    return _in_json(keys[0], text) if file.endswith(".json") else _in_toml(keys, text)


def _in_json(key: str, text: str) -> int:
    # Not parsed: such a file may have megabytes, and its top-level keys are few.
    found = re.search(rf'^\s*\{{?\s*"{re.escape(key)}"\s*:', text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else 1


def _in_toml(keys: Sequence[str], text: str) -> int:
    """The line of the longest part of the keys' path that the text defines."""
    best, line = 0, 0
    for number, path in _defined(text):
        shared = _shared(path, keys)
        if shared > best and shared == len(path):
            best, line = shared, number
    return line


def _shared(path: Sequence[str], keys: Sequence[str]) -> int:
    pairs = zip(path, keys, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(path), len(keys))
    )


def _defined(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each line that defines a table or a key, and the path of what it defines."""
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        header = _HEADER.match(line)
        if header:
            table = _path(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, f"[{counts[table]}]")
            yield number, table
        elif key := _KEY.match(line):
            yield number, (*table, *_path(key[1]))


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in dotted.split("."))
