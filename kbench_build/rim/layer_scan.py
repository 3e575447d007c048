"""Reads one image layer: which texts stand in which file, what each file is, and what git left.

Promises: every file of the layer is looked at, and what zips, jars, tars, Debian packages and
compressed files in it hold, down to a few levels; files that a later layer deletes too, since a
layer keeps them. Time and memory are bounded whatever the layer holds, and what wasn't read is
named. Nothing is unpacked to disk. Leaves to others what anything found means (`rules.leaks`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import xxhash

from kbench_build.model.layers import GitTrace, LeftOut
from kbench_build.rim import streams, tar_members, zip_members
from kbench_build.rim.git_traces import MOST_IDS, GitTraces, is_telling
from kbench_build.rim.matcher import CHUNK, Matcher, Span
from kbench_build.rim.zip_members import UnreadError

DEEPEST = 4
"""Levels of archives in archives that are opened."""

OPENED_UP_TO = 32 << 20
"""A packed file up to this size is opened again when it is an archive itself."""

LEAST_CONTENT = 128
"""Smaller files aren't told apart: many a project has the same."""

SHORT_UP_TO = 8 << 20
"""Texts that are given as short ones count in files up to this size."""

# A member costs this much of what may be unpacked, were it empty.
_MEMBER = 4096
_CRLF_WITHIN = 1 << 20
_MOST_PLACES = 2_000_000
_MOST_HITS = 100_000
_EXAMPLES = 10
_FILES = b"0\x007S"
_ZIPS = (b"PK\3\4", b"JM\1\0")
_GIT = (b"PACK", b"\xfftOc", b"# v2", b"# v3")
_OTHER = {b"7z\xbc\xaf": "7z archives", b"Rar!": "rar archives", b"hsqs": "squashfs images"}
_TELLING = frozenset(
    (*_ZIPS, *_GIT, *_OTHER, b"\xfd7zX", b"(\xb5/\xfd", b"!<ar", b"\x1f\x8b", b"BZ")
)


@dataclass(kw_only=True)
class LayerContents:
    """What one layer holds.

    `files` and `size` (bytes) are what stands in the layer itself, `members` and `unpacked` what
    was found inside archives. `hits`: place → numbers of the texts found there; a place in an
    archive is `jar!member`. `digests` has 16 bytes for each of `places`, in their order.
    """

    files: int = 0
    size: int = 0
    members: int = 0
    unpacked: int = 0
    hits: dict[bytes, set[int]] = field(default_factory=dict)
    digests: bytearray = field(default_factory=bytearray)
    places: list[bytes] = field(default_factory=list)
    git: tuple[GitTrace, ...] = ()
    left_out: dict[str, LeftOut] = field(default_factory=dict)

    def hit(self, place: bytes, number: int) -> None:
        """Note that a text stands there."""
        numbers = self.hits.get(place)
        if numbers is not None:
            numbers.add(number)
        elif len(self.hits) < _MOST_HITS:
            self.hits[place] = {number}
        else:
            self.leave_out(f"matches in more than {_MOST_HITS:,} files", place)

    def leave_out(self, reason: str, place: bytes) -> None:
        """Say that something wasn't read."""
        known = self.left_out.get(reason, LeftOut(count=0, examples=()))
        examples = known.examples
        if known.count < _EXAMPLES:
            examples = (*examples, place.decode("utf-8", "surrogateescape"))
        self.left_out[reason] = LeftOut(count=known.count + 1, examples=examples)


_digest = xxhash.xxh3_128_digest
# What a NamedTuple's own constructor does, in a third of the time.
_new = tuple.__new__


def content_digest(data: bytes | memoryview) -> bytes:
    """What tells a file's content apart here, in 16 bytes."""
    return _digest(data)


