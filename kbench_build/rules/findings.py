"""The form of a check, and what becomes of what it finds.

A check is one small pure function from facts to spots, with an id, a severity, one sentence of why
and one of how to mend it. Everything wrong is found at once; what a check says is bounded, in
number and in length, however hostile the data. Which checks there are stands in `catalogue`.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Generic, TypeVar

from kbench_build.model import DATASET, Finding, Severity, Suppression

MOST_SPOTS = 50
MOST_CHARACTERS = 240

_ORDER: Mapping[str, int] = {"error": 0, "warning": 1, "note": 2}
_Facts = TypeVar("_Facts")


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Where a check fires and what it says there. `file` is relative to the subject's folder.

    An empty `file` is the folder itself; `mend` takes the place of the check's own sentence.
    """

    file: str
    where: str = ""
    message: str
    mend: str = ""


@dataclass(frozen=True, kw_only=True)
class Check(Generic[_Facts]):
    """One check: what it is called, how bad it is, why it exists, how to mend what it finds.

    `forms` are the forms of task that it is for (see `content.Form`); empty: all of them.
    """

    id: str
    severity: Severity
    why: str
    mend: str
    find: Callable[[_Facts], Iterable[Spot]]
    forms: tuple[str, ...] = ()


def run_checks(checks: Iterable[Check[_Facts]], facts: _Facts, folder: str) -> Iterator[Finding]:
    """What all the checks find in the facts about one folder."""
    for check in checks:
        spots = list(islice(check.find(facts), MOST_SPOTS + 1))
        if spots:
            yield from _bounded(check, spots, folder)


def _bounded(check: Check[_Facts], spots: list[Spot], folder: str) -> Iterator[Finding]:
    """The first findings of a check, and one that says that there are more."""
    for spot in spots[:MOST_SPOTS]:
        yield _finding(check, spot, folder)
    for rest in spots[MOST_SPOTS:]:
        message = f"has more of the kind: only the first {MOST_SPOTS} are listed"
        yield _finding(check, Spot(file=rest.file, message=message), folder)


def bounded(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The first findings of a reader of its own, each one line, and one that says there are more.

    `findings` are of one kind and about one file.
    """
    shown = [
        replace(f, where=printable(f.where), message=printable(f.message))
        for f in findings[:MOST_SPOTS]
    ]
    if len(findings) > MOST_SPOTS:
        message = f"has more of the kind: only the first {MOST_SPOTS} are listed"
        shown.append(replace(shown[-1], where="", message=message))
    return tuple(shown)


def _finding(check: Check[_Facts], spot: Spot, folder: str) -> Finding:
    return Finding(
        rule=check.id,
        severity=check.severity,
        file=printable(f"{folder}/{spot.file}".strip("/") or "."),
        where=printable(spot.where),
        message=printable(spot.message),
        mend=spot.mend or check.mend,
    )


def printable(text: str) -> str:
    """The text on one line of bounded length: control and odd characters become escapes."""
    cut = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return escaped(cut)


def escaped(text: str) -> str:
    """The text with control and odd characters, line ends too, as escapes."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    # Cc: control, Cf: invisible (direction marks), Cs: bytes that aren't UTF-8, Zl/Zp: line ends.
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted: the worst first, then by file, place (`[9]` before `[10]`) and rule."""
    return tuple(
        sorted(findings, key=lambda f: (_ORDER[f.severity], f.file, _by_number(f.where), f.rule))
    )


def _by_number(where: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", where)
    return [(int(part[:18]) if part.isdecimal() else -1, part) for part in parts]


@dataclass(frozen=True, kw_only=True)
class Suppressed:
    """A finding that stands, and the reason that a maintainer gave for it."""

    finding: Finding
    reason: str


def suppress(
    findings: Iterable[Finding], subject: str, suppressions: Iterable[Suppression]
) -> tuple[tuple[Finding, ...], tuple[Suppressed, ...]]:
    """Part the findings about a subject (a task's id) in those that count and those answered for.

    A suppression's rule and task may be patterns: `layout/*`, `acme_*`. What is found of the
    dataset as a whole may be answered for by the task in whose folder it is found.
    """
    known = tuple(suppressions)
    kept: list[Finding] = []
    answered: list[Suppressed] = []
    for finding in findings:
        match = next((s for s in known if answers(s, finding, subject)), None)
        if match:
            answered.append(Suppressed(finding=finding, reason=match.reason))
        else:
            kept.append(finding)
    return tuple(kept), tuple(answered)


def answers(suppression: Suppression, finding: Finding, subject: str) -> bool:
    """Whether a suppression is meant for a finding about this subject."""
    if not fnmatchcase(finding.rule, suppression.rule):
        return False
    if fnmatchcase(subject, suppression.task):
        return True
    top, _, rest = finding.file.partition("/")
    about = rest.partition("/")[0] if top == "tasks" else ""
    return subject == DATASET and bool(about) and fnmatchcase(about, suppression.task)


def still_answered(
    suppressed: Iterable[Mapping[str, Any]], subject: str, suppressions: Sequence[Suppression]
) -> bool:
    """Whether somebody still answers, and with the same reason, for what a report let be.

    `suppressed` are findings as `to_json` writes them, each with its reason.
    """
    for value in suppressed:
        finding = from_json({key: part for key, part in value.items() if key != "reason"})
        match = next((s for s in suppressions if answers(s, finding, subject)), None)
        if match is None or match.reason != value["reason"]:
            return False
    return True


IDLE = "suppress/unused"


def idle(
    suppressions: Sequence[Suppression],
    answered: Iterable[tuple[str, Finding]],
    *,
    meant: Callable[[str], bool],
    unasked: Iterable[str],
) -> Iterator[Finding]:
    """A finding for each suppression that answers for nothing, though all that it may be for ran.

    `answered` are what was suppressed, each with its subject; `meant` tells which patterns of tasks
    were all asked, `unasked` are the rules that weren't.
    """
    used, left = list(answered), tuple(unasked)
    for index, item in enumerate(suppressions):
        known = meant(item.task) and not any(fnmatchcase(rule, item.rule) for rule in left)
        if known and not any(answers(item, finding, subject) for subject, finding in used):
            yield Finding(
                rule=IDLE,
                severity="warning",
                file="kbench.toml",
                where=f"suppress[{index}]",
                message=printable(f"answers for nothing: {item.rule} finds nothing in {item.task}"),
                mend="Delete it: what it was for is mended, and it would hide the next one.",
            )


def summary(findings: Iterable[Finding], suppressed: int = 0) -> str:
    """One line: how many of each severity."""
    counts = dict.fromkeys(_ORDER, 0)
    for finding in findings:
        counts[finding.severity] += 1
    parts = [f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items() if n]
    if suppressed:
        parts.append(f"{suppressed} suppressed")
    return ", ".join(parts) or "no findings"


def to_json(finding: Finding) -> dict[str, Any]:
    """A finding as a JSON object; `from_json` reads it back."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "file": finding.file,
        "where": finding.where,
        "message": finding.message,
        "mend": finding.mend,
    }


def from_json(value: Mapping[str, Any]) -> Finding:
    """The finding that `to_json` wrote."""
    return Finding(**value)
