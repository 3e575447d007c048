"""The statement of a mined task: where its text comes from, and what became of it.

Promises: values only; a text is what an issue, a judge or a person wrote, and nothing here makes
one up. Leaves asking a judge, and reading and writing files, to others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbench_build.rules import records

Source = Literal["issue", "judge", "draft"]
Outcome = Literal["accepted", "rejected", "draft"]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Who wrote a text: a command or an endpoint, the model, and the digest of the prompt."""

    command: tuple[str, ...] = ()
    endpoint: str = ""
    model: str = ""
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a candidate's `statement.json` holds.

    `key` is the digest of all that it was made from. Only an `accepted` one may go into a task; its
    `text` is the whole instruction, in Markdown. `reason` says in one line why another isn't.
    `issues` are the addresses of the issues whose text it is. `notes` are what a reviewer may want
    to know, `file` is the digest of `instruction.md` as it was left beside it.
    """

    key: str
    source: Source
    outcome: Outcome
    reason: str = ""
    text: str = ""
    issues: tuple[str, ...] = ()
    judge: Judge | None = None
    notes: tuple[str, ...] = ()
    file: str = ""
    version: int = 1


def to_json(statement: Statement) -> dict[str, Any]:
    """The JSON value of a statement."""
    value: dict[str, Any] = records.to_json(statement)
    return value


def from_json(value: Mapping[str, Any]) -> Statement:
    """The statement of a JSON value. Raises `records.FormatError` where it is none."""
    return records.from_json(Statement, value)
