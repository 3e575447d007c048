"""Which merged changes are worth running: by who made them, their titles, their files, their size.

Promises: every change that is left out has one reason, the first that applies in the order below;
nothing is run and no patch is read to tell most of them. Patterns are data, with defaults here and
in `kbench.toml`. Leaves to others whether the tests then tell the fix from its absence.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

from kbench_build.rules.merges import Candidate, Refused
from kbench_build.rules.patch_split import Split
from kbench_build.rules.path_kinds import Patterns

# Why a change is left out, in the order in which the reasons are tried.
REASONS: Mapping[str, str] = {
    "no-base": "the first commit of the repository",
    "base-missing": "the clone ends before its base",
    "merge-missing": "merged elsewhere, or force-pushed away: the branch doesn't hold its commit",
    "octopus": "a merge of more than two parents",
    "bot": "made by a program",
    "label": "has a label that is left out",
    "chore": "a release, a dependency or another chore, by its title",
    "revert": "takes back an earlier change",
    "too-many-files": "changes more files than a task can",
    "no-source": "changes no source",
    "no-test": "changes no test",
    "objects-missing": "the clone lacks its files",
    "too-small": "changes fewer lines of source and tests than wanted",
    "too-large": "changes more lines of source and tests than wanted",
    "too-heavy": "its patch has more than 16 MB",
    "same-change": "the same change as another one",
}
BOTS = (
    "*[[]bot]",
    "*-bot",
    "*_bot",
    "bot-*",
    "dependabot*",
    "renovate*",
    "greenkeeper*",
    "snyk*",
    "github-actions*",
    "scala-steward*",
    "pyup*",
    "imgbot*",
    "allcontributors*",
    "transifex*",
    "weblate*",
    "pre-commit-ci*",
)
CHORES = (
    # Dependencies: `Bump a from 1 to 2`, `chore(deps): …`, `Update dependency x to v3`.
    r"(?:[a-z]+(?:\([\w./-]*\))?!?: *)?(?:bump|upgrade|update)s? .*"
    r"(?:\bto\b|->|→) *v?\d[\w.+-]*(?: (?:in|and|on) .*| ?\(.*\)| ?\[.*\])?",
    r"(?:build|chore|fix)\(deps(?:-dev)?\).*",
    r"(?:chore: *)?(?:bump|update|upgrade)s? (?:all )?(?:the )?(?:\w+ )?"
    r"(?:dependencies|dependency [\w./:@-]+(?: to .*)?|deps|lock ?files?|submodules?)",
    r"lock file maintenance.*",
    # Releases: `Release 1.2`, `v1.2.3`, `Prepare next development version`.
    r"(?:chore(?:\([\w./-]*\))?: *)?(?:(?:release|version|publish)s?:? *)?v?\d+\.\d[\w.+-]*",
    r"(?:chore(?:\([\w./-]*\))?: *)?release\b[ :]*v?\d.*",
    r"(?:prepare|cut|start|begin|set)\b.*\b(?:release|(?:development|snapshot|next) version)\b.*",
    r"(?:bump|update|set)s? (?:the )?(?:version|changelog)(?: (?:to|for|of) v?\d.*)?",
    # Branches merged into each other.
    r"merge (?:branch|remote|main|master|develop|release|upstream)\b.*",
    r"back-?merge\b.*",
    # Machines at work.
    r"\[?(?:automated|automatic|auto)[ \]:-].*",
    r"(?:update|sync) translations?\b.*",
)
# What is larger isn't tried on a base commit either.
_MOST_BYTES = 16 << 20
_REVERT = re.compile(r'revert(?:s|ed)?\b[ :"]', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What is left out. `bots` are patterns of names, mail names and branches; `chores` of titles.

    Lines are those that source and tests add and remove; files are counted whatever they are for.
    """

    patterns: Patterns
    bots: tuple[str, ...] = BOTS
    chores: tuple[str, ...] = CHORES
    labels: tuple[str, ...] = ()
    fewest_lines: int = 3
    most_lines: int = 1_500
    most_files: int = 1_000

    @cached_property
    def _titles(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{each})" for each in self.chores) or r"(?!)", re.IGNORECASE)

    def refuse(self, change: Candidate, paths: Sequence[str]) -> Refused | None:
        """Why a change is left out by what is known without its patch; None to go on."""
        kinds = self.patterns.kinds_of(paths) if len(paths) <= self.most_files else frozenset()
        tests = {
            "bot": self._is_bot(change),
            "label": next((label for label in change.labels if label in self.labels), ""),
            "chore": change.title if self._titles.fullmatch(change.title.strip()) else "",
            "revert": change.title if _REVERT.match(change.title) else "",
            "too-many-files": f"{len(paths)} files" if len(paths) > self.most_files else "",
            "no-source": "" if "source" in kinds else f"{len(paths)} other files",
            "no-test": "" if "test" in kinds else f"{len(paths)} other files",
        }
        return next((refused(change, why, said) for why, said in tests.items() if said), None)

    def refuse_split(self, change: Candidate, split: Split) -> Refused | None:
        """Why a change is left out by its patch; None to go on."""
        lines = split.lines["source"] + split.lines["test"]
        if lines < self.fewest_lines:
            return refused(change, "too-small", f"{lines} lines")
        if lines > self.most_lines:
            return refused(change, "too-large", f"{lines} lines")
        size = sum(len(section.data) for section in split.sections)
        if size > _MOST_BYTES:
            return refused(change, "too-heavy", f"{size / 1e6:.0f} MB")
        # A moved file may have left its kind since the paths were looked at.
        if not split.paths("source"):
            return refused(change, "no-source")
        return None if split.paths("test") else refused(change, "no-test")

    def _is_bot(self, change: Candidate) -> str:
        mail = change.author_email.partition("@")[0].rpartition("+")[2]
        names = (change.author, mail, *change.branch.split("/"))
        return next((name for name in names if _fits_any(name.lower(), self.bots)), "")


@lru_cache(maxsize=1024)
def _fits_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def refused(change: Candidate, reason: str, detail: str = "") -> Refused:
    """A change left out, for one of `REASONS`."""
    return Refused(
        id=change.id,
        number=change.number,
        title=change.title,
        merge=change.merge,
        reason=reason,
        detail=detail,
    )


def change_id(split: Split) -> str:
    """A digest of what source and tests lose and gain, wherever in the files and history it is."""
    running = hashlib.sha256()
    for section in sorted(split.sections, key=lambda s: s.path):
        if section.kind in ("source", "test"):
            running.update(section.path.encode("utf-8", "surrogateescape") + b"\0")
            running.update(b"\n".join(_content(section.data)) + b"\0")
    return running.hexdigest()


def _content(section: bytes) -> Iterable[bytes]:
    """The lines of a section that a move in the file or the history leaves as they are."""
    for line in section.split(b"\n"):
        # A file's own ids, line numbers and the text around a change differ between branches.
        if not line.startswith((b"index ", b"@@ ", b" ", b"diff ")):
            yield line


def without_repeats(
    changes: Iterable[tuple[Candidate, str]],
) -> tuple[tuple[Candidate, ...], tuple[Refused, ...]]:
    """The oldest of each change that was merged several times, and the others, which name it.

    The strings are `change_id`s. The order of the changes is kept.
    """
    found = tuple(changes)
    first: dict[str, Candidate] = {}
    for change, same in sorted(found, key=lambda each: (each[0].merged, each[0].number or 0)):
        first.setdefault(same, change)
    kept = tuple(change for change, same in found if first[same] is change)
    others = tuple(
        refused(change, "same-change", first[same].id)
        for change, same in found
        if first[same] is not change
    )
    return kept, others
