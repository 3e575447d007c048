"""Whether a statement of a mined task may be used: what it must not show of the fix.

Promises: pure; the checks of finished tasks (`statement/*`) are asked, and beside them that no
identifier comes from the fix alone. Leaves to the caller which names the base holds, after saying
which it has to look for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from kbench_build.rules import statement
from kbench_build.rules.content import FIX, INSTRUCTION, TEST_PATCH, Around, Content
from kbench_build.rules.findings import printable, run_checks
from kbench_build.rules.merges import Candidate
from kbench_build.rules.names import is_telling, kept_words, words_of
from kbench_build.rules.patches import Patch, parse_patch
from kbench_build.rules.statements import Source

# With more than these the text is the fix retold, whatever the base holds.
MOST_NAMES = 50
MOST_CHARACTERS = 20_000
_MOST_OF_ALL = 1 << 20
_AROUND = Around(namespace="", bases=(), shipped={})
_REJECT = ("statement/fix-link", "statement/fix-id", "statement/fix-line", "statement/test-line")
# An issue is older than the fix: a name in it is a wish.
_REJECT_WRITTEN = ("statement/fix-name",)
_NOTE = ("statement/unknown-name", "statement/several-issues", "statement/unlisted-issue")

_WORD = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
_DASHED = re.compile(r"(?<![\w-])(?:--)?[^\W\d_]\w*(?:-\w+)+")
_OPTION = re.compile(r"(?<![\w-])--[^\W\d_][\w-]*")
_CODE = frozenset({"code_inline", "code_block", "fence"})
_BREAKS = frozenset({"softbreak", "hardbreak"})
_CALLED = re.compile(r"(?<![\w$])((?:[^\W\d]|\$)[\w$]*+)(?=\()|(?<=\w\.)([^\W\d][\w$]*)")
_MARKERS = re.compile(r"[\s#>*_\d.)-]*+")
_NEXT_SENTENCE = re.compile(r"[.!?:]\s++")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A mined change as a statement is held against it. `source` is `[metadata.source]`."""

    id: str
    source: Mapping[str, Any]
    fix: bytes
    test: bytes

    @cached_property
    def content(self) -> Content:
        """The task that it will be, without a statement."""
        return Content(
            id=self.id,
            around=_AROUND,
            files={},
            data={FIX: self.fix, TEST_PATCH: self.test},
            unread=(),
            form="shipped",
            config={"metadata": {"source": self.source}},
            expected_json=None,
            verify=None,
            quarantine=None,
            syntax=(),
        )

    @cached_property
    def patch(self) -> Patch:
        """The fix, read once."""
        return parse_patch(self.fix)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of commits and files that the fix makes."""
        return statement.ids_of_fix(self.content)

    @cached_property
    def lines(self) -> frozenset[str]:
        """The lines that the fix adds and nobody writes by chance."""
        lines = statement.lines_of_fix(self.content)
        return frozenset(line.decode("utf-8", "replace") for line in lines)

    def told(self, text: str) -> Content:
        """The task with a statement."""
        data = {**self.content.data, INSTRUCTION: text.encode("utf-8", "replace")}
        return replace(self.content, data=data)

    @cached_property
    def own(self) -> frozenset[str]:
        """Identifiers of the lines that the fix adds, and of the names of its new files.

        Without those that its other lines hold, and those that hidden tests say too.
        """
        added = b"\n".join(line for file in self.patch.files for line in file.added)
        paths = " ".join(f.new for f in self.patch.files if f.new and f.old is None)
        text = added.decode("utf-8", "replace")
        known = kept_words(self.fix) | words_of(self.test)
        kept = {word.decode("ascii") for word in known}
        return frozenset({*_words(text), *_words(paths), *_options(text)}) - kept


def change_of(repository: str, candidate: Candidate, fix: bytes, test: bytes) -> Change:
    """A candidate's change, as far as it is known before there is a task."""
    owner, _, name = repository.partition("/")
    own = (issue for issue in candidate.issues if issue.repository.lower() == repository.lower())
    ids = {f"commit_{n}": i for n, i in enumerate((candidate.merge, *candidate.commits))}
    source = {
        "repository_owner": owner,
        "repository_name": name,
        "issue_urls": [f"/{issue.repository}/issues/{issue.number}" for issue in own],
        "base_commit": candidate.base,
        **ids,
    }
    if candidate.number is not None:
        source["code_change_id"] = str(candidate.number)
    return Change(id=f"{owner}_{name}", source=source, fix=fix, test=test)


