"""Checks of the expected tests' ids: can a comparer ever find them in a report?"""

import re
from collections.abc import Iterator
from functools import lru_cache

from kbench_build.rules.content import EXPECTED, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.once import once

# The hash of an object without a name of its own, as in Foo@1b2c3d4e and Foo$$Lambda/0x00007f12.
_HASH = re.compile(
    r"@(?=[0-9a-f]{0,7}\d)[0-9a-f]{6,8}(?![0-9A-Za-z])|\$\$Lambda(?:\$\d+)?/0x[0-9a-f]+"
)
_NO_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# How JSON writes what XML can't hold: a file without these marks needn't be asked id by id.
_ESCAPED = (b"\\u", b"\\b", b"\\f")
_RAW = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")
# A comparer that looks for a bracket drops or cuts what stands in it.
_BRACKET = re.compile(rb"""["']\[["']|\\\[""")
_STRIPS = re.compile(rb"\.strip\(\)")


def _impossible(task: Content) -> Iterator[Spot]:
    for name, index, test in _ids(task) if _is_odd(task) else ():
        if match := _NO_XML.search(test):
            message = f"holds {match[0]!r}, which no report can: {test!r}"
            yield Spot(file=EXPECTED, where=f"{name}[{index}]", message=message)


def _is_odd(task: Content) -> bool:
    data = task.data.get(EXPECTED, b"")
    # One byte is looked for ten times as fast as several.
    marks = (*(_ESCAPED if _has_escapes(task) else ()), *(_RAW if b"\xef" in data else ()))
    return any(mark in data for mark in marks)


@once
def _has_escapes(task: Content) -> bool:
    return b"\\" in task.data.get(EXPECTED, b"")


def _changing(task: Content) -> Iterator[Spot]:
    # Bytes that stand in each such id, or in what JSON may write for them.
    data = task.data.get(EXPECTED, b"")
    suspect = b"@" in data or b"/" in data or _has_escapes(task)
    for name, index, test in _ids(task) if suspect else ():
        if ("@" in test or "/0x" in test) and (match := _HASH.search(test)):
            message = f"holds {match[0]!r}, another one in each run: {test!r}"
            yield Spot(file=EXPECTED, where=f"{name}[{index}]", message=message)


def _dropped(task: Content) -> Iterator[Spot]:
    scripts = {p: d for p, d in task.data.items() if p.startswith("tests/") and p.endswith(".py")}
    cutting = min((path for path, data in scripts.items() if _has(_BRACKET, data)), default="")
    stripping = min((path for path, data in scripts.items() if _has(_STRIPS, data)), default="")
    for name, index, test in _ids(task) if cutting or stripping else ():
        where = f"{name}[{index}]"
        if cutting and test.endswith("]"):
            message = f"ends in a bracket, which {cutting} seems to drop: {test!r}"
            yield Spot(file=EXPECTED, where=where, message=message)
        elif stripping and test != test.strip():
            message = f"begins or ends in blanks, which {stripping} seems to drop: {test!r}"
            yield Spot(file=EXPECTED, where=where, message=message)


@lru_cache(maxsize=16)
def _has(pattern: re.Pattern[bytes], script: bytes) -> bool:
    """Whether a script matches; many tasks have the same ones."""
    return pattern.search(script) is not None


def _ids(task: Content) -> Iterator[tuple[str, int, str]]:
    for name, ids in task.expected.lists.items() if task.expected else ():
        for index, test in enumerate(ids):
            yield name, index, test


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="expected/impossible",
        severity="error",
        why="An id that no report can hold makes a task that nobody can solve.",
        mend="Write the id as the report has it.",
        find=_impossible,
    ),
    Check(
        id="expected/changing-id",
        severity="warning",
        why="An id that holds an address in memory is another one in the next run.",
        mend="Give the test a name that stays, or leave it out.",
        find=_changing,
    ),
    Check(
        id="expected/dropped",
        severity="warning",
        why="An id that the comparer drops is never found, or never compared.",
        mend="Write ids as the comparer makes them, or run `kbench harden`.",
        find=_dropped,
        forms=("own",),
    ),
)
