"""Reads git patches: which files they touch, with which modes and blob ids, and what is malformed.

Promises: never raises, whatever the bytes; every line is looked at once; hunks are counted, so that
text inside a hunk is never taken for a header. Leaves applying a patch to git.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?$")
_MODE = re.compile(rb"(old mode|new mode|deleted file mode|new file mode) (\d{6})$")
_MOVE = re.compile(rb"(rename|copy) (from|to) (.*)$")
_BINARY_PART = re.compile(rb"(literal|delta) \d+$")
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_MODE_FIELDS = {
    "old mode": "old_mode",
    "new mode": "new_mode",
    "deleted file mode": "old_mode",
    "new file mode": "new_mode",
}
NULL_DEVICE = "/dev/null"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """Where a hunk stands: its head's line (from 1), and the line behind its last one."""

    line: int
    end: int


@dataclass(frozen=True, kw_only=True)
class FilePatch:
    """What a patch says of one file. `old` is None for a new file, `new` for a deleted one.

    Modes and blob ids are as written: ids may be cut short, and any of them may be missing.
    `removed` and `added` are the lines of all hunks, without the mark in front. The file's part of
    the patch begins at `line` (from 1) and ends before `end`.
    """

    line: int
    end: int
    old: str | None
    new: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    binary: bool = False
    removed: tuple[bytes, ...] = field(default=(), repr=False)
    added: tuple[bytes, ...] = field(default=(), repr=False)
    hunks: tuple[Hunk, ...] = field(default=(), repr=False)
    copied: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it touches: one, or two for a rename."""
        return tuple(dict.fromkeys(p for p in (self.old, self.new) if p is not None))


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """A line (from 1) of a patch that git would stumble over, and why."""

    line: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A patch as read: its files in order, and what is wrong with it."""

    files: tuple[FilePatch, ...]
    malformed: tuple[Malformed, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path touched, sorted, each once."""
        return tuple(sorted({path for file in self.files for path in file.paths}))


def parse_patch(data: bytes) -> Patch:
    """Read a patch made by `git diff` or `git format-patch`, or a plain unified diff."""
    reader = _Reader(data)
    files = tuple(reader.files())
    return Patch(files=files, malformed=tuple(reader.malformed))


class _Reader:
    """A place in the lines of a patch, and what was wrong so far."""

    def __init__(self, data: bytes) -> None:
        self.lines: Sequence[bytes] = data.split(b"\n")
        self.ends_open = bool(data) and not data.endswith(b"\n")
        if not self.ends_open:
            self.lines = self.lines[:-1]
        self.at = 0
        self.malformed: list[Malformed] = []

    def wrong(self, message: str, line: int | None = None) -> None:
        self.malformed.append(
            Malformed(line=(self.at if line is None else line) + 1, message=message)
        )

    def files(self) -> Iterator[FilePatch]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(b"diff --git "):
                yield self._git_file()
            elif line.startswith(b"--- ") and self._is_plain_header():
                yield self._plain_file()
            else:
                if _HUNK.match(line):
                    self.wrong("a hunk without a file before it")
                self.at += 1

    def _is_plain_header(self) -> bool:
        """Whether the next lines are those between `---` and a hunk, and not a mail's text."""
        after = self.lines[self.at + 1 : self.at + 3]
        return len(after) == 2 and after[0].startswith(b"+++ ") and bool(_HUNK.match(after[1]))

    def _git_file(self) -> FilePatch:
        start = self.at
        old, new = _header_paths(self.lines[start][len(b"diff --git ") :])
        found = _Found(old=old, new=new)
        self.at += 1
        while self.at < len(self.lines) and self._header_line(found):
            self.at += 1
        self._body(found)
        if found.old is None and found.new is None:
            self.wrong("names no file that can be read", start)
        return found.patch(start + 1, self.at + 1)

    def _plain_file(self) -> FilePatch:
        start = self.at
        found = _Found(old=None, new=None)
        self._header_line(found)
        self.at += 1
        self._header_line(found)
        self.at += 1
        self._body(found)
        return found.patch(start + 1, self.at + 1)

    def _header_line(self, found: "_Found") -> bool:
        """Take in one line between `diff --git` and the content; False when it is none of these."""
        line = self.lines[self.at]
        if mode := _MODE.match(line):
            found.take_mode(mode[1].decode(), mode[2].decode())
        elif index := _INDEX.match(line):
            found.take_index(index)
        elif move := _MOVE.match(line):
            found.take_move(move[1], move[2], move[3])
        elif line.startswith(b"--- "):
            found.old = _named(line[4:], found.old)
        elif line.startswith(b"+++ "):
            found.new = _named(line[4:], found.new)
        else:
            return line.startswith((b"similarity index ", b"dissimilarity index "))
        return True

    def _body(self, found: "_Found") -> None:
        """The hunks or the binary content after a file's header."""
        if self.at >= len(self.lines):
            return
        line = self.lines[self.at]
        if line == b"GIT binary patch":
            found.binary = True
            self._binary()
        elif line.startswith(b"Binary files "):
            found.binary = True
            self.wrong(
                "says that binary files differ, without their content (use git diff --binary)"
            )
            self.at += 1
        else:
            while self.at < len(self.lines) and (hunk := _HUNK.match(self.lines[self.at])):
                self._hunk(hunk, found)

    def _hunk(self, head: re.Match[bytes], found: "_Found") -> None:
        start = self.at
        old, new = int(head[2] or b"1"), int(head[4] or b"1")
        self.at += 1
        while (old > 0 or new > 0) and self.at < len(self.lines):
            line = self.lines[self.at]
            mark = line[:1]
            if mark == b"-":
                old -= 1
                found.removed.append(line[1:])
            elif mark == b"+":
                new -= 1
                found.added.append(line[1:])
            elif mark == b" " or line in (b"", b"\r"):
                # git reads an empty line as an empty line of context.
                old, new = old - 1, new - 1
            elif mark != b"\\":
                break
            self.at += 1
        if old or new:
            self.wrong("the hunk has other numbers of lines than its head says", start)
        if self.at < len(self.lines) and self.lines[self.at].startswith(b"\\"):
            self.at += 1
        elif self.at == len(self.lines) and self.ends_open:
            self.wrong("the last line has no newline, so git calls the patch corrupt", self.at - 1)
        found.hunks.append(Hunk(line=start + 1, end=self.at + 1))

    def _binary(self) -> None:
        start = self.at
        self.at += 1
        parts = 0
        while self.at < len(self.lines) and _BINARY_PART.match(self.lines[self.at]):
            parts += 1
            self.at += 1
            while self.at < len(self.lines) and self.lines[self.at]:
                self.at += 1
            self.at += 1
        if not parts:
            self.wrong("a binary patch without content", start)


@dataclass
class _Found:
    """One file's patch while it is being read."""

    old: str | None
    new: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    binary: bool = False
    created: bool = False
    deleted: bool = False
    removed: list[bytes] = field(default_factory=list)
    added: list[bytes] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)
    copied: bool = False

    def take_mode(self, what: str, mode: str) -> None:
        setattr(self, _MODE_FIELDS[what], mode)
        self.created |= what == "new file mode"
        self.deleted |= what == "deleted file mode"

    def take_index(self, index: re.Match[bytes]) -> None:
        self.old_blob, self.new_blob = index[1].decode(), index[2].decode()
        if index[3]:
            self.old_mode = self.new_mode = index[3].decode()

    def take_move(self, what: bytes, end: bytes, path: bytes) -> None:
        self.copied |= what == b"copy"
        if end == b"from":
            self.old = _unquoted(path)
        else:
            self.new = _unquoted(path)

    def patch(self, line: int, end: int) -> FilePatch:
        return FilePatch(
            line=line,
            end=end,
            old=None if self.created else self.old,
            new=None if self.deleted else self.new,
            old_mode=self.old_mode,
            new_mode=self.new_mode,
            old_blob=self.old_blob,
            new_blob=self.new_blob,
            binary=self.binary,
            removed=tuple(self.removed),
            added=tuple(self.added),
            hunks=tuple(self.hunks),
            copied=self.copied,
        )


