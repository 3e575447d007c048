"""Checks of the tests in the hidden patch: are they run, and does anything depend on them?

Promises: silent wherever names or the command leave a doubt. The results that
`expected_tests.json` records are evidence that a class is run, whatever the command looks like.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from kbench_build.rules.added_tests import AddedTest, added_tests
from kbench_build.rules.content import TEST, TEST_PATCH, Content
from kbench_build.rules.expected_tests import Expected
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.once import once
from kbench_build.rules.patches import Patch
from kbench_build.rules.test_commands import (
    TestCommand,
    can_not_reach,
    commands,
    commands_in_script,
)


def _nobody_expects(task: Content) -> Iterator[Spot]:
    for test, is_expected in _not_of_the_fix(task):
        if not is_expected:
            message = f"adds the test {test.name!r} to {test.path}, which no list holds"
            yield Spot(file=TEST_PATCH, where=f"line {test.line}", message=message)


def _passes_without(task: Content) -> Iterator[Spot]:
    found = task.expected
    for test, is_expected in _not_of_the_fix(task):
        if found and is_expected and _is_new(test, found):
            message = f"adds the test {test.name!r} to {test.path}, which passes without the fix"
            yield Spot(file=TEST_PATCH, where=f"line {test.line}", message=message)


@once
def _not_of_the_fix(task: Content) -> tuple[tuple[AddedTest, bool], ...]:
    """The added tests that the fix doesn't make pass, each with whether anything names it."""
    if task.expected is None or task.test is None:
        return ()
    return tuple(_sorted_out(task.test, task.expected))


def _sorted_out(patch: Patch, expected: Expected) -> Iterator[tuple[AddedTest, bool]]:
    patched = expected.before.get("test_patch_result", {})
    # Nearly every added test stands in the short lists, so the long ones are seldom looked at.
    short = _text(ids for name, ids in expected.sets.items() if name != "p2p_tests")
    known: str | None = None
    for test in added_tests(patch):
        forms = tuple(_forms_of(test.name))
        if not any(_names_a_test(form, short) for form in forms):
            if known is None:
                known = _text((expected.sets["p2p_tests"], *patched.values()))
            yield test, any(_names_a_test(form, known) for form in forms)


def _is_new(test: AddedTest, found: Expected) -> bool:
    """Whether an expected test of this file and name passes, and wasn't there before."""
    stem = PurePosixPath(test.path).name.partition(".")[0]
    forms = tuple(_forms_of(test.name))
    before = list(found.before.get("run_result", {}).values())
    return bool(before) and any(
        stem in name and any(_names_a_test(f, name) for f in forms)
        for name in found.sets["p2p_tests"]
        if not any(name in ids for ids in before)
    )


def _text(lists: Iterable[Iterable[str]]) -> str:
    return "\n".join(test for ids in lists for test in ids)


def _forms_of(name: str) -> Iterator[str]:
    # Runners may show underscores as spaces, and spaces as underscores.
    yield from dict.fromkeys((name, name.replace("_", " "), re.sub(r"\W", "_", name)))


def _names_a_test(name: str, known: str) -> bool:
    """Whether the name stands there as whole words. No pattern: one a name takes long to make."""
    at = known.find(name)
    while at >= 0:
        end = at + len(name)
        if not _is_word(known[max(0, at - 1) : at]) and not _is_word(known[end : end + 1]):
            return True
        at = known.find(name, at + 1)
    return False


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _never_run(task: Content) -> Iterator[Spot]:
    calls = _commands(task) if task.expected and task.test else None
    if not calls or not task.expected or not task.test:
        return
    for file in task.test.files:
        reason = can_not_reach(calls, file.new or "")
        if reason:
            stem = PurePosixPath(file.new or "").name.partition(".")[0]
            if not _names_a_test(stem, task.expected.text):
                message = f"changes {file.new!r}, but {reason}"
                yield Spot(file=TEST_PATCH, where=f"line {file.line}", message=message)


def _commands(task: Content) -> tuple[TestCommand, ...] | None:
    """The builds that run the tests, None where they can't be told."""
    if task.form != "shipped":
        return commands_in_script(task.data.get(TEST, b""))
    command = (task.verify or {}).get("command")
    is_list = isinstance(command, list) and all(isinstance(word, str) for word in command)
    return commands([command]) if is_list and command else None


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="expected/nobody-expects",
        severity="warning",
        why="A hidden test that decides nothing is a test that was lost: it may not run, or fail.",
        mend="Run the gold patch and add the test to the list of its status before the fix.",
        find=_nobody_expects,
    ),
    Check(
        id="expected/added-passes",
        severity="note",
        why="A test that the hidden patch adds and that passes without the fix measures nothing of "
        "it; it guards what is there.",
        mend="Fine as a guard; else let it fail on the base with the hidden patch alone.",
        find=_passes_without,
    ),
    Check(
        id="expected/never-run",
        severity="warning",
        why="A hidden test that the command doesn't run guards nothing.",
        mend="Run its task too, or leave the file out of the hidden patch.",
        find=_never_run,
    ),
)
