"""The JSON Schemas, and what they say of a value.

Promises: a value that fits costs microseconds (jsonschema-rs says yes or no); one that doesn't gets
the messages of `jsonschema`, each with the path to the spot, a bounded number of them.
"""

from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError

MOST_PROBLEMS = 20
_PACKAGE = Path(__file__).parent.parent
_MOST_CHARACTERS = 200
# Kinds of misfit whose message quotes a pattern or a schema that people shouldn't have to read.
_UNCLEAR = frozenset({"pattern", "not", "oneOf", "anyOf", "const"})


def folder() -> Path:
    """Where the schemas lie: in the package when installed, beside it in a checkout."""
    installed = _PACKAGE / "schemas"
    return installed if installed.is_dir() else _PACKAGE.parent / "schemas"


def path_of(name: str) -> Path:
    """The file that holds the schema of this name."""
    return folder() / f"{name}.schema.json"


@cache
def load(name: str) -> Any:
    """The schema of this name, as a JSON value."""
    path = path_of(name)
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise KbenchError(f"{path}: can't be read: {error}; install kbench-build again") from error


@cache
def _fast(name: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - an up-to-date run needs no validator

    return jsonschema_rs.validator_for(load(name))


def problems(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """(path to the spot, message) for everything in a JSON value that doesn't fit its schema."""
    return () if _fits(name, value) else tuple(_messages(name, value))


def _fits(name: str, value: Any) -> bool:
    # jsonschema-rs takes in one id after the other, of thousands.
    brief = _brief(value) if name == "expected_tests" else value
    try:
        return bool(_fast(name).is_valid(brief))
    except ValueError:  # a value that jsonschema-rs can't take in: let the other one judge
        return False


def _brief(value: Any) -> Any:
    """The value with one id in the place of many, where all are what their schema asks for."""
    if isinstance(value, dict):
        return {key: _brief(item) for key, item in value.items()}
    return value[:1] if isinstance(value, list) and _are_ids(value) else value


def _are_ids(items: list[Any]) -> bool:
    try:
        "".join(items)
    except TypeError:
        return False
    return all(items)


def _messages(name: str, value: Any) -> list[tuple[str, str]]:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - only what fails pays for it

    errors = list(islice(Draft202012Validator(load(name)).iter_errors(value), MOST_PROBLEMS + 1))
    found = [(_spot(error.absolute_path), _said(error)) for error in errors]
    if len(found) > MOST_PROBLEMS:
        found[-1] = ("", f"has more of the kind: only the first {MOST_PROBLEMS} are listed")
    return found


def _spot(path: Any) -> str:
    """`f2p_tests[3]`, `metadata.source.license`; empty for the whole document."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _said(error: Any) -> str:
    """The error's message, shortened in its middle, and what the schema says is meant."""
    message = _short(error.message)
    meant = error.schema.get("description") if error.validator in _UNCLEAR else None
    return f"{message}: {meant}" if meant else message


def _short(message: str) -> str:
    if len(message) <= _MOST_CHARACTERS:
        return message
    half = _MOST_CHARACTERS // 2
    return f"{message[:half]} … {message[-half:]}"
