"""Where any of many texts stand in bytes, found in one pass.

Promises: every place of every text, whatever their number, at about the speed of a hash; a buffer
of nothing but matches costs no more than a bounded number of them. Leaves to others what a text
means.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

CHUNK = 1 << 18
"""How much is searched at once: it stays in the processor's nearer caches."""

MOST_AT_ONCE = 50_000
"""Matches after which the rest of a chunk is given up."""


class Span(NamedTuple):
    """Where the content of a file lies in a buffer."""

    place: bytes
    start: int
    end: int


Found = Callable[[Span, int], None]
"""Told of each match: the span, and the number of the text."""


class Matcher:
    """A search for these texts, by their numbers."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """`texts` are non-empty; nothing is compiled until the first search."""
        self.texts = tuple(texts)
        self.longest = max(map(len, self.texts), default=0)

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self.texts)

    def numbers(self, data: bytes) -> frozenset[int]:
        """The numbers of the texts that stand in this content."""
        return frozenset(number for number, _ in self._matches(data)[0])

    def search(self, data: memoryview, spans: Sequence[Span], found: Found) -> tuple[bytes, ...]:
        """Search spans of a buffer, in order of their starts, chunk by chunk.

        A match counts only inside one span. Returns the places of chunks that were given up.
        """
        if not self.texts or not spans:
            return ()
        starts = [span.start for span in spans]
        given_up: list[bytes] = []
        overlap = self.longest - 1
        for at in range(0, len(data), CHUNK):
            begin = max(0, at - overlap)
            matches, all_of_them = self._matches(data[begin : at + CHUNK])
            for number, end in matches:
                to = begin + end
                if to > at and (number_of := bisect_right(starts, to - 1)):
                    span = spans[number_of - 1]
                    if to <= span.end and to - len(self.texts[number]) >= span.start:
                        found(span, number)
            if not all_of_them:
                given_up.append(spans[max(0, bisect_right(starts, at) - 1)].place)
        return tuple(given_up)

    def _matches(self, data: bytes | memoryview) -> tuple[list[tuple[int, int]], bool]:
        """Number and end of each match, and whether that is all of them."""
        if not self.texts:
            return [], True
        matches: list[tuple[int, int]] = []

        def take(number: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            matches.append((number, end))
            return len(matches) >= MOST_AT_ONCE

        database, stopped = self._database
        try:
            database.scan(data, match_event_handler=take)
        except stopped:
            return matches, False
        return matches, True

    @cached_property
    def _database(self) -> tuple[Any, type[Exception]]:
        # Not at the top: only a search needs it.
        import hyperscan  # noqa: PLC0415

        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        count = len(self.texts)
        database.compile(
            expressions=list(self.texts),
            ids=list(range(count)),
            elements=count,
            flags=[0] * count,
            literal=True,
        )
        return database, hyperscan.ScanTerminated
