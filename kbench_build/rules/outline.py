"""Findings as lines for people, by file; then what was answered for and what wasn't checked.

Promises: each line is one line, whatever the data says. Colours are left to the door.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from kbench_build.model import Severity
from kbench_build.rules.findings import printable
from kbench_build.rules.places import Placed

Kind = Severity | Literal["file", "mend", "aside"]
Line = tuple[Kind, str]


def outline(placed: Sequence[Placed], not_checked: Iterable[str]) -> Iterator[Line]:
    """The lines. `not_checked` holds a sentence for each task that it is true of."""
    counting = sorted((p for p in placed if not p.reason), key=lambda p: p.finding.file)
    for file, items in groupby(counting, key=lambda p: p.finding.file):
        yield "file", printable(file)
        yield from _of_file(items)
    answered = Counter((p.finding.rule, p.reason) for p in placed if p.reason)
    for (rule, reason), number in sorted(answered.items()):
        yield "aside", f"answered for: {_times(number, 'finding')} [{rule}]: {printable(reason)}"
    for sentence, number in Counter(not_checked).most_common():
        yield "aside", f"not checked in {_times(number, 'task')}: {printable(sentence)}"


def _of_file(items: Iterable[Placed]) -> Iterator[Line]:
    """The findings of one file; a way to mend that several share stands below the last of them."""
    mend = ""
    for item in items:
        finding = item.finding
        if mend and finding.mend != mend:
            yield "mend", printable(mend)
        mend = finding.mend
        where = f"{finding.where}: " if finding.where else ""
        yield finding.severity, f"{where}{finding.message} [{finding.rule}]"
    yield "mend", printable(mend)


def _times(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number > 1 else ''}"
