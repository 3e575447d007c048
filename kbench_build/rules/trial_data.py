"""What the shipped verifier is told of a candidate, before it is a task.

Promises: `verify.json` of each state of the checkout, with the words of the test command for the
change's test files that are there in it. Leaves asking git to others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbench_build.rules import verifier_data
from kbench_build.rules.trial_commands import given_files, takes_files, with_files
from kbench_build.rules.trials import STATES, State, unhidden
from kbench_build.rules.verifier_data import Change

# No report has this id, so a run of the verifier never ends as resolved.
EXPECTED = b'{"f2p_tests": ["of no report"], "p2p_tests": []}'


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """What git says of a base: its files, what the tests make of it, and which have CRLF."""

    files: Mapping[str, tuple[str, str]]
    hidden: Sequence[Change]
    crlf: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """verify.json of each state in which there is something to run.

    `files` are the change's test files once its tests are there, `ran_before` says whether the base
    has any of them.
    """

    verify: Mapping[State, Mapping[str, Any]]
    files: tuple[str, ...]
    ran_before: bool


def crlf_paths(attributes: bytes, listing: bytes) -> frozenset[str]:
    """Paths whose checkout has CRLF, from what git says of line ends."""
    sure, if_text = verifier_data.line_ends(attributes)
    return sure | if_text & verifier_data.stored_as_text(listing)


def unplaceable(changes: Sequence[Change]) -> str:
    """The first path that no file can be put at, such as a submodule; empty where there is none."""
    sides = ((c.path, side) for c in changes for side in (c.before, c.after) if side)
    kinds = ("100644", "100755", "120000")
    return next((path for path, side in sides if side.partition(" ")[0] not in kinds), "")


def plan(data: Mapping[str, Any], upstream: Upstream, patterns: Sequence[str]) -> Plan:
    """The plan of a candidate; `data` is verify.json as people write it, its command a template."""
    hidden = verifier_data.hidden_paths(upstream.hidden, upstream.crlf)
    held = verifier_data.protected_files(upstream.files, data, hidden, upstream.crlf)
    filled = verifier_data.filled_in(data, hidden, held)
    before = given_files([c.path for c in upstream.hidden if c.before], patterns)
    after = given_files([c.path for c in upstream.hidden if c.after], patterns)
    files: Mapping[State, tuple[str, ...]] = {"base": before, "tests": after, "fix": after}
    whole = not takes_files(data["command"])
    return Plan(
        verify={s: _of_state(filled, s, files[s]) for s in STATES if whole or files[s]},
        files=after,
        ran_before=whole or bool(before),
    )


def _of_state(filled: Mapping[str, Any], state: State, files: Sequence[str]) -> Mapping[str, Any]:
    verify = unhidden(filled) if state == "base" else filled
    return {**verify, "command": list(with_files(filled["command"], files))}
