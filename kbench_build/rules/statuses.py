"""Tests' statuses, written short: a task may have thousands, and nearly all are as expected.

`shorten` keeps only what differs from the task's declared transitions, under the assumption that
makes the list shortest; `restore` gives the statuses back, exactly. A test that wasn't seen has
status `none`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

NONE = "none"
BEFORE = {"f2p": "failed", "p2p": "passed", "s2p": "skipped", "n2p": NONE}
AFTER = dict.fromkeys(BEFORE, "passed")
_ASSUMED = {"before": BEFORE, "after": AFTER, "nothing": dict.fromkeys(BEFORE, NONE)}


def shorten(tests: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Statuses by id, given each expected id's transition, as a JSON object."""
    short = {name: _differing(tests, kinds, name) for name in _ASSUMED}
    assume = min(short, key=lambda name: len(short[name]))
    counts = {s: list(tests.values()).count(s) for s in sorted(set(tests.values()))}
    return {"assume": assume, "differs": short[assume], "counts": counts}


def restore(short: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, str]:
    """The statuses by id that `shorten` was given."""
    assumed = _ASSUMED[short["assume"]]
    statuses = {test: assumed[kind] for test, kind in kinds.items()} | short["differs"]
    return {test: status for test, status in statuses.items() if status != NONE}


def unsteady(repeats: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """The ids whose status isn't the same in all of these."""
    runs = list(repeats)
    ids = {test for run in runs for test in run}
    return tuple(sorted(i for i in ids if len({run.get(i, NONE) for run in runs}) > 1))


def _differing(
    tests: Mapping[str, str], kinds: Mapping[str, str], assumption: str
) -> dict[str, str]:
    assumed = _ASSUMED[assumption]
    ids = sorted({*tests, *kinds})
    found = {i: (tests.get(i, NONE), assumed[kinds[i]] if i in kinds else NONE) for i in ids}
    return {i: is_ for i, (is_, was) in found.items() if is_ != was}
