"""What is asked of GitHub's API about a repository, and what of its answers is kept.

Promises: pure; an answer of any shape gives what it has, and nothing is kept but what the readers
of pull requests and issues look at. Leaves asking to the rim.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kbench_build.rules.forge_lines import seconds

_PULL = ("number", "title", "body", "created_at", "updated_at", "merged_at", "html_url")
_PULL_MORE = ("merge_commit_sha", "commits")
_ISSUE = ("number", "title", "body", "html_url")
_PAGE = re.compile(r"\d{1,6}", re.ASCII)
# A change is updated when it is merged; clocks differ.
_DAY = 86_400


def pulls_path(repository: str) -> str:
    """Where the first page of a repository's closed pull requests is, the last updated first."""
    query = "state=closed&sort=updated&direction=desc&per_page=100&page=1"
    return f"/repos/{repository}/pulls?{query}"


def pull_path(repository: str, number: int) -> str:
    """Where one pull request is; only this answer says how many commits it has."""
    return f"/repos/{repository}/pulls/{number}"


def issue_path(repository: str, number: int) -> str:
    """Where one issue is."""
    return f"/repos/{repository}/issues/{number}"


def page_after(path: str) -> str:
    """The page behind one that couldn't be read, empty where the path has no number to count."""
    head, mark, number = path.rpartition("page=")
    return f"{head}{mark}{int(number) + 1}" if mark and _PAGE.fullmatch(number) else ""


def pulls_in(value: Any) -> list[dict[str, Any]]:
    """What is kept of a page of pull requests."""
    values = value if isinstance(value, list) else []
    return [pull_in(each) for each in values if isinstance(each, dict)]


def pull_in(value: Any) -> dict[str, Any]:
    """What is kept of a pull request; an answer of another shape gives an empty one."""
    value = value if isinstance(value, dict) else {}
    user, labels = value.get("user"), value.get("labels")
    names = [_part(each, "name") for each in labels] if isinstance(labels, list) else []
    kept = {key: value.get(key) for key in (*_PULL, *_PULL_MORE) if key in value}
    return {**kept, "user": _part(user, "login"), "labels": names}


def issue_in(value: Any, repository: str) -> dict[str, Any]:
    """What is kept of an issue, which may have moved to another repository since."""
    value = value if isinstance(value, dict) else {}
    kept = {key: value.get(key) for key in _ISSUE if key in value}
    return {**kept, "repository": repository, "pull_request": "pull_request" in value}


def _part(value: Any, key: str) -> dict[str, Any]:
    return {key: value.get(key)} if isinstance(value, Mapping) else {}


def is_past(pulls: Iterable[Mapping[str, Any]], since: int | None) -> bool:
    """Whether all that comes after a page was merged before a time (seconds since 1970)."""
    if since is None:
        return False
    times = [seconds(pull.get("updated_at")) for pull in pulls]
    return bool(times) and 0 < min(times) < since - _DAY
