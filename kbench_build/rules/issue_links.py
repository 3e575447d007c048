"""The issues that a change says it closes, read from its text as the forge shows it.

Promises: a reference counts where a reader sees it and a closing word stands before it; one in a
code span, a code fence, a quote or an HTML comment doesn't. Bounded time, whatever the text. Leaves
asking the forge whether the issue exists to others.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

# Forges cut texts here; what comes after is nobody's sentence.
_MOST_CHARACTERS = 65_536
_QUOTE_OPEN, _QUOTE_CLOSE = "blockquote_open", "blockquote_close"
_SPACE = frozenset({"softbreak", "hardbreak"})

_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}"
_URL = rf"https?://(?:www\.)?[A-Za-z0-9.-]{{1,100}}/({_NAME})/(?:-/)?issues/(\d{{1,9}})\b"
_REFERENCE = re.compile(rf"{_URL}|({_NAME})#(\d{{1,9}})\b|(?:#|\bGH-)(\d{{1,9}})\b", re.IGNORECASE)
_CLOSING = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b[\s:]*", re.IGNORECASE)
_NEXT = re.compile(r"\s*(?:,|&|\band\b)\s*(?:\band\b\s*)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, order=True)
class Issue:
    """One issue of a forge: the repository (`owner/name`) and the number in it."""

    repository: str
    number: int


def linked_issues(text: str, repository: str) -> tuple[Issue, ...]:
    """The issues that a text closes, in order, each once.

    `text` is a title, a commit message or a description in Markdown; `repository` is meant where
    a reference names none.
    """
    found: dict[Issue, None] = {}
    for paragraph in _paragraphs(text[:_MOST_CHARACTERS]):
        found |= dict.fromkeys(_in_paragraph(paragraph, repository))
    return tuple(found)


def _in_paragraph(text: str, repository: str) -> Iterator[Issue]:
    """Every reference behind a closing word, and those listed with it: `Fixes #1, #2 and #3`."""
    for word in _CLOSING.finditer(text):
        at = word.end()
        while reference := _REFERENCE.match(text, at):
            yield _issue(reference, repository)
            following = _NEXT.match(text, reference.end())
            if following is None:
                break
            at = following.end()


def _issue(reference: re.Match[str], repository: str) -> Issue:
    of_url, by_url, of_name, by_name, alone = reference.groups()
    return Issue(
        repository=(of_url or of_name or repository).removesuffix(".git"),
        number=int(by_url or by_name or alone),
    )


def _paragraphs(text: str) -> Iterator[str]:
    """The running texts that a reader sees, without quotes, code and comments."""
    # Most texts close nothing, and a reader of Markdown takes longer than git's patch.
    tokens = _markdown().parse(text) if _CLOSING.search(text) else ()
    quoted = 0
    for token in tokens:
        quoted += (token.type == _QUOTE_OPEN) - (token.type == _QUOTE_CLOSE)
        if token.type == "inline" and not quoted:
            yield "".join(_seen(token.children or ()))


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark")


def _seen(tokens: Iterable[Token]) -> Iterator[str]:
    """Inline text; a link to an issue stands as its address, whatever its words are."""
    inside = False
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrs.get("href", ""))
            inside = _REFERENCE.fullmatch(address) is not None
            yield address if inside else ""
        elif token.type == "link_close":
            inside = False
        elif token.type == "text" and not inside:
            yield token.content
        elif token.type in _SPACE:
            yield " "
        elif token.type in {"code_inline", "html_inline"}:
            # Something stands between what is left and right of it.
            yield "\0"
