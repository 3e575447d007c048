"""Ask GitHub what it says of a clone's merged changes, and of the issues that they close.

Promises: what can't be had is named with its reason, and the rest is asked and used all the same.
Each answer is kept as it comes in, so a run that broke off goes on where it was; what was had
before is only asked for anew where it has changed. Leaves joining to `mine`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError
from kbench_build.model.repository import Commit
from kbench_build.rim.answers import Answers, Kept
from kbench_build.rim.github import UNCHANGED, ForgeError, GitHub
from kbench_build.rim.store import write_whole
from kbench_build.rules import forge_answers as forge
from kbench_build.rules.findings import printable
from kbench_build.rules.issue_links import Issue
from kbench_build.rules.issue_records import Issues, read_issues
from kbench_build.rules.merges import Pull, merged_changes, uncounted
from kbench_build.rules.pull_records import Records, read_records

FOLDER = "github"
ANSWERS, PULLS, ISSUES = "answers.jsonl", "pulls.jsonl", "issues.jsonl"
# Beyond so many, what a broken list lacks is left out.
_MOST_SINGLE = 500

# Of a hundred pull requests each.
_MOST_PAGES = 5_000

Trim = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What earlier runs got, from the files that they left."""

    pulls: Records
    issues: Issues


def known(folder: Path) -> Known:
    """What there is of a repository's forge below its folder in `mined/`, without asking."""
    return Known(
        pulls=read_records(_lines(folder / FOLDER / PULLS)),
        issues=read_issues(_lines(folder / FOLDER / ISSUES)),
    )


def read_issue_file(path: Path) -> Issues:
    """The issues of a JSONL file. Raises `KbenchError` where it can't be read."""
    return read_issues(_lines(path))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


class Asking:
    """One run's questions about one repository.

    `problems` says in one line each what wasn't there or wasn't answered; `complete` is whether
    all was answered, whatever the answer.
    """

    def __init__(
        self,
        github: GitHub,
        folder: Path,
        repository: str,
        *,
        announce: Callable[[str], None],
        keep: bool = True,
    ) -> None:
        """`folder` is the repository's in `mined/`; nothing is written there unless `keep`.

        `announce` is told of each page.
        """
        self.problems: list[str] = []
        self.complete = True
        self._github = github
        self._folder = folder / FOLDER
        self._keep = keep
        self._answers = Answers(self._folder / ANSWERS if keep else None)
        self._repository = repository
        self.announce = announce

    def pulls(self, commits: Sequence[Commit], since: int | None) -> tuple[Pull, ...]:
        """The merged pull requests since a time, and those that are known from earlier runs."""
        found = {_number(each): each for each in self._listed(since)}
        if not self.complete:
            self._one_by_one(self._unlisted(commits, found), found)
        self._one_by_one(uncounted(commits, _pulls(found.values())), found)
        return _pulls(self._joined(PULLS, found.values()))

    def issues(self, wanted: Iterable[Issue]) -> Issues:
        """The texts of issues, and those that are known from earlier runs."""
        found = []
        for issue in dict.fromkeys(wanted):
            path = forge.issue_path(issue.repository, issue.number)
            value = self._value(path, partial(forge.issue_in, repository=issue.repository))
            found += [] if value is None else [value]
        return read_issues(map(orjson.dumps, self._joined(ISSUES, found)))

    def end(self) -> None:
        """Nothing more is asked. Where all was answered, the next run asks for what has changed."""
        if self.complete:
            self._answers.end()

    def _listed(self, since: int | None) -> Iterator[dict[str, Any]]:
        """The pages, one after another; past one that can't be read, as long as the next can."""
        path, failed = forge.pulls_path(self._repository), False
        seen: set[str] = set()
        while path and path not in seen and len(seen) < _MOST_PAGES:
            seen.add(path)
            kept = self._ask(path, forge.pulls_in)
            if kept is None and (failed or self._github.closed):
                return
            failed = kept is None
            pulls = forge.pulls_in(kept.value) if kept is not None else []
            yield from pulls
            if forge.is_past(pulls, since):
                return
            path = kept.next if kept is not None else forge.page_after(path)

    def _unlisted(self, commits: Sequence[Commit], found: Mapping[int, Any]) -> Iterable[int]:
        """Numbers that commits name, and that a broken list doesn't have."""
        changes = merged_changes(commits, repository=self._repository).candidates
        numbers = (c.number for c in changes if c.number is not None and c.number not in found)
        return list(numbers)[:_MOST_SINGLE]

    def _one_by_one(self, numbers: Iterable[int], found: dict[int, dict[str, Any]]) -> None:
        for number in numbers:
            value = self._value(forge.pull_path(self._repository, number), forge.pull_in)
            if value is not None:
                found[number] = value

    def _value(self, path: str, trim: Trim) -> dict[str, Any] | None:
        kept = self._ask(path, trim)
        return kept.value if kept is not None and isinstance(kept.value, dict) else None

    def _ask(self, path: str, trim: Trim) -> Kept | None:
        """The answer of a path, or the last one that is known; None where there is none."""
        url = self._github.url + path
        if fresh := self._answers.fresh(url):
            return fresh
        known = self._answers.known(url)
        try:
            answer = self._github.get(path, known.etag if known else "")
        except ForgeError as error:
            self.complete = False
            self._problem(url, str(error))
            return known
        if answer.status == UNCHANGED and known is not None:
            kept = replace(known, at=time.time())
        elif answer.value is None:
            self._problem(url, f"{answer.status}: there is none, or the token may not see it")
            return None
        else:
            value, at = trim(answer.value), time.time()
            kept = Kept(url=url, at=at, etag=answer.etag, next=answer.next, value=value)
        self._answers.keep(kept)
        self.announce(url)
        return kept

    def _problem(self, url: str, reason: str) -> None:
        # What ends all questions is said once.
        if not any(problem.endswith(printable(reason)) for problem in self.problems):
            self.problems.append(f"{url}: {printable(reason)}")

    def _joined(self, name: str, found: Iterable[Any]) -> list[dict[str, Any]]:
        """What was found with what earlier runs had; kept for those that come."""
        path = self._folder / name
        earlier = (_parsed(line) for line in _lines(path))
        each = {_key(value): value for value in (*earlier, *found) if value}
        values = [each[key] for key in sorted(each, reverse=True)]
        if self._keep:
            write_whole(path, b"".join(orjson.dumps(value) + b"\n" for value in values))
        return values


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _key(value: Mapping[str, Any]) -> tuple[str, int]:
    return str(value.get("repository", "")), _number(value)


def _number(value: Mapping[str, Any]) -> int:
    number = value.get("number")
    return number if isinstance(number, int) else 0


def _pulls(values: Iterable[Any]) -> tuple[Pull, ...]:
    return read_records(map(orjson.dumps, values)).pulls
