"""Gives each candidate its statement: an issue's text, a judge's, or a draft for a person.

Promises: no text is made up here, and none is accepted that shows more of the fix than its sources
do; a rejected text is kept with its reason. A statement whose inputs are what they were is left as
it is, and no judge is asked again; what a person wrote is never overwritten. Leaves writing tasks
to `emit`.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock

import orjson

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.rim.git import last_line
from kbench_build.rim.judge import Judge, JudgeError, Said
from kbench_build.rim.mine_judge import JudgeConfig
from kbench_build.rim.process import ProcessError
from kbench_build.rim.store import write_whole
from kbench_build.rim.upstream import BaseCommit, Holder, Source, opened
from kbench_build.rules import statement, statement_prompt, statements
from kbench_build.rules.findings import printable
from kbench_build.rules.fix_references import without_references
from kbench_build.rules.issue_records import Issues
from kbench_build.rules.merges import Candidate
from kbench_build.rules.on_base import names_among
from kbench_build.rules.records import FormatError
from kbench_build.rules.statement_check import (
    change_of,
    names_to_look_for,
    notes,
    problems,
)
from kbench_build.rules.statement_texts import Text, issue_text, joined, seen, without_fix
from kbench_build.rules.statements import Judge as Author
from kbench_build.rules.statements import Statement

STATEMENT, REJECTED, INSTRUCTION = "statement.json", "rejected-statements.jsonl", "instruction.md"
UNFINISHED = "<!-- Draft: say what is wrong as its user sees it, then delete this line. -->"
_UNFINISHED = f"{INSTRUCTION} still has the line that says it is a draft"
# What is judged anew when it changes.
_VERSION = 1
_FAILURES = 3
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A candidate that wants a statement, with its patches."""

    candidate: Candidate
    fix: bytes
    test: bytes


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A candidate's statement; `kept` is whether it was there already."""

    id: str
    statement: Statement
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Stating:
    """What is the same for all candidates of a repository. `folder` is the repository's in mined/.

    `judge` asks the configured judge; both are None where there is none. `stop` is set when the
    run is interrupted, for a judge that watches it.
    """

    clone: Path
    folder: Path
    repository: str
    issues: Issues
    config: JudgeConfig | None = None
    judge: Judge | None = None
    stop: Event = field(default_factory=Event)


def state(wanted: Sequence[Wanted], stating: Stating, jobs: int = 1) -> Iterator[Stated]:
    """The statements, in the candidates' order, each written as soon as it is there."""
    asking = _Asking(stating.judge)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            yield from pool.map(lambda one: _One(one, stating, asking).state(), wanted)
        except BaseException:
            stating.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def read_statement(folder: Path) -> Statement | None:
    """The statement in a candidate's folder, None where there is none that can be read."""
    try:
        return statements.from_json(orjson.loads((folder / STATEMENT).read_bytes()))
    except (OSError, orjson.JSONDecodeError, FormatError):
        return None


