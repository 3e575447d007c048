"""Which steps a call of doit may reach, so that the subtasks of all others needn't be made.

doit makes every subtask before it looks at what it was asked for; with thousands of tasks that
takes longer than all the rest of a run with nothing to do. Where a call isn't understood here,
every step is to be made, so that doit judges it as always.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath

_WITH_VALUE = frozenset(
    {"-n", "--process", "-P", "--parallel-type", "-v", "--verbosity", "--runs", "--hunks"}
)
_ALONE = re.compile(
    r"-[acs]|-[nv]\d+|--(?:always-execute|continue|single|rebuild|deep)"
    r"|--(?:process|parallel-type|verbosity|runs|hunks)=\w+"
)


def asked_of(call: Sequence[str]) -> Sequence[str] | None:
    """The tasks, and options of known meaning, that a command line asks doit to run; else None."""
    program = PurePath(call[0]) if call else PurePath()
    if program.name != "doit" and program.parts[-2:] != ("doit", "__main__.py"):
        return None
    return call[2:] if call[1:2] == ["run"] else call[1:]


def reached(
    words: Sequence[str], default: Sequence[str], waits: Mapping[str, Collection[str]]
) -> frozenset[str] | None:
    """The steps that these words of a command line name, and those that they wait for.

    `waits` holds every step; without a name `default` is meant. None where it can't be told.
    """
    try:
        pending = [*_named(words, waits)] or [*_named(default, waits)] or [*waits]
    except ValueError:
        return None
    found: set[str] = set()
    while pending:
        step = pending.pop()
        if step not in found:
            found.add(step)
            pending += waits[step]
    return frozenset(found)


def subjects(words: Sequence[str], steps: Collection[str]) -> Sequence[str] | None:
    """The patterns of subjects in words such as `seal:acme_*`; None where a whole step is meant."""
    named = [word.partition(":") for word in words if word.partition(":")[0] in steps]
    if not named or any(not colon for _, colon, _ in named):
        return None
    return [subject for _, _, subject in named]


def _named(words: Sequence[str], steps: Collection[str]) -> Iterator[str]:
    """The steps of tasks' names such as `seal` and `seal:id`; `ValueError` at any other word."""
    remaining = iter(words)
    for word in remaining:
        step = word.partition(":")[0]
        if step in steps:
            yield step
        elif word in _WITH_VALUE:
            next(remaining, None)
        elif not _ALONE.fullmatch(word):
            raise ValueError(word)
