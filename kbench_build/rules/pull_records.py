"""Pull request data, a JSON object a line, as GitHub's API or its `gh` command writes it.

Promises: a line that can't be read is a problem with its number, and the others are read all the
same; fields that are missing are empty. Leaves fetching to the rim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from kbench_build.rules.merges import Pull


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line (from 1) that isn't a pull request, and why."""

    line: int
    message: str


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
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error.msg}"
    if not isinstance(value, dict):
        return "is no JSON object"
    number = value.get("number")
    if type(number) is not int or not 0 < number < 1 << 31:
        return "number: must be a whole number from 1 up"
    merged = _time(_first(value, "merged_at", "mergedAt"))
    return _pull(value, number, merged) if merged else None


def _pull(value: Mapping[str, Any], number: int, merged: int) -> Pull:
    author = _first(value, "user", "author")
    commit = _first(value, "merge_commit_sha", "mergeCommit")
    commits = value.get("commits")
    return Pull(
        number=number,
        title=_text(value.get("title")),
        body=_text(value.get("body")),
        author=_text(author.get("login") if isinstance(author, Mapping) else author),
        labels=tuple(_labels(value.get("labels"))),
        created=_time(_first(value, "created_at", "createdAt")),
        merged=merged,
        url=_text(_first(value, "html_url", "url")),
        merge_commit=_text(commit.get("oid") if isinstance(commit, Mapping) else commit),
        commits=len(commits) if isinstance(commits, list) else _count(commits),
    )


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _labels(value: Any) -> Iterable[str]:
    for label in value if isinstance(value, list) else ():
        name = label.get("name") if isinstance(label, Mapping) else label
        if isinstance(name, str):
            yield name


def _time(value: Any) -> int:
    """Seconds since 1970 of an ISO 8601 time, 0 where there is none."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return 0
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp()))
