"""Checks of what the expected tests are worth: do they tell the fixed code from the broken one?

Promises: only what `expected_tests.json` records of before, and what the hidden patch takes away.
Whether tests do pass with the gold patch is for the selfcheck to say.
"""

import re
from collections.abc import Iterator, Set

from kbench_build.rules.content import EXPECTED, Content
from kbench_build.rules.expected_tests import STATUSES, without
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.once import once
from kbench_build.rules.renames import renamed, repeated

_MAKING = ("f2p_tests", "s2p_tests", "n2p_tests")
_WORD = re.compile(r"\w+")


def _all_pass(task: Content) -> Iterator[Spot]:
    making, before = _making_and_before(task)
    if making and making <= before:
        count = f"each of the {len(making):,} tests" if len(making) > 1 else "the only test"
        message = f"{count} that must come to pass passes at the base: {min(making)!r}"
        yield Spot(file=EXPECTED, message=message)


def _mostly_pass(task: Content) -> Iterator[Spot]:
    making, before = _making_and_before(task)
    passing = making & before
    only_new = task.expected is not None and not task.expected.lists["f2p_tests"]
    if only_new and len(passing) < len(making) < 2 * len(passing):
        counts = f"{len(passing):,} of the {len(making):,} new tests pass at the base"
        yield Spot(file=EXPECTED, where="n2p_tests", message=f"f2p_tests is empty, and {counts}")


def _making_and_before(task: Content) -> tuple[Set[str], Set[str]]:
    """The tests that must come to pass, and all that pass on the untouched base."""
    found = task.expected
    if found is None or "run_result" not in found.before:
        return frozenset(), frozenset()
    making = frozenset().union(*(found.sets[name] for name in _MAKING))
    return making, found.before["run_result"]["passed_tests"]


def _renamed(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None:
        return
    pairs = {**repeated(found, lambda: _added(task)), **renamed(found)}
    for name in ("f2p_tests", "n2p_tests"):
        for index, test in enumerate(found.lists[name] if pairs else ()):
            if test in pairs:
                message = f"{test!r} is {pairs[test]!r} by another name, which passes at the base"
                yield Spot(file=EXPECTED, where=f"{name}[{index}]", message=message)


def _added(task: Content) -> str:
    lines = (line for file in (task.test.files if task.test else ()) for line in file.added)
    return b"\n".join(lines).decode("utf-8", "replace")


def _still_fails(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None or "test_patch_result" not in found.results:
        return
    failing = without(found.before["test_patch_result"]["failed_tests"], found.sets.values())
    for index, test in enumerate(found.results["test_patch_result"]["failed_tests"]):
        if test in failing:
            where = f"test_patch_result.failed_tests[{index}]"
            yield Spot(file=EXPECTED, where=where, message=f"is in no list: {test!r}")


def _unguarded(task: Content) -> Iterator[Spot]:
    yield from (spot for spot, is_taken_away in _free(task) if not is_taken_away)


def _given_up(task: Content) -> Iterator[Spot]:
    yield from (spot for spot, is_taken_away in _free(task) if is_taken_away)


@once
def _free(task: Content) -> tuple[tuple[Spot, bool], ...]:
    """The tests that passed and are in no list, each with whether the hidden patch removes it."""
    return tuple(_found_free(task))


def _found_free(task: Content) -> Iterator[tuple[Spot, bool]]:
    found = task.expected
    if found is None or "run_result" not in found.results:
        return
    patched = found.before.get("test_patch_result", {})
    failing = [patched[s] for s in STATUSES if s != "passed_tests" and s in patched]
    free = without(found.before["run_result"]["passed_tests"], (*found.sets.values(), *failing))
    free = free - set(renamed(found).values()) if free else free
    taken_away = _taken_away(task) if free else frozenset()
    for index, test in enumerate(found.results["run_result"]["passed_tests"] if free else ()):
        if test in free:
            where = f"run_result.passed_tests[{index}]"
            spot = Spot(file=EXPECTED, where=where, message=f"is in no list: {test!r}")
            yield spot, _is_of(test, taken_away)


def _taken_away(task: Content) -> frozenset[str]:
    """The words of what the hidden patch removes, and of files that a patch deletes or moves."""
    words: set[str] = set()
    for patch in filter(None, (task.fix, task.test)):
        for file in patch.files:
            if patch is task.test:
                words.update(_WORD.findall(b"\n".join(file.removed).decode("utf-8", "replace")))
            if file.old is not None and file.old != file.new:
                words.update(_WORD.findall(file.old))
    return frozenset(words)


def _is_of(test: str, words: frozenset[str]) -> bool:
    """Whether a removed line may have declared the test: its own name, or its class."""
    class_name, _, name = test.partition("(")[0].rpartition(".")
    parts = _WORD.findall(name)
    return bool(parts and words.issuperset(parts)) or class_name.rpartition(".")[2] in words


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="expected/all-pass-before",
        severity="warning",
        why="Reports left from before, or a hidden patch kept from applying, make a checkout "
        "without the fix pass: each test passed there under the same name.",
        mend="Run `kbench harden`, or give one of the changed tests another name.",
        find=_all_pass,
        forms=("own",),
    ),
    Check(
        id="expected/mostly-pass-before",
        severity="warning",
        why="Tests that pass at the base tell nothing of the fix; they are new only because the "
        "hidden tests didn't compile without it.",
        mend="Move those that pass at the base to p2p_tests.",
        find=_mostly_pass,
        forms=("own",),
    ),
    Check(
        id="expected/renamed",
        severity="warning",
        why="A test that passes at the base under another name tells nothing of the fix.",
        mend="Leave it out, or keep it in p2p_tests if both names are run.",
        find=_renamed,
    ),
    Check(
        id="expected/still-fails",
        severity="warning",
        why="A test that fails before the fix and isn't expected after it fails with the gold "
        "patch too, or is guarded by nothing.",
        mend="Run the gold patch: add the test to f2p_tests, or take it out of the hidden patch.",
        find=_still_fails,
    ),
    Check(
        id="expected/unguarded",
        severity="warning",
        why="A solution may break a test that passed at the base, and nobody will notice.",
        mend="Add it to p2p_tests if it passes with the gold patch; else say why it may go.",
        find=_unguarded,
    ),
    Check(
        id="expected/given-up",
        severity="note",
        why="The hidden patch takes away a test that passed at the base: a solution may break what "
        "it guarded.",
        mend="Fine where that behaviour is to change; else keep the test.",
        find=_given_up,
    ),
)
