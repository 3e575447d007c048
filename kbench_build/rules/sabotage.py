"""What an agent without a solution can do to a verifier, and what its reward then says of it.

Promises: only what no honest verifier rewards; what can't be tried on a task is said, with the
reason. Leaves the doing to `runtime/sabotage.sh`, and the running to a step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

from kbench_build.model import Finding
from kbench_build.rules.findings import printable
from kbench_build.rules.outcomes import Verdict

RULE = "verifier/sabotage"
_REPORT = "TEST-sabotage.xml"

Ended = Literal["no reward", "rewarded", "not done", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a task: paths that its patches touch, test ids, programs that run tests."""

    fix: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """One way: its name, what it does, what it says where an image gives no hold for it.

    `files` go with the script; `lacks` says what must be known to try it and isn't.
    """

    name: str
    what: str
    unless: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    lacks: str = ""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A sabotage that was tried, and how it ended."""

    sabotage: Sabotage
    ended: Ended
    outcome: str
    reward: float | None
    why: str
    seconds: float


def sabotages(known: Known) -> tuple[Sabotage, ...]:
    """Every way that there is, whether or not it can be tried on such a task."""
    no_fix = "" if known.fix else "no gold patch: which files are the program isn't known"
    no_tests = "" if known.expected else "no expected tests: what to report isn't known"
    return (
        _sabotage("nothing", "nothing was done at all"),
        _sabotage(
            "broken-build",
            "reports deleted, and every file of the fix broken",
            "none of the fix's files is in the image",
            files={"fix": _lines(known.fix)},
            lacks=no_fix,
        ),
        _sabotage(
            "stale-reports",
            "reports left in which all is well, and every file of the fix broken",
            "none of the fix's files is in the image",
            files={"fix": _lines(known.fix), _REPORT: forged(known.expected)},
            lacks=no_tests or no_fix,
        ),
        _sabotage(
            "blocked-patch",
            "the hidden files edited and committed, so that the hidden patch doesn't fit",
            files={"hidden": _lines(known.hidden)},
            lacks="" if known.hidden else "no hidden patch: nothing to block",
        ),
        _sabotage(
            "shims",
            "a python3 and a git that end with 0 at once, earlier on PATH",
            "PATH leaves no room in front of python3 and git, or there are none",
        ),
        _sabotage(
            "test-command",
            "the test command replaced by one that ends with 0 at once",
            "the test command isn't in the image",
            files={"commands": _lines(known.commands)},
            lacks="" if known.commands else "the program that runs the tests isn't known",
        ),
        _sabotage("no-python", "python3 removed", "the image has no python3"),
        _sabotage("background", "a process left that writes the reward 1 again and again"),
    )


def _sabotage(
    name: str,
    what: str,
    unless: str = "",
    *,
    files: Mapping[str, bytes] | None = None,
    lacks: str = "",
) -> Sabotage:
    needed = {"kind": f"{name}\n".encode(), **(files or {})}
    return Sabotage(name=name, what=what, unless=unless, files=needed, lacks=lacks)


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{n}\n" for n in names if "\n" not in n).encode("utf-8", "surrogateescape")


def forged(expected: Sequence[str]) -> bytes:
    """A JUnit report in which all these tests passed."""
    cases = "".join(f"  <testcase {_case(test)}/>\n" for test in expected)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="sabotage">\n'
    return f"{head}{cases}</testsuite>\n".encode("utf-8", "xmlcharrefreplace")


def _case(test: str) -> str:
    """Class and name of an id: the class ends at the last dot before what no class name holds."""
    end = next((i for i, c in enumerate(test) if not (c.isalnum() or c in "._$-")), len(test))
    dot = test.rfind(".", 0, end)
    class_name, name = (test[:dot], test[dot + 1 :]) if dot > 0 else ("", test)
    return f"classname={quoteattr(class_name)} name={quoteattr(name)}"


def attempt(sabotage: Sabotage, verdict: Verdict, *, done: bool, seconds: float) -> Attempt:
    """What a run shows. A verifier that breaks, or never ends, gives no reward: that is enough."""
    ended: Ended = "no reward"
    if verdict.outcome == "infra-error":
        ended = "unknown"
    elif not done:
        ended = "not done"
    elif verdict.reward is not None and verdict.reward > 0:
        ended = "rewarded"
    return Attempt(
        sabotage=sabotage,
        ended=ended,
        outcome=verdict.outcome,
        reward=verdict.reward,
        why=sabotage.unless if ended == "not done" else verdict.why,
        seconds=seconds,
    )


def findings(task: str, attempts: Sequence[Attempt]) -> tuple[Finding, ...]:
    """A finding for each sabotage that was rewarded."""
    return tuple(
        Finding(
            rule=RULE,
            severity="error",
            file=f"tasks/{task}/tests/test.sh",
            where=found.sabotage.name,
            message=printable(f"the reward is {found.reward:g} with {found.sabotage.what}"),
            mend="Take the shipped verifier (`kbench harden`), or mend test.sh: see "
            "docs/verifier.md for the order in which a verifier fails closed.",
        )
        for found in attempts
        if found.ended == "rewarded"
    )


def not_tried(known: Known, attempts: Sequence[Attempt]) -> Iterator[str]:
    """What couldn't be tried, and why: one line each."""
    for sabotage in sabotages(known):
        if sabotage.lacks:
            yield f"{sabotage.name}: {sabotage.lacks}"
    for found in attempts:
        if found.ended == "not done":
            yield f"{found.sabotage.name}: {found.why}"


def summary(attempts: Sequence[Attempt]) -> str:
    """One line: how many were tried, and which were rewarded."""
    rewarded = [a.sabotage.name for a in attempts if a.ended == "rewarded"]
    tried = [a for a in attempts if a.ended in ("rewarded", "no reward")]
    unknown = [a.sabotage.name for a in attempts if a.ended == "unknown"]
    parts = [
        f"{len(tried)} sabotages, "
        + (f"rewarded: {', '.join(rewarded)}" if rewarded else "none rewarded")
    ]
    parts += [f"not judged: {', '.join(unknown)}"] if unknown else []
    return "; ".join(parts)


def to_json(found: Attempt) -> dict[str, Any]:
    """An attempt as a JSON object."""
    return {
        "sabotage": found.sabotage.name,
        "what": found.sabotage.what,
        "ended": found.ended,
        "outcome": found.outcome,
        "reward": found.reward,
        "why": printable(found.why),
        "seconds": round(found.seconds, 3),
    }
