"""What a forge's records have in common, as its API or a command wrote them, an object a line.

Promises: never raises; what can't be read is said in words that go behind the line's number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A line (from 1) that isn't what it should be, and why."""

    line: int
    message: str


def numbered(line: bytes) -> tuple[int, Mapping[str, Any]] | str:
    """The number of the change or issue in a line, and all that it says; or why there is none."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error.msg}"
    if not isinstance(value, dict):
        return "is no JSON object"
    number = value.get("number")
    if type(number) is not int or not 0 < number < 1 << 31:
        return "number: must be a whole number from 1 up"
    return number, value


def text_of(value: Any) -> str:
    """The value where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def seconds(value: Any) -> int:
    """Seconds since 1970 of an ISO 8601 time, 0 where there is none."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return 0
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp()))
