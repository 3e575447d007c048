"""Which tasks of a dataset are the same thing twice, or differ where all others agree.

Promises: linear in the number of tasks. Works on traits (see `traits`), so that no task's file is
opened again.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from kbench_build.rules.traits import Traits, sections

TAG = 128
_ID = re.compile(r"(?P<stem>.+)-\d+")
# Fewer tasks than that, or less agreement, make no rule that one could deviate from.
_FEWEST = 5
_AGREEING = 0.8


def same_change(traits: Mapping[str, Traits]) -> Iterator[tuple[str, str]]:
    """(task, message) for each task whose change an earlier one has."""
    for task, first in _repeats(traits, lambda each: _named(traits[each])):
        change = traits[task]
        yield task, f"is the change {change.repository}#{change.change}, as {first!r} is already"


def same_fix(traits: Mapping[str, Traits]) -> Iterator[tuple[str, str]]:
    """(task, message) for each task whose gold patch changes the very lines that another's does."""
    for task, first in _repeats(traits, lambda each: traits[each].fix):
        mine, theirs = traits[task], traits[first]
        if not mine.change or _named(mine) != _named(theirs):
            yield task, f"changes the same lines as {first!r}{_kinship(mine, theirs)}"


def _kinship(mine: Traits, theirs: Traits) -> str:
    if not mine.repository or not theirs.repository:
        return ""
    if mine.repository == theirs.repository:
        return f": one of #{theirs.change} and #{mine.change} may be a backport of the other"
    return f": {mine.repository} may be a fork of {theirs.repository}, or the other way round"


def _named(traits: Traits) -> str:
    known = traits.repository and traits.change
    return f"{traits.repository}#{traits.change}" if known else ""


def same_tag(tasks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(task, message) for ids that are one once they are cut as an image tag is."""
    for task, first in _repeats(tasks, lambda each: each.lower()[:TAG]):
        if task.lower() != first.lower():
            yield task, f"begins with the same {TAG} characters as {first!r}"


def ambiguous(traits: Mapping[str, Traits]) -> Iterator[tuple[str, str]]:
    """(task, message) where ids that begin alike stand for different repositories."""
    first: dict[str, str] = {}
    for task, mine in traits.items():
        match = _ID.fullmatch(task)
        if match is None or not mine.repository:
            continue
        earlier = first.setdefault(match["stem"].lower().replace("__", "_"), task)
        theirs = traits[earlier].repository
        if theirs != mine.repository:
            yield task, f"stands for {mine.repository}, and {earlier!r}, named alike, for {theirs}"


def deviating(traits: Mapping[str, Traits]) -> Iterator[tuple[str, str, str]]:
    """(task, section, message) for network settings that differ from those of nearly all tasks."""
    known = {task: each.network for task, each in traits.items() if each.network}
    if len(known) < _FEWEST:
        return
    usual, count = Counter(known.values()).most_common(1)[0]
    if count < _AGREEING * len(known):
        return
    for task, network in known.items():
        if network != usual:
            share = f"{count} of {len(known)} tasks have"
            for section, message in _differences(network, usual, share):
                yield task, section, message


def _differences(mine: str, usual: str, share: str) -> Iterator[tuple[str, str]]:
    theirs = sections(usual)
    for section, (mode, hosts) in sections(mine).items():
        other, listed = theirs[section]
        if mode != other:
            yield f"{section}.network_mode", f"is {_shown(mode)} where {share} {_shown(other)}"
        elif hosts != listed:
            yield f"{section}.allowed_hosts", f"are others than those that {share}"


def _shown(mode: str) -> str:
    return "unset" if mode == "-" else repr(mode)


def _repeats(tasks: Iterable[str], key: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """(task, first task with the same key), keys that are empty left out."""
    first: dict[str, str] = {}
    for task in tasks:
        if (name := key(task)) and first.setdefault(name, task) != task:
            yield task, first[name]
