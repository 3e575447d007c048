"""Checks of `tests/expected_tests.json`: sets that mustn't overlap, and what they claim of before.

The status of a test before the fix is the one in `test_patch_result` (the base with the hidden
tests); where it didn't run there, because its module didn't compile, the one in `run_result` (the
untouched base).
"""

from collections.abc import Iterator, Mapping

from kbench_build.rules.content import EXPECTED, Content
from kbench_build.rules.expected_tests import CATEGORIES, RESULTS, Expected, without
from kbench_build.rules.findings import Check, Spot

_MEANING = {
    "f2p_tests": "didn't fail before the fix",
    "p2p_tests": "didn't pass before the fix",
    "s2p_tests": "wasn't skipped before the fix",
}
_STATUS = {"f2p_tests": "failed_tests", "p2p_tests": "passed_tests", "s2p_tests": "skipped_tests"}


def _spot(name: str, ids: list[str], test: str, message: str) -> Spot:
    return Spot(file=EXPECTED, where=f"{name}[{ids.index(test)}]", message=f"{message}: {test!r}")


def _duplicates(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None:
        return
    for name, ids in found.lists.items():
        if len(found.sets[name]) != len(ids):
            yield from _twice(name, ids)
    for result, statuses in found.results.items():
        for status, ids in statuses.items():
            if len(found.before[result][status]) != len(ids):
                yield from _twice(f"{result}.{status}", ids)


def _twice(name: str, ids: list[str]) -> Iterator[Spot]:
    seen: dict[str, int] = {}
    for index, test in enumerate(ids):
        if test in seen:
            message = f"stands at {name}[{seen[test]}] already: {test!r}"
            yield Spot(file=EXPECTED, where=f"{name}[{index}]", message=message)
        else:
            seen[test] = index


def _overlaps(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None:
        return
    yield from _shared(found.lists, found.sets, "")
    for result, statuses in found.results.items():
        yield from _shared(statuses, found.before[result], f"{result}.")


def _shared(
    lists: Mapping[str, list[str]], sets: Mapping[str, frozenset[str]], head: str
) -> Iterator[Spot]:
    names = [name for name in lists if lists[name]]
    for index, name in enumerate(names):
        for earlier in names[:index]:
            if not sets[name].isdisjoint(sets[earlier]):
                for test in sorted(sets[name] & sets[earlier]):
                    yield _spot(head + name, lists[name], test, f"is also in {head}{earlier}")


def _before(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None or not found.results:
        return
    for name, status in _STATUS.items():
        for test in sorted(_not_so(found, found.sets[name], status)):
            yield _spot(name, found.lists[name], test, _MEANING[name])


def _not_so(found: Expected, tests: frozenset[str], status: str) -> frozenset[str]:
    """The tests whose status before the fix is another one."""
    patched, base = found.before.get("test_patch_result"), found.before.get("run_result")
    rest = without(tests, (patched[status],)) if patched else tests
    if rest and base:
        ran = frozenset().union(*patched.values()) if patched else frozenset()
        rest = (rest & ran) | (rest - base[status])
    return rest


def _new(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None:
        return
    new = found.sets["n2p_tests"]
    if not new:
        return
    for result, statuses in found.before.items():
        for status, ids in statuses.items():
            for test in sorted(new & ids):
                message = f"ran before the fix ({result}.{status})"
                yield _spot("n2p_tests", found.lists["n2p_tests"], test, message)


def _nothing(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found and not any(found.lists[name] for name in CATEGORIES if name != "p2p_tests"):
        yield Spot(file=EXPECTED, message="no test tells the fixed code from the broken one")


def _incomplete(task: Content) -> Iterator[Spot]:
    found = task.expected
    if found is None:
        return
    for result in RESULTS:
        if result not in found.results:
            yield Spot(file=EXPECTED, where=result, message="is missing")


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="expected/duplicate",
        severity="error",
        why="A list with an id twice is counted wrongly.",
        mend="Remove one of the two.",
        find=_duplicates,
    ),
    Check(
        id="expected/overlap",
        severity="error",
        why="A test has one status before the fix, so it belongs to one list.",
        mend="Keep it in the list that is true.",
        find=_overlaps,
    ),
    Check(
        id="expected/before",
        severity="error",
        why="A list that disagrees with the recorded results was not made from them.",
        mend="Move the test to the list of its status before the fix, or record the results again.",
        find=_before,
    ),
    Check(
        id="expected/not-new",
        severity="error",
        why="A test that ran before the fix isn't new, and may pass without the fix.",
        mend="Move it to f2p_tests, p2p_tests or s2p_tests by its status before the fix.",
        find=_new,
        forms=("shipped",),
    ),
    Check(
        id="expected/passes-before",
        severity="warning",
        why="A test that ran before the fix isn't new, and may pass without the fix.",
        mend="Move it to f2p_tests, p2p_tests or s2p_tests by its status before the fix.",
        find=_new,
        forms=("own",),
    ),
    Check(
        id="expected/nothing",
        severity="error",
        why="A task whose tests all pass without the fix measures nothing.",
        mend="Add the tests that the fix makes pass to f2p_tests, s2p_tests or n2p_tests.",
        find=_nothing,
    ),
    Check(
        id="expected/incomplete",
        severity="error",
        why="Without the results before the fix the lists can't be checked.",
        mend="Record run_result and test_patch_result.",
        find=_incomplete,
        forms=("shipped",),
    ),
)