class _Asking:
    """The judge, who isn't asked any more after three failures in a row."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self._failed = 0
        self._lock = Lock()

    def ask(self, prompt: str) -> Said:
        """What the judge says. Raises `JudgeError`."""
        assert self._judge is not None
        if self._failed >= _FAILURES:
            raise JudgeError(f"isn't asked any more after {_FAILURES} failures in a row")
        try:
            said = self._judge(prompt)
        except JudgeError:
            with self._lock:
                self._failed += 1
            raise
        self._failed = 0
        return said


class _One:
    """One candidate on its way to a statement."""

    def __init__(self, wanted: Wanted, stating: Stating, asking: _Asking) -> None:
        self._candidate = wanted.candidate
        self._stating = stating
        self._asking = asking
        self._folder = stating.folder / wanted.candidate.id.removeprefix("#")
        self._before = read_statement(self._folder)
        self._own = _own_text(self._folder / INSTRUCTION, self._before)
        found = (stating.issues.of(issue) for issue in wanted.candidate.issues)
        self._issues = tuple(text for text in found if text is not None and not text.is_change)
        repository = stating.repository
        self._change = change_of(repository, wanted.candidate, wanted.fix, wanted.test)
        self._origin = self._change.content.origin

    def state(self) -> Stated:
        """The statement: as it was, or made and written."""
        key, before = self._key(), self._before
        if before and before.key == key and (self._folder / INSTRUCTION).exists():
            return Stated(id=self._candidate.id, statement=before, kept=True)
        clone = Source(name=str(self._stating.clone), path=self._stating.clone)
        with opened(self._folder, Holder(commit=self._candidate.base, source=clone)) as base:
            assert base is not None
            try:
                made = replace(self._made(base), key=key)
            except (JudgeError, ProcessError) as error:
                # Without a key it is made anew by the next run.
                made = self._draft(self._change.ids, _failed(error))
        return Stated(id=self._candidate.id, statement=self._written(made), kept=False)

    def _key(self) -> str:
        """The digest of all that the statement is made from."""
        change, config = self._candidate, self._stating.config
        judge = [config.command, config.endpoint, config.model] if config else []
        return digest.of_json(
            [
                [_VERSION, statement_prompt.VERSION, judge],
                [self._stating.repository, change.id, change.title, change.body, change.base],
                [[each.url, each.title, each.body] for each in self._issues],
                [digest.of_bytes(self._change.fix), digest.of_bytes(self._change.test)],
                self._own,
            ]
        )

    def _made(self, base: BaseCommit) -> Statement:
        if self._own is not None:
            return self._finished(base, self._own)
        ids = self._change.ids | base.beyond(self._ids_said())
        from_issue = self._from_issues(base, ids)
        if from_issue is not None and from_issue.outcome == "accepted":
            return from_issue
        if self._stating.judge is not None:
            return self._from_judge(base, ids)
        return from_issue or self._draft(ids, self._why_no_issue())

    def _finished(self, base: BaseCommit, text: str) -> Statement:
        """What a person wrote into `instruction.md`."""
        if UNFINISHED in text:
            return Statement(key="", source="draft", outcome="draft", reason=_UNFINISHED)
        made = Statement(key="", source="draft", outcome="accepted", text=text)
        return self._checked(base, made, self._sources(self._change.ids))

    def _from_issues(self, base: BaseCommit, ids: Collection[str]) -> Statement | None:
        """The text of the issues, None where they have none."""
        issues = issue_text(self._issues, self._origin, ids)
        if not issues:
            return None
        text, urls = joined(issues), tuple(each.url for each in issues)
        made = Statement(key="", source="issue", outcome="accepted", text=text, issues=urls)
        return self._checked(base, made, [text])

    def _from_judge(self, base: BaseCommit, ids: Collection[str]) -> Statement:
        """What the judge makes of title and description."""
        sources = self._texts(ids)
        prompt = statement_prompt.prompt(sources)
        said = self._asking.ask(prompt)
        answer = statement_prompt.answer(said.text)
        author = self._author(said.model or answer.model, prompt)
        if answer.refused:
            made = self._draft(ids, answer.refused)
            self._reject(replace(made, source="judge", text=said.text[:4_000], judge=author))
            return made
        text = without_references(answer.text, self._origin, ids)
        made = Statement(key="", source="judge", outcome="accepted", text=text, judge=author)
        return self._checked(base, made, list(map(str, sources)))

    def _author(self, model: str, prompt: str) -> Author:
        config = self._stating.config
        assert config is not None
        return Author(
            command=config.command,
            endpoint=config.endpoint,
            model=model or config.model,
            prompt=digest.of_text(prompt),
        )

    def _draft(self, ids: Collection[str], reason: str) -> Statement:
        text = joined(self._texts(ids)[:1])
        return Statement(key="", source="draft", outcome="draft", reason=reason, text=text)

    def _texts(self, ids: Collection[str]) -> tuple[Text, ...]:
        """The change's own title and description, and the issues'; nothing of its diff."""
        change, lines = self._candidate, self._change.lines
        said = [
            (_utf8(change.title), _utf8(change.body)),
            *((i.title, i.body) for i in self._issues),
        ]
        texts = (seen(title, body, self._origin, ids) for title, body in said)
        return tuple(without_fix(text, lines) for text in texts)

    def _sources(self, ids: Collection[str]) -> list[str]:
        return [str(text) for text in self._texts(ids)]

    def _ids_said(self) -> frozenset[str]:
        """What may be ids of commits in what people wrote."""
        texts = [self._candidate.title, self._candidate.body]
        texts += [text for each in self._issues for text in (each.title, each.body)]
        return statement.ids_said(self._change.told("\n".join(texts)))

    def _why_no_issue(self) -> str:
        missing = [i for i in self._candidate.issues if self._stating.issues.of(i) is None]
        if missing:
            named = f"{missing[0].repository}#{missing[0].number}"
            return (
                f"the text of {named} isn't at hand (--github or --issues), and there is no judge"
            )
        return "no issue says what is wrong, and there is no judge"

    def _checked(self, base: BaseCommit, made: Statement, sources: Sequence[str]) -> Statement:
        """The statement, rejected where it shows too much."""
        names = names_to_look_for(self._change, made.text, sources)
        paths = "\n".join(base.files()).encode("utf-8", "surrogateescape") if names else b""
        in_paths = names_among((name.encode() for name in names), [paths])
        known = base.holding(names - {name.decode() for name in in_paths})
        at_base = known | {name.decode() for name in in_paths}
        ids = statement.ids_said(self._change.told(made.text))
        wrong = problems(
            self._change,
            made.text,
            made.source,
            sources=sources,
            at_base=at_base,
            later=base.beyond(ids) if ids else frozenset(),
        )
        if not wrong:
            return replace(made, notes=notes(self._change, made.text, at_base=at_base))
        rejected = replace(made, outcome="rejected", reason=_some(wrong))
        self._reject(rejected)
        return rejected

    def _reject(self, rejected: Statement) -> None:
        """Keep a rejected text; one that is there already isn't written again."""
        path = self._folder / REJECTED
        line = orjson.dumps(statements.to_json(replace(rejected, outcome="rejected"))) + b"\n"
        earlier = path.read_bytes() if path.exists() else b""
        if line not in earlier:
            write_whole(path, earlier + line)

    def _written(self, made: Statement) -> Statement:
        """Write the statement, and the text that a person may change, unless a person has."""
        if self._own is None:
            text = made.text if made.outcome == "accepted" else self._unfinished(made)
            made = replace(made, file=digest.of_text(text))
        write_whole(self._folder / STATEMENT, digest.canonical_json(statements.to_json(made)))
        if self._own is None:
            data = text.encode("utf-8", "surrogateescape")
            write_whole(self._folder / INSTRUCTION, data)
        return made

    def _unfinished(self, made: Statement) -> str:
        text = made.text if made.outcome == "draft" else joined(self._texts(self._change.ids)[:1])
        return f"{UNFINISHED}\n\n{text}"


def _own_text(path: Path, before: Statement | None) -> str | None:
    """What a person wrote into the file, None where it is as it was left or isn't there."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error
    is_left = before is not None and before.file == digest.of_text(text)
    return None if is_left else text.replace("\r\n", "\n")


def _utf8(text: str) -> str:
    """What a commit's message says, whatever its bytes are."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _failed(error: JudgeError | ProcessError) -> str:
    if isinstance(error, ProcessError):
        return f"the clone can't be read whole: {printable(last_line(error.stderr))}"
    return f"the judge: {printable(str(error))}"


def _some(reasons: Sequence[str]) -> str:
    more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more