def names_to_look_for(change: Change, text: str, sources: Iterable[str]) -> frozenset[str]:
    """The names that decide, if the base doesn't hold them. At most one more than `MOST_NAMES`."""
    task = change.told(text)
    told = {n for n in task.fix_names.new & task.instruction_words if is_telling(n)}
    others = told | statement.needed_names(task)
    names = [*_suspects(change, text, sources), *sorted(name.decode("ascii") for name in others)]
    return frozenset(names[: MOST_NAMES + 1])


def problems(
    change: Change,
    text: str,
    source: Source,
    *,
    sources: Iterable[str],
    at_base: frozenset[str],
    later: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Why a statement is rejected, in one line each; empty: it may be used.

    `sources` are the texts that it was made from, `at_base` those of `names_to_look_for` that the
    base holds, `later` ids in it of commits that come after the base.
    """
    return (
        *_length(text, source),
        *_leaks(change, text, sources, at_base),
        *_said(_task(change, text, at_base, later), _rejecting(source)),
    )


def notes(change: Change, text: str, *, at_base: frozenset[str]) -> tuple[str, ...]:
    """What a reader of the statement may want to know, though it is no reason to reject it."""
    return tuple(_said(_task(change, text, at_base, frozenset()), _NOTE))


def _task(change: Change, text: str, at_base: frozenset[str], later: frozenset[str]) -> Content:
    names = frozenset(name.encode("ascii") for name in at_base if name.isascii())
    return replace(change.told(text), at_base=names, later=later)


def _rejecting(source: Source) -> tuple[str, ...]:
    return _REJECT if source == "issue" else (*_REJECT, *_REJECT_WRITTEN)


def _said(task: Content, ids: tuple[str, ...]) -> Iterator[str]:
    checks = (check for check in statement.CHECKS if check.id in ids)
    for finding in run_checks(checks, task, ""):
        yield f"{finding.where}: {finding.message}" if finding.where else finding.message


def _length(text: str, source: Source) -> Iterator[str]:
    most = MOST_CHARACTERS if source == "judge" else _MOST_OF_ALL
    if not text.strip():
        yield "says nothing"
    elif len(text) > most:
        yield f"has more than {most} characters"


def _leaks(
    change: Change, text: str, sources: Iterable[str], at_base: frozenset[str]
) -> Iterator[str]:
    suspects = _suspects(change, text, sources)
    if len(suspects) > MOST_NAMES:
        yield f"names {len(suspects)} things that stand in the fix and in none of its sources"
        return
    for name in suspects:
        if name not in at_base:
            yield f"names {printable(name)!r}, which stands in the fix alone"


def _suspects(change: Change, text: str, sources: Iterable[str]) -> list[str]:
    """Identifiers of the text that the fix adds and its sources don't have, sorted."""
    given = "\n".join(sources)
    known = {*_words(given), *_options(given)}
    return sorted(_identifiers(change, text) & change.own - known)


def _identifiers(change: Change, text: str) -> set[str]:
    """What may be an identifier in a text: by its form, by standing in code, by being declared."""
    prose, code = _parted(text)
    words = set(_words(prose))
    telling = {word for word in words if word.isascii() and is_telling(word.encode("ascii"))}
    called = {name for pair in _CALLED.findall(prose) for name in pair if name}
    declared = {n.decode("ascii") for n in change.content.fix_names.declared if len(n) > 2}
    # A plain word in prose is one, whatever the fix calls so.
    spelled = {word for word in words & declared if not word.islower()} - _capitals(prose)
    options = (*_DASHED.findall(code), *_OPTION.findall(prose))
    return {*telling, *called, *spelled, *_words(code), *options}


def _capitals(prose: str) -> set[str]:
    """Words that have a capital only where they begin a sentence."""
    first, rest = set(), set()
    for line in prose.split("\n"):
        for sentence in _NEXT_SENTENCE.split(line):
            words = _words(_MARKERS.sub("", sentence, count=1))
            first |= {word for word in words[:1] if word.istitle()}
            rest |= set(words[1:])
    return first - rest


def _parted(text: str) -> tuple[str, str]:
    """The prose and the code of a text, as a reader of Markdown sees them."""
    prose: list[str] = []
    code: list[str] = []
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in _CODE:
            code.append(token.content)
        elif token.type == "inline":
            prose.append("".join(_of_prose(token.children or (), code)))
        else:
            prose.append(token.content)
    return "\n".join(prose), "\n".join(code)


def _of_prose(tokens: Iterable[Token], code: list[str]) -> Iterator[str]:
    for token in tokens:
        if token.type in _CODE:
            code.append(token.content)
            yield " "
        else:
            yield "\n" if token.type in _BREAKS else token.content
            yield from (f" {value} " for value in token.attrs.values())


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _options(text: str) -> list[str]:
    return [*_OPTION.findall(text), *_DASHED.findall(text)]
