"""Tests under a new name: ids of expected tests that are ones of before the fix, renamed.

Promises: only what the names themselves show: another container in the same class, the parentheses
that another runner puts behind a name, a class that moved to another package with all its tests.
The test of the old name must be gone; or both names are reported, and the hidden patch says nothing
of such a test. Linear in the number of ids.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from kbench_build.rules.expected_tests import Expected, without

# What runners put between the containers of a test and its own name.
_SEPARATORS = (" -- ", " > ", " \u203a ")
_MOST_DOTS = 20
_MOST_PAIRS = 5_000
_LONGEST_PATCH = 1 << 20


def renamed(found: Expected) -> Mapping[str, str]:
    """New id → the id of the same test that passed on the untouched base."""
    before = found.before.get("run_result")
    if before is None:
        return {}
    new = without(found.sets["f2p_tests"] | found.sets["n2p_tests"], before.values())
    if not new:
        return {}
    patched = found.before.get("test_patch_result", {})
    gone = without(before["passed_tests"], (*patched.values(), *found.sets.values()))
    return _moved(new, gone) | dict(_regrouped(new, gone)) if gone else {}


def repeated(found: Expected, added: Callable[[], str]) -> Mapping[str, str]:
    """New id → the id of the same test that passed on the untouched base, and is there still.

    Some runners report a test by its own name, by that of its container, or by both. `added` gives
    the lines of the hidden patch, where they are needed: a test that they name may be a new one in
    a container of its own.
    """
    before = found.before.get("run_result")
    pairs = dict(islice(_also_known(found, before), _MOST_PAIRS)) if before else {}
    lines = added() if pairs else ""
    if len(lines) > _LONGEST_PATCH:
        return {}
    return {test: form for test, form in pairs.items() if _leaf(test) not in lines}


def _also_known(found: Expected, before: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """New ids, each with that of its test in its class alone, which passed on the base."""
    new = (*found.lists["f2p_tests"], *found.lists["n2p_tests"])
    together = "\n".join(new)
    passed = before["passed_tests"]
    # Most runners have no containers, so most of thousands of ids needn't be taken apart.
    for test in new if any(mark in together for mark in _SEPARATORS) else ():
        form = next((f for f in _without_containers(test) if f in passed), None)
        if form is not None and not any(test in known for known in before.values()):
            yield test, form


def _regrouped(new: Iterable[str], gone: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs that differ in the containers inside their class alone."""
    bare = {old.removesuffix("()"): old for old in gone}
    within = {form: old for old in gone for form in _without_containers(old)}
    for test in new:
        plain = test.removesuffix("()")
        forms = (form for form in _without_containers(test) if form in bare)
        old = bare.get(plain) or next((bare[form] for form in forms), None) or within.get(plain)
        if old is not None:
            yield test, old


def _leaf(test: str) -> str:
    """What stands behind the last container."""
    plain = test.removesuffix("()")
    return min((plain.rpartition(separator)[2] for separator in _SEPARATORS), key=len)


def _without_containers(test: str) -> Iterator[str]:
    """What the id would be in its class alone; the likeliest first, none without containers.

    Where the class ends can't be told, since a container's name may hold dots too.
    """
    plain = test.removesuffix("()")
    for separator in _SEPARATORS:
        head, found, _ = plain.partition(separator)
        if found:
            leaf = plain.rpartition(separator)[2]
            end = len(".".join(head.split(".", _MOST_DOTS)[:_MOST_DOTS]))
            while (end := head.rfind(".", 0, end)) >= 0:
                yield f"{head[:end]}.{leaf}"


def _moved(new: Iterable[str], gone: Iterable[str]) -> dict[str, str]:
    """Pairs of tests whose class has another package, and all its tests with it."""
    old_classes, new_classes = _by_class(gone), _by_class(new)
    simple = {name.rpartition(".")[2]: name for name in old_classes}
    pairs: dict[str, str] = {}
    for name, leaves in new_classes.items():
        old = simple.get(name.rpartition(".")[2])
        if old is not None and old != name and leaves <= old_classes[old]:
            pairs |= {f"{name}.{leaf}": f"{old}.{leaf}" for leaf in leaves}
    return pairs


def _by_class(tests: Iterable[str]) -> Mapping[str, set[str]]:
    classes: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        name, _, leaf = test.rpartition(".")
        classes[name].add(leaf)
    return classes
