"""Checks that hold for every file that people or tools write: it parses, it fits its schema."""

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kbench_build.rules.content import EXPECTED, QUARANTINE, VERIFY, Content
from kbench_build.rules.findings import Check, Spot

_LISTS = 10


def unknown_keys(schema: Mapping[str, Any], value: Any) -> Iterator[tuple[str, str]]:
    """(path, message) for each key that a schema doesn't name, where it names all there are.

    A schema that says `additionalProperties` says itself what becomes of other keys.
    """
    yield from _unknown(schema, schema, value, "")


def _unknown(
    root: Mapping[str, Any], schema: Mapping[str, Any], value: Any, path: str
) -> Iterator[tuple[str, str]]:
    schema = _resolved(root, schema)
    if isinstance(value, list):
        items = _resolved(root, schema.get("items", {}))
        # Only tables have keys: lists of thousands of test ids aren't walked.
        for index, item in enumerate(value if "properties" in items else ()):
            yield from _unknown(root, items, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        yield from _unknown_in_table(root, schema, value, f"{path}." if path else "")


def _unknown_in_table(
    root: Mapping[str, Any], schema: Mapping[str, Any], value: Mapping[str, Any], head: str
) -> Iterator[tuple[str, str]]:
    known = schema.get("properties")
    if known is None:
        return
    closed = "additionalProperties" not in schema
    for key, item in value.items():
        if key in known:
            if isinstance(item, dict | list):
                yield from _unknown(root, known[key], item, f"{head}{key}")
        elif closed:
            near = difflib.get_close_matches(key, known, n=1)
            meant = f"; is {near[0]!r} meant?" if near else ""
            yield f"{head}{key}", f"is a key that nothing reads{meant}"


def _resolved(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    here: Any = root
    for part in reference.removeprefix("#/").split("/"):
        here = here[part]
    return {**here, **{k: v for k, v in schema.items() if k != "$ref"}}


def _syntax(task: Content) -> Iterator[Spot]:
    for flaw in task.syntax:
        yield Spot(file=flaw.file, where=flaw.where, message=flaw.message)


def _schema(task: Content) -> Iterator[Spot]:
    for flaw in task.misfits:
        yield Spot(file=flaw.file, where=flaw.where, message=flaw.message)


def _unknown_key(task: Content) -> Iterator[Spot]:
    for flaw in task.unknown:
        yield Spot(file=flaw.file, where=flaw.where, message=flaw.message)


def _repeated(task: Content) -> Iterator[Spot]:
    suspects = [EXPECTED] if _may_repeat(task.data.get(EXPECTED, b"")) else []
    for path in [*suspects, VERIFY, QUARANTINE]:
        for key in sorted(repeated_keys(task.data.get(path, b"{}"))):
            yield Spot(
                file=path, where=key, message="stands twice in one table; the last one counts"
            )


def _may_repeat(expected: bytes) -> bool:
    """Whether expected tests hold more than their ten lists; told in a fraction of parsing time."""
    at = -1
    for _ in range(_LISTS + 1):
        at = expected.find(b"[", at + 1)
        if at < 0:
            return False
    # Ids of parameterised tests hold brackets too.
    return expected.count(b'_tests"') > _LISTS


def repeated_keys(data: bytes) -> set[str]:
    """Keys that stand more than once in one object of a document; none if it doesn't parse."""
    found: set[str] = set()

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            (found if key in seen else seen).add(key)

    with suppress(ValueError, RecursionError):
        json.loads(data, object_pairs_hook=look)
    return found


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="document/syntax",
        severity="error",
        why="A file that doesn't parse says nothing.",
        mend="Correct the file at this place.",
        find=_syntax,
    ),
    Check(
        id="document/schema",
        severity="error",
        why="What has another type or form than its readers expect is misread or refused.",
        mend="Write the value as the schema in schemas/ describes it.",
        find=_schema,
    ),
    Check(
        id="document/repeated-key",
        severity="error",
        why="Readers see one of the two values, and people the other.",
        mend="Keep one of them.",
        find=_repeated,
    ),
    Check(
        id="document/unknown-key",
        severity="warning",
        why="A mistyped key is ignored silently, and a default takes its place.",
        mend="Correct the key, or remove it; what is your own goes under [metadata].",
        find=_unknown_key,
    ),
)
