"""The parts of a patch, and the patch without one of them.

A part is a hunk, or what can't be split: a new or deleted file, a binary change, a copy, a rename,
a change of mode. Promises: the patch without a part applies wherever its other hunks still find
their place, at the lines that they mean: later hunks of the file move by what is left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kbench_build.rules.patch_checks import kind_of
from kbench_build.rules.patches import FilePatch, Hunk, parse_patch

Kind = Literal["hunk", "new file", "deleted file", "binary", "copy", "rename", "mode"]
# Why nothing that runs can depend on a part; empty where something may.
Inert = Literal["", "documentation", "comments"]

_HEAD = re.compile(rb"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")
# Languages in which a line of code begins with neither `#` nor `*`.
_CURLY = (".kt", ".kts", ".java", ".groovy", ".gradle", ".scala", ".js", ".jsx", ".ts", ".tsx")
_HASH = (".py", ".rb", ".sh", ".toml", ".yaml", ".yml", ".properties")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a patch, counted from 1. `line` is where it stands in the patch.

    `where` is a hunk's head without its context; `added` and `removed` count lines.
    """

    number: int = 0
    kind: Kind
    path: str
    line: int
    where: str = ""
    added: int = 0
    removed: int = 0
    inert: Inert = ""
    hunk: int | None = field(default=None, repr=False)
    file: int = field(default=0, repr=False)

    @property
    def lines(self) -> int:
        """How many lines it changes; a part without lines counts as one."""
        return max(1, self.added + self.removed)

    def __str__(self) -> str:
        """`src/Main.kt @@ -3,4 +3,5 @@`, `tool.sh (mode)`."""
        return f"{self.path} {self.where or f'({self.kind})'}"


def parts_of(patch: bytes) -> tuple[Part, ...]:
    """All parts in order; none for a patch that git would stumble over."""
    parsed = parse_patch(patch)
    if parsed.malformed:
        return ()
    lines = patch.split(b"\n")
    found = (part for n, file in enumerate(parsed.files) for part in _parts(file, n, lines))
    return tuple(replace(part, number=n) for n, part in enumerate(found, start=1))


def _parts(file: FilePatch, number: int, lines: Sequence[bytes]) -> Iterator[Part]:
    path = file.new or file.old or "?"
    if kind := _whole(file):
        yield Part(
            kind=kind,
            path=path,
            line=file.line,
            added=len(file.added),
            removed=len(file.removed),
            inert=_inert(path),
            file=number,
        )
        return
    changes: dict[Kind, bool] = {
        "rename": _is_renamed(file, lines),
        "mode": file.old_mode != file.new_mode,
    }
    for kind in (kind for kind, there in changes.items() if there):
        yield Part(kind=kind, path=path, line=file.line, inert=_inert(path), file=number)
    for index, hunk in enumerate(file.hunks):
        yield replace(_hunk_part(path, hunk, lines), file=number, hunk=index)


def _is_renamed(file: FilePatch, lines: Sequence[bytes]) -> bool:
    first = file.hunks[0].line if file.hunks else file.end
    return any(line.startswith(b"rename from ") for line in lines[file.line : first - 1])


def _hunk_part(path: str, hunk: Hunk, lines: Sequence[bytes]) -> Part:
    body = lines[hunk.line : hunk.end - 1]
    head = _HEAD.match(lines[hunk.line - 1])
    return Part(
        kind="hunk",
        path=path,
        line=hunk.line,
        where=head[0].decode("ascii") if head else "",
        added=sum(line[:1] == b"+" for line in body),
        removed=sum(line[:1] == b"-" for line in body),
        inert=_inert(path, [line[1:] for line in body if line[:1] in (b"+", b"-")]),
    )


def _whole(file: FilePatch) -> Kind | None:
    """Why a file's patch can't be split; None where it can."""
    if file.copied:
        return "copy"
    if file.old is None:
        return "new file"
    if file.new is None:
        return "deleted file"
    return "binary" if file.binary else None


