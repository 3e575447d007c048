"""Pull request data, a JSON object a line, as GitHub's API or its `gh` command writes it.

Promises: a line that can't be read is a problem with its number, and the others are read all the
same; fields that are missing are empty. Leaves fetching to the rim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kbench_build.rules.forge_lines import Problem, numbered, seconds, text_of
from kbench_build.rules.merges import Pull


@dataclass(frozen=True, kw_only=True)
class Records:
    """The merged pull requests of a file, and the lines that are none.

    `unmerged` counts those that the forge closed or still has open.
    """

    pulls: tuple[Pull, ...]
    unmerged: int
    problems: tuple[Problem, ...]


def read_records(lines: Iterable[bytes]) -> Records:
    """Read the lines of a JSONL file; of a number that stands twice, the last counts."""
    pulls: dict[int, Pull] = {}
    unmerged = 0
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _record(line)
        if isinstance(found, str):
            problems.append(Problem(line=number, message=found))
        elif found is None:
            unmerged += 1
        else:
            pulls[found.number] = found
    return Records(pulls=tuple(pulls.values()), unmerged=unmerged, problems=tuple(problems))


def _record(line: bytes) -> Pull | str | None:
    """The pull request in a line; why there is none; None where it wasn't merged."""
    found = numbered(line)
    if isinstance(found, str):
        return found
    number, value = found
    merged = seconds(_first(value, "merged_at", "mergedAt"))
    return _pull(value, number, merged) if merged else None


def _pull(value: Mapping[str, Any], number: int, merged: int) -> Pull:
    author = _first(value, "user", "author")
    commit = _first(value, "merge_commit_sha", "mergeCommit")
    commits = value.get("commits")
    return Pull(
        number=number,
        title=text_of(value.get("title")),
        body=text_of(value.get("body")),
        author=text_of(author.get("login") if isinstance(author, Mapping) else author),
        labels=tuple(_labels(value.get("labels"))),
        created=seconds(_first(value, "created_at", "createdAt")),
        merged=merged,
        url=text_of(_first(value, "html_url", "url")),
        merge_commit=text_of(commit.get("oid") if isinstance(commit, Mapping) else commit),
        commits=len(commits) if isinstance(commits, list) else _count(commits),
    )


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _labels(value: Any) -> Iterable[str]:
    for label in value if isinstance(value, list) else ():
        name = label.get("name") if isinstance(label, Mapping) else label
        if isinstance(name, str):
            yield name
