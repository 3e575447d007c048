"""Where a text refers to the change that fixes a task: by a link, by a number, by an id.

Promises: linear in the text. What merely looks like a number of a change, such as a small one in a
list of steps, isn't taken for one. Leaves what follows from it to others.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from kbench_build.rules.origin import Origin

SHORTEST_ID, WHOLE_ID = 7, 64
# A number below this may count anything: steps, examples.
_SMALL = 10
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(
    r"(?<![\w.-])(?P<owner>[\w.-]{1,100})/(?P<name>[\w.-]{1,100})/(?:-/)?"
    r"(?P<kind>pulls?|pull-requests|merge_requests|issues)/(?P<number>\d+)"
)
_NUMBER = re.compile(
    r"(?<![\w.&/#!-])(?P<repository>[\w.-]{1,100}/[\w.-]{1,100})?"
    r"(?P<word>(?:issue|bug|pr|pull request|mr|merge request|fix(?:es|ed)?|close[sd]?"
    r"|resolve[sd]?)[ \t:]+|gh-)?[#!]?(?P<number>\d+)(?![\w-])",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{7,64}(?![0-9A-Za-z])")


class Number(NamedTuple):
    """A number of the own repository's changes, the word before it, and where both stand."""

    number: str
    word: str
    start: int
    end: int


def links(text: str) -> Iterator[re.Match[str]]:
    """The links to changes and issues of any repository."""
    # Most lines hold none, and are told so at once.
    return _LINK.finditer(text) if "/" in text else iter(())


def change_links(text: str, origin: Origin) -> Iterator[re.Match[str]]:
    """The links to the change that fixes the task."""
    return (match for match in links(text) if is_change(match, origin))


def is_change(match: re.Match[str], origin: Origin) -> bool:
    """Whether a link leads to the change. A forge shows a change under its issues' address too."""
    is_issue = match["kind"] == "issues" and match["number"] in origin.issues
    return (
        origin.is_repository(match["owner"], match["name"])
        and match["number"] == origin.change
        and not is_issue
    )


def numbers(text: str, origin: Origin, *, least: int = _SMALL) -> Iterator[Number]:
    """What a line of prose says of the own repository's changes; code in it says nothing.

    A number below `least` counts where a word says what it is.
    """
    if not _DIGIT.search(text):
        return
    for match in _NUMBER.finditer(_SPAN.sub(_blank, text)):
        repository, word = match["repository"], (match["word"] or "").strip(" \t:").lower()
        if repository and not origin.is_repository(*repository.split("/", 1)):
            continue
        marked = match[0][: match.start("number") - match.start()].endswith(("#", "!"))
        said = word and (marked or word in {"gh-", "pr", "mr"})
        if repository or said or (marked and int(match["number"][:9]) >= least):
            yield Number(match["number"], word, match.start(), match.end())


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def names_change(number: str, origin: Origin) -> bool:
    """Whether a number is that of the change that fixes the task."""
    return number == origin.change and number not in origin.issues


def ids_among(text: str, known: Collection[str]) -> Iterator[re.Match[str]]:
    """The ids in a text that are, or are the beginning of, one of the known ones."""
    return (match for match in HEX.finditer(text) if is_one_of(match[0], known))


def is_one_of(run: str, known: Collection[str]) -> bool:
    """Whether digits are, or begin, a known id; a decimal number is none."""
    return not run.isdecimal() and any(each.startswith(run) for each in known)


# Cutting.

_OMITTED = "…"
_HEAD_OF_LINK = re.compile(r"https?://[^\s()<>\[\]\"']*$")
_REST_OF_LINK = re.compile(r"[^\s()<>\[\]\"']{0,300}")
_TEXT_OF_LINK = re.compile(rf"\[([^\[\]]*)\]\(\s*<?{_OMITTED}>?[^()]*\)")
_MARKS = re.compile(r"[^\w…]+")
_NO_MORE = (
    "a also and as at by closed closes commit duplicate fix fixed fixes for from here in is it "
    "merge merged merges mr of on patch pr pull related request resolve resolved resolves see "
    "solved the this to via was with"
)
_NOTHING = frozenset(_NO_MORE.split())
_LONGEST_HEAD = 300


def without_references(text: str, origin: Origin, ids: Collection[str]) -> str:
    """The text without links to the change, its number and the ids.

    What is left of a line stays, with `…` in their place; a line that says nothing else goes.
    """
    lines = (_cut(line, origin, ids) for line in text.split("\n"))
    return "\n".join(line for line in lines if line is not None)


def _cut(line: str, origin: Origin, ids: Collection[str]) -> str | None:
    spans = sorted(_spans(line, origin, ids))
    if not spans:
        return line
    kept, at = [], 0
    for start, end in spans:
        kept.append(line[at : max(at, start)])
        at = max(at, end)
    left = _TEXT_OF_LINK.sub(r"\1", _OMITTED.join([*kept, line[at:]]))
    words = {word.lower() for word in _MARKS.split(left) if word.strip(_OMITTED)}
    return None if words <= _NOTHING else left


def _spans(line: str, origin: Origin, ids: Collection[str]) -> Iterator[tuple[int, int]]:
    for match in change_links(line, origin):
        start = max(line.rfind(" ", 0, match.start()) + 1, match.start() - _LONGEST_HEAD)
        head = _HEAD_OF_LINK.search(line[start : match.start()])
        rest = _REST_OF_LINK.match(line, match.end())
        yield (
            start + head.start() if head else match.start(),
            rest.end() if rest else match.end(),
        )
    for found in numbers(line, origin, least=1):
        if names_change(found.number, origin):
            yield found.start, found.end
    for match in ids_among(line, ids):
        yield match.span()
