"""Where a task comes from, as `task.toml` says it or, where that says nothing, as its id does.

Promises: reads only what has the right type; whether it is true or whole is the checks' business.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbench_build.rules.tables import table

_ID = re.compile(r"(?P<owner>.+?)(?:__|_)(?P<name>.+)-(?P<number>\d+)")
_ISSUE = re.compile(r"/issues/(\d+)(?:[/?#].*)?$")
_KEY = re.compile(r"/([A-Z][A-Z0-9]+)-(\d+)(?:[/?#].*)?$")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A task's repository, its change and its issues.

    `change` is the number of the pull request, None where none is known. `issues` are the listed
    issues' numbers in the own repository and their keys in a tracker (`KTOR-12`), which `tracker`
    finds in texts. `commits` are ids that task.toml gives beside the base commit.
    """

    owner: str
    name: str
    change: str | None
    issue_urls: tuple[str, ...]
    issues: frozenset[str]
    tracker: re.Pattern[str] | None
    base: str | None
    commits: frozenset[str]

    def is_repository(self, owner: str, name: str) -> bool:
        """Whether these are the owner and name of the task's own repository."""
        mine, theirs = (self.owner, self.name), (owner, name.removesuffix(".git"))
        return tuple(map(str.lower, mine)) == tuple(map(str.lower, theirs))


def source_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The table `[metadata.source]`, empty where there is none."""
    return table(config, "metadata", "source")


def origin_of(task: str, config: Mapping[str, Any] | None) -> Origin:
    """What is known of a task's origin, by its id and its `task.toml`."""
    source = source_of(config)
    by_id = _ID.fullmatch(task)
    owner, name = (by_id["owner"], by_id["name"]) if by_id else ("", "")
    urls = tuple(dict.fromkeys(issue_urls(source)))
    base = _text(source, "base_commit")
    commits = {v for v in source.values() if isinstance(v, str) and _COMMIT.fullmatch(v)}
    return Origin(
        owner=_text(source, "repository_owner") or owner,
        name=_text(source, "repository_name") or name,
        change=_text(source, "code_change_id") or (by_id["number"] if by_id else None),
        issue_urls=urls,
        issues=frozenset(_issue_names(urls)),
        tracker=_tracker(urls),
        base=base,
        commits=frozenset(commits - {base}),
    )


def issue_urls(source: Mapping[str, Any]) -> Iterator[str]:
    """The addresses of a task's issues, in either way to write them."""
    several = source.get("issue_urls")
    for url in (source.get("issue_url"), *(several if isinstance(several, list) else ())):
        if isinstance(url, str) and url:
            yield url


def _text(source: Mapping[str, Any], key: str) -> str | None:
    value = source.get(key)
    return value.strip().lstrip("#!") or None if isinstance(value, str) else None


def _issue_names(urls: tuple[str, ...]) -> Iterator[str]:
    for url in urls:
        if number := _ISSUE.search(url):
            yield number[1]
        if key := _KEY.search(url):
            yield f"{key[1]}-{key[2]}"


def _tracker(urls: tuple[str, ...]) -> re.Pattern[str] | None:
    """What finds an issue's key in a text, by the projects of those that are listed."""
    projects = sorted({key[1] for url in urls if (key := _KEY.search(url))})
    if not projects:
        return None
    return re.compile(rf"(?<![\w-])(?:{'|'.join(projects)})-\d+(?![\w-])")