def _header_paths(rest: bytes) -> tuple[str | None, str | None]:
    """Both paths of a `diff --git` line. Unquoted names with spaces are told by being the same."""
    if rest.startswith(b'"') or rest.endswith(b'"'):
        quoted = re.findall(rb'"(?:[^"\\]|\\.)*"|[^"\s]\S*', rest)
        if len(quoted) == 2:
            return _stripped(_unquoted(quoted[0])), _stripped(_unquoted(quoted[1]))
        return None, None
    half, odd = divmod(len(rest), 2)
    old, new = rest[:half], rest[half + 1 :]
    if odd and _stripped(_text(old)) == _stripped(_text(new)):
        return _stripped(_text(old)), _stripped(_text(new))
    first, _, second = rest.partition(b" b/")
    return _stripped(_text(first)), _text(second) if second else None


def _named(value: bytes, so_far: str | None) -> str | None:
    """The path on a `---` or `+++` line, None for the null device. A tab ends it."""
    path = _unquoted(value.rstrip(b"\r") if value.startswith(b'"') else value.partition(b"\t")[0])
    if path.strip() == NULL_DEVICE:
        return None
    return _stripped(path) or so_far


def _unquoted(value: bytes) -> str:
    """A path as git writes it: plain, or in quotes with C escapes and octal bytes."""
    if not (value.startswith(b'"') and value.rstrip().endswith(b'"')):
        return _text(value)
    inner = value.rstrip()[1:-1]
    return _text(re.sub(rb"\\([0-7]{3}|.)", _unescaped, inner, flags=re.DOTALL))


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return bytes([_ESCAPES[code]]) if code in _ESCAPES else code


def _stripped(path: str) -> str:
    """Without the `a/` or `b/` that git puts in front; other paths stay as they are."""
    return path[2:] if path.startswith(("a/", "b/")) else path


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def escapes(path: str) -> str:
    """Why a path may not be written to below a checkout; empty when it may."""
    if not path or path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path):
        return "is no relative path"
    parts = path.split("/")
    if ".." in parts:
        return "leaves the checkout"
    if ".git" in {part.lower() for part in parts}:
        return "lies in .git"
    if any(ord(character) < 32 for character in path):
        return "holds a control character"
    return ""
