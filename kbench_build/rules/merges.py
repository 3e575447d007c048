"""Which merged changes a branch's history shows, and the commit pair of each.

Promises: a change is found whichever way it was merged (a merge commit, one squashed commit that
names its number, or rebased commits), each with the commit before it and the one after it; what is
no change that can be measured is refused with a reason. Leaves to others which files it may touch.

A rebase merge leaves no mark of its own. It is known by what the forge says of it, where that is at
hand; otherwise by its commits' commit times: a forge writes all of them anew in one go, in order,
while their authors wrote them one after another.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kbench_build.model.repository import Commit
from kbench_build.rules.issue_links import Issue, linked_issues
from kbench_build.rules.own_ids import with_own_ids

How = Literal["merge", "squash", "rebase"]

_GITHUB = re.compile(r"Merge pull request #(?P<number>\d{1,9}) from (?P<branch>\S+)")
_BITBUCKET = re.compile(r"Merged in (?P<branch>\S.*) \(pull request #(?P<number>\d{1,9})\)")
_GITLAB = re.compile(r"Merge branch '(?P<branch>[^']+)' into '[^']+'")
_GITLAB_NUMBER = re.compile(r"^See merge request (?:\S+)?!(\d{1,9})$", re.MULTILINE)
_SQUASH = re.compile(r"(.*\S)\s*\(#(\d{1,9})\)")
_ONE_GO_SEC = 2
# Who commits what is merged in GitHub's pages by a squash.
_GITHUBS_MAIL = "noreply@github.com"


@dataclass(frozen=True, kw_only=True)
class Pull:
    """What a forge says of a merged change. Times in seconds since 1970, 0 where unknown."""

    number: int
    title: str
    body: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    created: int = 0
    merged: int = 0
    url: str = ""
    merge_commit: str = ""
    commits: int = 0


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A merged change: the commit before it, the one after it, and what is said of it.

    `id` is `#<number>`, or the merge commit's first twelve digits where no number is known;
    `branch` is what was merged, where a merge commit says so.
    """

    id: str
    number: int | None
    how: How
    title: str
    body: str
    author: str
    author_email: str
    labels: tuple[str, ...]
    created: int
    merged: int
    base: str
    merge: str
    commits: tuple[str, ...]
    issues: tuple[Issue, ...]
    url: str
    branch: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A merged change that is no candidate: which, and why (`reason` is one of a fixed few)."""

    id: str
    number: int | None
    title: str
    merge: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """All merged changes of a branch, newest first."""

    candidates: tuple[Candidate, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, kw_only=True)
class _Merge:
    """Commits of the branch that came as one change, oldest first, and what they say of it."""

    how: How
    commits: tuple[Commit, ...]
    number: int | None = None
    title: str = ""
    body: str = ""
    branch: str = ""
    pull: Pull | None = None

    @property
    def last(self) -> Commit:
        return self.commits[-1]


def merged_changes(
    commits: Sequence[Commit],
    *,
    repository: str,
    pulls: Iterable[Pull] = (),
    shallow: Iterable[str] = (),
) -> Found:
    """The changes that were merged into a branch, from its first parents, newest first.

    `repository` (`owner/name`) is meant by issues without one. `pulls` are what the forge says,
    `shallow` the commits where a shallow clone ends.
    """
    known = _Pulls(pulls)
    ends = frozenset(shallow)
    candidates: list[Candidate] = []
    merges = list(_merges(commits, known))
    refused = list(_elsewhere(commits, merges, known))
    for merge in merges:
        problem = _problem(merge, ends)
        if problem:
            refused.append(_refused(merge, *problem))
        else:
            candidates.append(_candidate(merge, repository))
    return Found(candidates=tuple(with_own_ids(candidates)), refused=tuple(refused))


def _elsewhere(
    commits: Sequence[Commit], merges: Iterable[_Merge], pulls: "_Pulls"
) -> Iterator[Refused]:
    """What the forge says was merged in the time of these commits, and none of them is."""
    found = {merge.pull.number if merge.pull else merge.number for merge in merges}
    here = {commit.id for commit in commits}
    times = [commit.committed for commit in commits]
    for pull in pulls.by_number.values():
        commit = pull.merge_commit
        missing = commit and commit not in here and pull.number not in found
        if missing and times and min(times) <= pull.merged <= max(times):
            yield Refused(
                id=_id(pull.number, commit),
                number=pull.number,
                title=pull.title,
                merge=commit,
                reason="merge-missing",
                detail=commit[:12],
            )


def uncounted(commits: Sequence[Commit], pulls: Iterable[Pull]) -> tuple[int, ...]:
    """Numbers of the pull requests that may have come as several commits, and nobody says how many.

    A list of pull requests doesn't say it, only what the forge says of each alone.
    """
    single = {c.id for c in commits if len(c.parents) == 1 and not _says_number(c)}
    return tuple(p.number for p in pulls if not p.commits and p.merge_commit in single)


class _Pulls:
    """The forge's data, by number and by merge commit."""

    def __init__(self, pulls: Iterable[Pull]) -> None:
        self.by_number: dict[int, Pull] = {}
        self.by_commit: dict[str, Pull] = {}
        for pull in pulls:
            self.by_number[pull.number] = pull
            if pull.merge_commit:
                self.by_commit[pull.merge_commit] = pull

    def of(self, commit: Commit, number: int | None) -> Pull | None:
        """The pull request of a commit: by its id, or by the number that it names."""
        found = self.by_commit.get(commit.id)
        return found or (self.by_number.get(number) if number is not None else None)


def _merges(commits: Sequence[Commit], pulls: _Pulls) -> Iterator[_Merge]:
    at = 0
    while at < len(commits):
        merge = _marked(commits[at], pulls) or _rebased(commits, at, pulls)
        if merge is not None:
            yield merge
        at += len(merge.commits) if merge else 1


