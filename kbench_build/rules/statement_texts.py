"""The texts that a statement may be made from, as a reader of the forge sees them.

Promises: nothing is added to what people wrote but a heading's mark; comments that nobody sees, and
references to the fix, are cut. What is shown to a judge holds no line of the fix, even where the
description quotes it. Linear in the texts.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbench_build.rules.fix_references import without_references
from kbench_build.rules.issue_records import IssueText
from kbench_build.rules.origin import Origin

# Forges cut texts here.
_MOST_CHARACTERS = 65_536
_FENCE = re.compile(r"[ ]{0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)")
_DIFFS = frozenset({"diff", "patch", "suggestion"})
_OPEN, _CLOSE = "<!--", "-->"
_BLANKS = re.compile(r"\n(?:[ \t]*\n){2,}")


@dataclass(frozen=True, kw_only=True)
class Text:
    """A title and what stands below it, in Markdown."""

    title: str
    body: str
    url: str = ""

    def __str__(self) -> str:
        """The text with its title as a heading."""
        return "\n\n".join(
            part for part in (f"# {self.title}" if self.title else "", self.body) if part
        )


def seen(title: str, body: str, origin: Origin, ids: Collection[str], url: str = "") -> Text:
    """What a reader sees of a title and a body, without references to the fix."""
    plain = body[:_MOST_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n")
    kept = without_references("\n".join(_without_comments(plain)), origin, ids)
    heading = without_references(" ".join(title[:1_000].split()), origin, ids)
    return Text(title=heading.strip(), body=_BLANKS.sub("\n\n", kept).strip(), url=url)


def issue_text(
    issues: Iterable[IssueText], origin: Origin, ids: Collection[str]
) -> tuple[Text, ...]:
    """What the issues say; those that say no more than their title are left out."""
    texts = (seen(i.title, i.body, origin, ids, i.url) for i in issues if not i.is_change)
    return tuple(text for text in texts if text.title and text.body)


def joined(texts: Sequence[Text]) -> str:
    """The texts, one below the other."""
    return "\n\n".join(map(str, texts)) + "\n"


def without_fix(text: Text, lines: Collection[str]) -> Text:
    """The text without what it quotes of the fix: diffs, and the fix's own `lines`."""
    kept = (line for line in _without_diffs(text.body) if _bare(line) not in lines)
    body = _BLANKS.sub("\n\n", "\n".join(kept)).strip()
    return Text(title=text.title, body=body, url=text.url)


def _bare(line: str) -> str:
    return line.strip().strip("`").strip()


def _without_comments(text: str) -> Iterator[str]:
    """The lines without HTML comments; in code one is no comment."""
    fence, inside = "", False
    for line in text.split("\n"):
        if not inside:
            fence = _fence_after(line, fence)
        if fence:
            yield line
            continue
        shown, inside = _shown(line, inside=inside)
        if shown.strip() or not line.strip():
            yield shown


def _fence_after(line: str, fence: str) -> str:
    """The marks of the code block that a line leaves open, empty where there is none."""
    found = _FENCE.match(line)
    if not found:
        return fence
    if not fence:
        return found["marks"]
    closes = found["marks"].startswith(fence) and line.strip() == found["marks"]
    return "" if closes else fence


def _shown(line: str, *, inside: bool) -> tuple[str, bool]:
    """What a reader sees of a line, and whether it ends in a comment."""
    shown, at = [], 0
    while at < len(line):
        mark = line.find(_CLOSE if inside else _OPEN, at)
        if mark < 0:
            shown.append("" if inside else line[at:])
            break
        # In a code span it is no comment.
        if not inside and line.count("`", 0, mark) % 2:
            shown.append(line[at : mark + len(_OPEN)])
            at = mark + len(_OPEN)
            continue
        shown.append("" if inside else line[at:mark])
        at = mark + len(_CLOSE if inside else _OPEN)
        inside = not inside
    return "".join(shown), inside


def _without_diffs(text: str) -> Iterator[str]:
    """The lines without code blocks that are diffs by their name or their look."""
    block: list[str] = []
    fence = ""
    for line in text.split("\n"):
        before, fence = fence, _fence_after(line, fence)
        if not (before or fence):
            yield line
            continue
        block.append(line)
        if not fence:
            yield from () if _is_diff(block) else block
            block = []
    yield from () if _is_diff(block) else block


def _is_diff(block: Sequence[str]) -> bool:
    opening = _FENCE.match(block[0]) if block else None
    if opening is None:
        return False
    looks = any(line.startswith(("diff --git ", "@@ -", "--- a/", "+++ b/")) for line in block)
    return looks or opening["language"].lower() in _DIFFS