def scan_layer(
    data: memoryview,
    matcher: Matcher,
    *,
    short: frozenset[int] = frozenset(),
    room: int | None = None,
) -> LayerContents:
    """Read a layer's tar. `room` bounds what is unpacked from archives in it, in bytes.

    `short` are the numbers of texts that any large file may hold by chance.
    """
    scan = _Scan(matcher, short, (2 << 30) + 10 * len(data) if room is None else room)
    scan.layer(data)
    return scan.contents


class _FullError(UnreadError):
    """No more may be unpacked."""


class _Scan:
    """One layer being read. `room` is what may still be unpacked from it."""

    def __init__(self, matcher: Matcher, short: frozenset[int], room: int) -> None:
        self.contents = LayerContents()
        self.room = room
        self._matcher = matcher
        self._short = short
        self._git = GitTraces()
        self._batch: list[Span] = []
        self._batched: list[bytes | memoryview] = []
        self._batch_size = 0

    def layer(self, data: memoryview) -> None:
        contents = self.contents
        spans: list[Span] = []
        try:
            for name, kind, start, size in tar_members.members(data):
                place = name[2:] if name.startswith(b"./") else name
                if is_telling(place):
                    self._git.name(place)
                if kind in _FILES:
                    contents.files += 1
                    if size:
                        spans.append(_new(Span, (place, start, start + size)))
                        self._file(place, data[start : start + size], size, 0)
        except tar_members.BrokenTarError as error:
            contents.leave_out(f"the rest of a layer: {error}", b"")
        contents.size = sum(end - start for _, start, end in spans)
        self._flush()
        self._search(data, spans)
        contents.git = tuple(self._git.traces())
        if self._git.left:
            contents.leave_out(f"more than {MOST_IDS:,} ids of git objects", b"")

    def _file(self, place: bytes, data: memoryview, size: int, depth: int) -> None:
        """Note a file's content, and look into it where it is packed."""
        begin = bytes(data[:1024])
        if size >= LEAST_CONTENT:
            self._note(place, _digest(data))
            # As git stores text.
            if b"\r" in begin and b"\r\n" in begin and b"\0" not in begin and size <= _CRLF_WITHIN:
                self._note(place, _digest(bytes(data).replace(b"\r\n", b"\n")))
        head = begin[:4]
        if head in _TELLING or head[:2] in _TELLING or begin[257:262] == b"ustar":
            self._special(place, data, head, depth)

    def _note(self, place: bytes, digest: bytes) -> None:
        contents = self.contents
        if len(contents.places) < _MOST_PLACES:
            contents.digests += digest
            contents.places.append(place)
        else:
            contents.leave_out(f"the comparing of more than {_MOST_PLACES:,} files", place)

    def _special(self, place: bytes, data: memoryview, head: bytes, depth: int) -> None:
        if head in _GIT:
            self._git.content(place, data)
            return
        try:
            self._packed(place, data, head, depth)
        except UnreadError as error:
            self.contents.leave_out(str(error), place)

    def _packed(self, place: bytes, data: memoryview, head: bytes, depth: int) -> None:
        if head in _OTHER:
            raise UnreadError(_OTHER[head])
        if depth >= DEEPEST:
            raise UnreadError(f"archives more than {DEEPEST} deep in others")
        # One archive doesn't take the room of all others.
        room = _Room(self, (64 << 20) + 200 * len(data))
        if head in _ZIPS:
            self._zip(place, data, depth, room)
        elif head == b"!<ar":
            self._ar(place, data, depth, room)
        elif kind := streams.kind_of(head):
            room.take(_MEMBER)
            self._unpacked(place, room.of(streams.pieces(kind, data)), depth)
        elif bytes(data[257:262]) == b"ustar":
            self._tar(place, data, depth, room)

    def _zip(self, place: bytes, data: memoryview, depth: int, room: "_Room") -> None:
        for member in zip_members.members(data):
            room.take(_MEMBER)
            inside = b"%b!%b" % (place, member.name)
            if is_telling(inside):
                self._git.name(inside)
            try:
                self._unpacked(inside, room.of(zip_members.pieces(data, member)), depth)
            except _FullError:
                raise
            except UnreadError as error:
                self.contents.leave_out(str(error), inside)

    def _tar(self, place: bytes, data: memoryview, depth: int, room: "_Room") -> None:
        try:
            for name, kind, start, size in tar_members.members(data):
                room.take(_MEMBER)
                inside = b"%b!%b" % (place, name.removeprefix(b"./"))
                if is_telling(inside):
                    self._git.name(inside)
                if kind in _FILES:
                    self._content(inside, data[start : start + size], depth)
        except tar_members.BrokenTarError:
            raise UnreadError("archives that are damaged") from None

    def _ar(self, place: bytes, data: memoryview, depth: int, room: "_Room") -> None:
        """A Debian package, or a library of object files."""
        at = 8
        while at + 60 <= len(data):
            room.take(_MEMBER)
            head = bytes(data[at : at + 60])
            digits = head[48:58].strip()
            if head[58:60] != b"`\n" or not digits.isdigit():
                raise UnreadError("archives that are damaged")
            at, size = at + 60, int(digits)
            inside = b"%b!%b" % (place, head[:16].rstrip(b" /"))
            self._content(inside, data[at : at + size], depth)
            at += size + size % 2

    def _unpacked(self, place: bytes, pieces: Iterator[bytes], depth: int) -> None:
        """Something packed: taken as a whole where it is small enough, else in pieces."""
        held: list[bytes] = []
        size = 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > OPENED_UP_TO:
                self._long(place, b"".join(held), pieces)
                return
        self._content(place, memoryview(held[0] if len(held) == 1 else b"".join(held)), depth)

    def _content(self, place: bytes, data: memoryview, depth: int) -> None:
        """A file inside an archive."""
        self.contents.members += 1
        self.contents.unpacked += len(data)
        if len(data):
            self._add(place, data)
            self._file(place, data, len(data), depth + 1)

    def _long(self, place: bytes, begin: bytes, rest: Iterator[bytes]) -> None:
        contents = self.contents
        reason = f"packed files of more than {OPENED_UP_TO >> 20} MiB: searched, but not opened"
        contents.leave_out(reason, place)
        contents.members += 1
        contents.unpacked += len(begin)
        keep = max(self._matcher.longest - 1, 1)
        self._add(place, begin)
        for piece in rest:
            contents.unpacked += len(piece)
            begin = begin[-keep:] + piece
            self._add(place, begin)

    def _add(self, place: bytes, data: bytes | memoryview) -> None:
        """Keep some content until there is enough of it to search."""
        end = self._batch_size + len(data)
        self._batch.append(Span(place, self._batch_size, end))
        self._batched.append(data)
        # A line break between two of them: no text that is looked for holds one.
        self._batch_size = end + 1
        if end >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        batch, batched = self._batch, self._batched
        self._batch, self._batched, self._batch_size = [], [], 0
        if batch and self._matcher:
            self._search(memoryview(b"\n".join(batched)), batch)

    def _search(self, data: memoryview, spans: list[Span]) -> None:
        for place in self._matcher.search(data, spans, self._hit):
            self.contents.leave_out("parts of files that are full of matches", place)

    def _hit(self, span: Span, number: int) -> None:
        if number not in self._short or span.end - span.start <= SHORT_UP_TO:
            self.contents.hit(span.place, number)


class _Room:
    """How much may be unpacked from one archive."""

    def __init__(self, scan: _Scan, size: int) -> None:
        self._scan = scan
        self._left = size

    def take(self, size: int) -> None:
        """Count what is unpacked. Raises `_FullError`."""
        self._left -= size
        self._scan.room -= size
        if self._left < 0:
            raise _FullError("the rest of archives that unpack to two hundred times their size")
        if self._scan.room < 0:
            raise _FullError("the rest of archives in a layer that unpacks to too much")

    def of(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The same pieces, counted."""
        for piece in pieces:
            self.take(len(piece))
            yield piece
