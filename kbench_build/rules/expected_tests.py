"""`tests/expected_tests.json` as lists and sets of test ids."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

CATEGORIES = ("f2p_tests", "p2p_tests", "s2p_tests", "n2p_tests")
RESULTS = ("run_result", "test_patch_result")
STATUSES = ("passed_tests", "failed_tests", "skipped_tests")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The file as lists (`lists` by category, `results` by result and status), and as sets.

    `sets` and `before` have the same keys as the lists.
    """

    lists: Mapping[str, list[str]]
    results: Mapping[str, Mapping[str, list[str]]]
    sets: Mapping[str, frozenset[str]]
    before: Mapping[str, Mapping[str, frozenset[str]]]

    @cached_property
    def text(self) -> str:
        """Every id that stands anywhere in the file, a line each: one search asks them all."""
        everywhere = [(self.sets[name], ids) for name, ids in self.lists.items()]
        for name, result in self.results.items():
            everywhere += [(self.before[name][status], ids) for status, ids in result.items()]
        # Equal lists share one set (see `_Sets`): each is written once.
        return "\n".join(chain.from_iterable({id(ids): each for ids, each in everywhere}.values()))


def expected_of(value: Mapping[str, Any]) -> Expected:
    """The file's lists; missing ones are empty. The value must fit the schema."""
    lists = {name: value.get(name, []) for name in CATEGORIES}
    results = {
        name: {status: value[name].get(status, []) for status in STATUSES}
        for name in RESULTS
        if name in value
    }
    sets = _Sets()
    return Expected(
        lists=lists,
        results=results,
        sets={name: sets.of(ids) for name, ids in lists.items()},
        before={
            name: {status: sets.of(ids) for status, ids in result.items()}
            for name, result in results.items()
        },
    )


def without(tests: frozenset[str], groups: Iterable[frozenset[str]]) -> frozenset[str]:
    """The tests that stand in none of the groups; none is copied where there is nothing to take."""
    for group in groups:
        if group is tests:
            return frozenset()
        if not tests.isdisjoint(group):
            tests = tests - group
    return tests


class _Sets:
    """Makes each set once: thousands of ids stand in several lists, often in the same order."""

    def __init__(self) -> None:
        self._made: list[tuple[list[str], frozenset[str]]] = []

    def of(self, ids: list[str]) -> frozenset[str]:
        for known, made in self._made:
            if len(known) == len(ids) and known == ids:
                return made
        fresh = frozenset(ids)
        made = next((other for _, other in self._made if other == fresh), fresh)
        self._made.append((ids, made))
        return made
