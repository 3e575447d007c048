"""What the hidden tests guard of the gold patch: each part is left out once, and they must notice.

Promises: a share counts only parts that were judged; what wasn't looked at (documentation and
comments, parts beyond the limit, a patch that no longer applies) is said, never counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kbench_build.model import Finding, Severity
from kbench_build.rules.findings import MOST_SPOTS, printable
from kbench_build.rules.hunks import Part
from kbench_build.rules.outcomes import Verdict
from kbench_build.rules.statuses import NONE

UNGUARDED = "tests/unguarded-hunk"
FOOLED = "tests/passes-without-fix"
# A run without a part may hang; the gold patch's own time says when to stop waiting.
_LEAST_LIMIT_SEC = 60.0
_PATIENCE = 5.0
_MOST_NAMED = 5

Noticed = Literal["tests", "build", "time-out", "nothing", "doesn't apply", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A grading run with another patch. `not_passed` are counted tests, and how they ended.

    `applied` says whether the solution script took the patch.
    """

    verdict: Verdict
    applied: bool
    not_passed: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


# Grades a patch in the place of the gold one; None: no solution at all.
Grade = Callable[[bytes | None], Tried]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What became of a run without one part: by what it was noticed, and by which tests."""

    part: Part
    noticed: Noticed
    why: str = ""
    tests: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def judged(self) -> bool:
        """Whether it says anything of the tests."""
        return self.noticed not in ("doesn't apply", "unknown")

    @property
    def guarded(self) -> bool:
        """Whether the tests need the part."""
        return self.judged and self.noticed != "nothing"


@dataclass(frozen=True, kw_only=True)
class Control:
    """A run without the gold patch: `name` says with what instead. It must give no reward."""

    name: Literal["empty patch", "test patch alone"]
    reward: float | None
    outcome: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Share:
    """How much of what was judged the tests guard, in parts and in changed lines."""

    parts: int
    of_parts: int
    lines: int
    of_lines: int


def noticed(tried: Tried) -> Noticed:
    """By what the absence was noticed. A build that broke loses tests and fails none."""
    if not tried.applied:
        return "doesn't apply"
    outcome = tried.verdict.outcome
    if outcome == "timeout":
        return "time-out"
    if outcome == "resolved":
        return "nothing"
    if outcome != "unresolved":
        return "unknown"
    lost = all(status == NONE for status in tried.not_passed.values())
    return "build" if tried.not_passed and lost else "tests"


def probe_of(part: Part, tried: Tried) -> Probe:
    """What a run without a part says. Tests that were lost with the build aren't named."""
    failed = [test for test, status in tried.not_passed.items() if status != NONE]
    return Probe(
        part=part,
        noticed=noticed(tried),
        why=printable(tried.verdict.why),
        tests=tuple(sorted(failed))[:_MOST_NAMED],
        seconds=round(tried.seconds, 3),
    )


def worth_probing(parts: Sequence[Part], most: int) -> tuple[Part, ...]:
    """The parts that something may depend on; beyond the limit an even choice of them."""
    found = [part for part in parts if not part.inert]
    if len(found) <= most:
        return tuple(found)
    if most == 1:
        return (found[0],)
    step = (len(found) - 1) / (most - 1)
    return tuple(found[round(n * step)] for n in range(most))


def limit_sec(gold_sec: float) -> float:
    """How long a test command may take without a part, by the time that the gold patch takes."""
    return max(_LEAST_LIMIT_SEC, _PATIENCE * gold_sec)


def share_of(probes: Iterable[Probe]) -> Share:
    """The share that is guarded."""
    judged = [probe for probe in probes if probe.judged]
    guarded = [probe for probe in judged if probe.guarded]
    return Share(
        parts=len(guarded),
        of_parts=len(judged),
        lines=sum(probe.part.lines for probe in guarded),
        of_lines=sum(probe.part.lines for probe in judged),
    )


def summary(parts: Sequence[Part], probes: Sequence[Probe], controls: Sequence[Control]) -> str:
    """One line: the share, and all that it leaves out."""
    fooled = [control.name for control in controls if control.reward]
    if fooled:
        return f"the tests pass without the fix: {' and '.join(fooled)}"
    share = share_of(probes)
    said = [_share(share)] if share.of_parts else ["no part of the gold patch could be judged"]
    counted = {
        "noticed by the build alone": sum(p.noticed == "build" for p in probes),
        "noticed by a time-out": sum(p.noticed == "time-out" for p in probes),
        "can't be left out alone": sum(p.noticed == "doesn't apply" for p in probes),
        "unknown": sum(p.noticed == "unknown" for p in probes),
        "documentation or comments": sum(bool(part.inert) for part in parts),
    }
    said += [f"{count} {what}" for what, count in counted.items() if count]
    live = sum(not part.inert for part in parts)
    said += [f"{len(probes)} of {live} parts tried"] if len(probes) < live else []
    return ", ".join(said)


def _share(share: Share) -> str:
    percent = f"{100 * share.lines / share.of_lines:.0f} %"
    return (
        f"tests guard {share.parts} of {share.of_parts} parts of the gold patch, "
        f"{share.lines} of {share.of_lines} lines ({percent})"
    )


def findings(
    task: str, probes: Sequence[Probe], controls: Sequence[Control]
) -> tuple[Finding, ...]:
    """What the probes say against the tests."""
    found = [_fooled(task, control) for control in controls if control.reward]
    unguarded = [probe for probe in probes if probe.noticed == "nothing"]
    found += [_unguarded(task, probe.part) for probe in unguarded[:MOST_SPOTS]]
    return tuple(found)


def _unguarded(task: str, part: Part) -> Finding:
    size = f" (+{part.added} -{part.removed})" if part.added or part.removed else ""
    return _finding(
        task,
        UNGUARDED,
        "warning",
        where=f"line {part.line}",
        message=f"no hidden test notices when this is left out: {part}{size}",
        mend="Add a hidden test that needs it, or leave it out of the gold patch. If nothing that "
        "runs depends on it, answer for it with a [[suppress]] in kbench.toml.",
    )


def _fooled(task: str, control: Control) -> Finding:
    return _finding(
        task,
        FOOLED,
        "error",
        message=f"the reward is {control.reward:g} with the {control.name}",
        mend="Let the hidden tests ask for what the fix does.",
    )


def _finding(
    task: str, rule: str, severity: Severity, *, message: str, mend: str, where: str = ""
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        file=f"tasks/{task}/solution/fix.patch",
        where=where,
        message=printable(message),
        mend=mend,
    )


def to_json(probe: Probe) -> dict[str, Any]:
    """A probe as its report has it."""
    return {**part_json(probe.part), **result_json(probe)}


def part_json(part: Part) -> dict[str, Any]:
    """A part as a report has it."""
    return {
        "number": part.number,
        "kind": part.kind,
        "path": printable(part.path),
        "line": part.line,
        "where": part.where,
        "added": part.added,
        "removed": part.removed,
    }


def result_json(probe: Probe) -> dict[str, Any]:
    """What became of a part; `from_json` reads it back."""
    return {
        "noticed": probe.noticed,
        "why": probe.why,
        "tests": list(probe.tests),
        "seconds": probe.seconds,
    }


def from_json(part: Part, value: Mapping[str, Any]) -> Probe:
    """The probe of a part from what `result_json` gave."""
    return Probe(
        part=part,
        noticed=value["noticed"],
        why=value["why"],
        tests=tuple(value["tests"]),
        seconds=value["seconds"],
    )