def _inert(path: str, changed: Sequence[bytes] = ()) -> Inert:
    if kind_of(path) == "docs":
        return "documentation"
    is_comment = _comments(path)
    if not changed or is_comment is None:
        return ""
    return "comments" if all(is_comment(line.strip()) for line in changed) else ""


def _comments(path: str) -> Callable[[bytes], bool] | None:
    """What tells a comment or an empty line of a file from code; None for unknown languages."""
    if path.endswith(_CURLY):
        return _is_curly_comment
    return _is_hash_comment if path.endswith(_HASH) else None


def _is_curly_comment(line: bytes) -> bool:
    if not line or line.startswith(b"//"):
        return True
    if line != b"*" and not line.startswith((b"/*", b"* ", b"*/")):
        return False
    return not line.partition(b"*/")[2].strip()


def _is_hash_comment(line: bytes) -> bool:
    return not line or (line.startswith(b"#") and not line.startswith(b"#!"))


def without(patch: bytes, part: Part) -> bytes:
    """The patch without one of its parts; empty where nothing is left."""
    lines = patch.split(b"\n")
    files = parse_patch(patch).files
    file = files[part.file]
    start, end = file.line - 1, file.end - 1
    rest = [*lines[:start], *_section(lines, file, part), *lines[end:]]
    left = len(files) > 1 or len(rest) > len(lines) - (end - start)
    return b"\n".join(rest) if left else b""


def _section(lines: Sequence[bytes], file: FilePatch, part: Part) -> list[bytes]:
    """A file's lines without a part of it; none where the part is all there is."""
    metadata = _is_renamed(file, lines) + (file.old_mode != file.new_mode)
    if _whole(file) or len(file.hunks) + metadata == 1:
        return []
    first = file.hunks[0].line if file.hunks else file.end
    header = [line for line in lines[file.line - 1 : first - 1] if not line.startswith(b"index ")]
    kept = [hunk for index, hunk in enumerate(file.hunks) if index != part.hunk]
    if part.kind == "mode":
        header = [line for line in header if not line.startswith((b"old mode ", b"new mode "))]
    elif part.kind == "rename":
        header = list(_in_place(header))
    if not kept:
        header = [line for line in header if not line.startswith((b"--- ", b"+++ "))]
    return [*header, *_hunks(lines, file.hunks, part.hunk)]


def _in_place(header: Sequence[bytes]) -> Iterator[bytes]:
    """A rename's header as that of a change to the old file."""
    moved = (b"rename ", b"similarity ", b"dissimilarity ")
    old = next((line[4:] for line in header if line.startswith(b"--- ")), b"")
    new = re.sub(rb'^("?)a/', rb"\1b/", old)
    for line in header:
        if line.startswith(b"diff --git "):
            named = next((h[12:] for h in header if h.startswith(b"rename from ")), b"")
            yield b"diff --git " + (b"%s %s" % (old, new) if old else _both(named))
        elif line.startswith(b"+++ "):
            yield b"+++ " + new
        elif not line.startswith(moved):
            yield line


def _both(path: bytes) -> bytes:
    if path.startswith(b'"'):
        return b'"a/%s "b/%s' % (path[1:], path[1:])
    return b"a/%s b/%s" % (path, path)


def _hunks(lines: Sequence[bytes], hunks: Sequence[Hunk], left_out: int | None) -> Iterator[bytes]:
    """The lines of all hunks but one, those after it at the lines that they then have."""
    shift = 0
    for index, hunk in enumerate(hunks):
        body = lines[hunk.line : hunk.end - 1]
        if index == left_out:
            shift = sum((line[:1] == b"+") - (line[:1] == b"-") for line in body)
        else:
            yield _shifted(lines[hunk.line - 1], shift)
            yield from body


def _shifted(head: bytes, shift: int) -> bytes:
    match = _HEAD.match(head)
    if not match or not shift:
        return head
    start, old, new, count = match.groups(default=b"")
    where = b"@@ -%s%s +%d%s @@" % (start, old, max(0, int(new) - shift), count)
    return where + head[match.end() :]
