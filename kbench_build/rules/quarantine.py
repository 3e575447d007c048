"""Tests in quarantine: which they are, and whether the file that says so does what it should.

`tests/quarantine.json` lists tests whose results aren't steady. The verifier runs and reports them,
and they decide nothing; it reads the list only where `verify.json` asks for it, since in a
container that the agent shares the agent could leave such a file where a task has none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kbench_build.rules.content import EXPECTED, QUARANTINE, VERIFY, Content
from kbench_build.rules.expected_tests import CATEGORIES
from kbench_build.rules.findings import Check, Spot

_NO_REASON = frozenset({"", "todo", "tbd", "flaky", "unstable", "…", "..."})


def quarantined(value: Any) -> frozenset[str]:
    """The ids in the content of `quarantine.json`; what isn't as it should be is left out."""
    return frozenset(id_ for _, id_ in _ids(value))


def _ids(value: Any) -> Iterator[tuple[int, str]]:
    tests = value.get("tests") if isinstance(value, Mapping) else None
    for index, test in enumerate(tests if isinstance(tests, list) else ()):
        if isinstance(test, Mapping) and isinstance(test.get("id"), str):
            yield index, test["id"]


def _unknown(task: Content) -> Iterator[Spot]:
    if task.expected is None:
        return
    lists = task.expected.sets.values()
    for index, test in _ids(task.quarantine):
        if not any(test in ids for ids in lists):
            yield _spot(index, f"no list of {EXPECTED} holds it: {test!r}")


def _repeated(task: Content) -> Iterator[Spot]:
    seen: dict[str, int] = {}
    for index, test in _ids(task.quarantine):
        if test in seen:
            yield _spot(index, f"stands at tests[{seen[test]}] already: {test!r}")
        seen.setdefault(test, index)


def _reason(task: Content) -> Iterator[Spot]:
    if task.quarantine is None or task.has_misfits(QUARANTINE):
        return
    for index, test in enumerate(task.quarantine["tests"]):
        if test["reason"].strip().rstrip(".").lower() in _NO_REASON:
            where = f"tests[{index}].reason"
            yield Spot(file=QUARANTINE, where=where, message=f"says nothing of {test['id']!r}")


def _everything(task: Content) -> Iterator[Spot]:
    telling = _telling(task)
    if telling and not any(telling.values()):
        message = "every test that the fix makes pass is in it, so nothing tells the fix any more"
        yield Spot(file=QUARANTINE, message=message)


def _emptied(task: Content) -> Iterator[Spot]:
    telling = _telling(task)
    if telling and any(telling.values()):
        expected = task.expected.sets if task.expected else {}
        for name, left in telling.items():
            if expected[name] and not left:
                message = f"all {len(expected[name])} of {name} are in it"
                yield Spot(file=QUARANTINE, message=message)


def _telling(task: Content) -> Mapping[str, frozenset[str]]:
    """The tests that the fix makes pass and that still count; empty without a quarantine."""
    apart = quarantined(task.quarantine)
    if task.expected is None or not apart:
        return {}
    sets = task.expected.sets
    return {name: sets[name] - apart for name in CATEGORIES if name != "p2p_tests"}


def _not_read(task: Content) -> Iterator[Spot]:
    asked = (task.verify or {}).get("quarantine") is True
    if task.verify is None or asked == (QUARANTINE in task.files):
        return
    if asked:
        yield Spot(file=VERIFY, where="quarantine", message=f"is true, but {QUARANTINE} is missing")
    else:
        yield Spot(file=QUARANTINE, message=f"isn't read: {VERIFY} doesn't say quarantine: true")


def _no_effect(task: Content) -> Iterator[Spot]:
    script = task.data.get("tests/test.sh", b"")
    if QUARANTINE in task.files and b"quarantine.json" not in script:
        yield Spot(file=QUARANTINE, message="the task's own test.sh doesn't read it")


def _spot(index: int, message: str) -> Spot:
    return Spot(file=QUARANTINE, where=f"tests[{index}]", message=message)


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="quarantine/unknown-id",
        severity="error",
        why="A mistyped id leaves the unstable test counting.",
        mend="Copy the id from expected_tests.json, or remove the entry of a test that is gone.",
        find=_unknown,
    ),
    Check(
        id="quarantine/repeated",
        severity="warning",
        why="Of two entries about one test one is out of date.",
        mend="Keep one of the two.",
        find=_repeated,
    ),
    Check(
        id="quarantine/reason",
        severity="error",
        why="Without a reason nobody can tell an unstable test from one that was in the way.",
        mend="Say what makes the result unsteady: a clock, a port, an order, a race.",
        find=_reason,
    ),
    Check(
        id="quarantine/everything",
        severity="error",
        why="A task whose remaining tests all pass without the fix measures nothing.",
        mend="Mend the tests, or retire the task.",
        find=_everything,
    ),
    Check(
        id="quarantine/emptied",
        severity="warning",
        why="What is left may guard another part of the fix, or less of it.",
        mend="See with `doit probe` what the remaining tests guard.",
        find=_emptied,
    ),
    Check(
        id="quarantine/not-read",
        severity="error",
        why="The verifier reads the list only where verify.json asks for it.",
        mend="Run `kbench sync`.",
        find=_not_read,
        forms=("shipped",),
    ),
    Check(
        id="quarantine/no-effect",
        severity="warning",
        why="A task's own verifier decides by itself which tests count.",
        mend="Let test.sh leave these tests out, or adopt the shipped verifier (`kbench harden`).",
        find=_no_effect,
        forms=("own", "plain"),
    ),
)