def _marked(commit: Commit, pulls: _Pulls) -> _Merge | None:
    """A merge commit or a squashed one, by its message."""
    subject, rest = _subject(commit)
    is_merge = len(commit.parents) > 1
    merge = _of_merge(commit, subject, rest) if is_merge else _of_squash(commit, subject, rest)
    pull = pulls.of(commit, merge.number)
    if pull is None and merge.number is None:
        return None
    if pull is not None and not is_merge and pull.commits > 1 and merge.number is None:
        return None  # the last of several rebased commits
    return replace(merge, pull=pull)


def _subject(commit: Commit) -> tuple[str, str]:
    """The first line of a message, and the rest."""
    subject, _, rest = commit.message.strip().partition("\n")
    return subject.strip(), rest.strip()


def _of_merge(commit: Commit, subject: str, rest: str) -> _Merge:
    """What the message of a merge commit says."""
    title, _, body = rest.partition("\n")
    merge = _Merge(how="merge", commits=(commit,), title=title or subject, body=body.strip())
    if found := _GITHUB.fullmatch(subject) or _BITBUCKET.fullmatch(subject):
        return replace(merge, number=int(found["number"]), branch=found["branch"])
    branch, number = _GITLAB.fullmatch(subject), _GITLAB_NUMBER.search(rest)
    if branch and number:
        body = _GITLAB_NUMBER.sub("", body).strip()
        return replace(merge, number=int(number[1]), branch=branch["branch"], body=body)
    return replace(merge, title=subject, body=rest)


def _of_squash(commit: Commit, subject: str, rest: str) -> _Merge:
    """What the message of a squashed commit says."""
    found = _SQUASH.fullmatch(subject)
    title, number = (found[1], int(found[2])) if found else (subject, None)
    return _Merge(how="squash", commits=(commit,), number=number, title=title, body=rest)


def _rebased(commits: Sequence[Commit], at: int, pulls: _Pulls) -> _Merge | None:
    """The commits that a rebase merge wrote, the newest at `at`; None where there is none."""
    newest = commits[at]
    pull = pulls.by_commit.get(newest.id)
    length = pull.commits if pull else _length_of_run(commits, at)
    run = tuple(reversed(commits[at : at + length]))
    if len(run) < max(1, length) or (pull is None and length < 2):
        return None
    if any(len(commit.parents) > 1 for commit in run):
        return None
    if pull and _is_squash(run):
        return replace(_of_squash(newest, *_subject(newest)), pull=pull)
    subject, _, body = run[0].message.strip().partition("\n")
    text = "\n\n".join([body.strip(), *(commit.message.strip() for commit in run[1:])]).strip()
    return _Merge(how="rebase", commits=run, title=subject, body=text, pull=pull)


def _is_squash(run: Sequence[Commit]) -> bool:
    """Whether only the last commit is the change, though the forge counts more.

    Those that were squashed into it are on no branch; what lies before it is older.
    """
    last = run[-1]
    apart = last.committed - run[0].committed > _ONE_GO_SEC + len(run)
    return last.committer_email == _GITHUBS_MAIL and apart


def _length_of_run(commits: Sequence[Commit], at: int) -> int:
    """How many commits from `at` on were written in one go, by one who didn't write them so."""
    first = commits[at]
    if first.committed - first.authored <= _ONE_GO_SEC:
        return 0
    length = 0
    for commit in commits[at:]:
        together = abs(commit.committed - first.committed) <= _ONE_GO_SEC
        same = commit.committer_email == first.committer_email
        if not (together and same and len(commit.parents) == 1 and not _says_number(commit)):
            break
        length += 1
    return length


def _says_number(commit: Commit) -> bool:
    return _SQUASH.fullmatch(commit.message.strip().partition("\n")[0].strip()) is not None


def _problem(merge: _Merge, shallow: frozenset[str]) -> tuple[str, str] | None:
    oldest = merge.commits[0]
    if oldest.id in shallow:
        return "base-missing", "a shallow clone ends here: fetch more of the history"
    if not oldest.parents:
        return "no-base", "it is the first commit of the repository"
    if len(merge.last.parents) > 2:
        return "octopus", f"the merge has {len(merge.last.parents)} parents"
    return None


def _refused(merge: _Merge, reason: str, detail: str) -> Refused:
    number = merge.pull.number if merge.pull else merge.number
    return Refused(
        id=_id(number, merge.last.id),
        number=number,
        title=merge.pull.title if merge.pull else merge.title,
        merge=merge.last.id,
        reason=reason,
        detail=detail,
    )


def _id(number: int | None, commit: str) -> str:
    return f"#{number}" if number is not None else commit[:12]


def _candidate(merge: _Merge, repository: str) -> Candidate:
    pull, oldest = merge.pull, merge.commits[0]
    number = pull.number if pull else merge.number
    title = pull.title if pull else merge.title
    body = pull.body if pull else merge.body
    messages = [commit.message for commit in merge.commits]
    linked = (linked_issues(text, repository) for text in (title, body, *messages))
    return Candidate(
        id=_id(number, merge.last.id),
        number=number,
        how=merge.how,
        title=title,
        body=body,
        author=pull.author if pull and pull.author else oldest.author,
        author_email=oldest.author_email,
        labels=pull.labels if pull else (),
        created=pull.created if pull and pull.created else oldest.authored,
        merged=pull.merged if pull and pull.merged else merge.last.committed,
        base=oldest.parents[0],
        merge=merge.last.id,
        commits=tuple(commit.id for commit in merge.commits),
        issues=tuple(dict.fromkeys(issue for each in linked for issue in each)),
        url=pull.url if pull else "",
        branch=merge.branch,
    )
