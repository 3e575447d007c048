"""Issues' texts, a JSON object a line, as GitHub's API or its `gh` command writes them.

Promises: a line that can't be read is a problem with its number, and the others are read all the
same. Leaves fetching to the rim, and which issues a change closes to `issue_links`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbench_build.rules.forge_lines import Problem, numbered, text_of
from kbench_build.rules.issue_links import Issue

_ADDRESS = re.compile(
    r"https?://[^/\s]+/([\w.-]+/[\w.-]+)/(?:-/)?(?:issues|pull)/\d+\b.*", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class IssueText:
    """What an issue says. `is_change`: its number is that of a pull request, which is no issue."""

    issue: Issue
    title: str
    body: str
    url: str
    is_change: bool = False


@dataclass(frozen=True, kw_only=True)
class Issues:
    """The issues of a file, and the lines that are none."""

    texts: Mapping[Issue, IssueText]
    problems: tuple[Problem, ...] = ()

    def of(self, issue: Issue) -> IssueText | None:
        """The text of an issue; the forge doesn't tell capitals in its repository's name."""
        return self.texts.get(_key(issue))


NONE = Issues(texts={})


def read_issues(lines: Iterable[bytes]) -> Issues:
    """Read the lines of a JSONL file; of an issue that stands twice, the last counts."""
    texts: dict[Issue, IssueText] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _record(line)
        if isinstance(found, str):
            problems.append(Problem(line=number, message=found))
        else:
            texts[_key(found.issue)] = found
    return Issues(texts=texts, problems=tuple(problems))


def _key(issue: Issue) -> Issue:
    return Issue(repository=issue.repository.lower(), number=issue.number)


def _record(line: bytes) -> IssueText | str:
    """The issue in a line, or why there is none."""
    found = numbered(line)
    if isinstance(found, str):
        return found
    number, value = found
    url = text_of(value.get("html_url")) or text_of(value.get("url"))
    address = _ADDRESS.fullmatch(url)
    repository = text_of(value.get("repository")) or (address[1] if address else "")
    if repository.count("/") != 1:
        return "url: names no repository"
    return IssueText(
        issue=Issue(repository=repository, number=number),
        title=text_of(value.get("title")),
        body=text_of(value.get("body")),
        url=url,
        is_change=value.get("pull_request") not in (None, False),
    )
