"""`[mine.judge]` of `kbench.toml`: who writes a statement where no issue does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.config import CONFIG

_TEXTS = ("endpoint", "model", "key_env")
_KEYS = ("command", *_TEXTS, "timeout_sec")


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """A command, or an endpoint that speaks OpenAI's chat completions, and its model.

    `key_env` names the environment variable that holds the endpoint's key.
    """

    command: tuple[str, ...] = ()
    endpoint: str = ""
    model: str = ""
    key_env: str = ""
    timeout_sec: float = 120.0


def read_judge(table: Any) -> JudgeConfig | None:
    """The table, None where there is none. Raises `KbenchError` with the place."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise _wrong("", "must be a table")
    for key in table:
        if key not in _KEYS:
            raise _wrong(key, f"is no key here; known are {', '.join(sorted(_KEYS))}")
    found = JudgeConfig(
        command=_command(table.get("command", [])),
        endpoint=_text(table, "endpoint"),
        model=_text(table, "model"),
        key_env=_text(table, "key_env"),
        timeout_sec=_seconds(table.get("timeout_sec", JudgeConfig.timeout_sec)),
    )
    if bool(found.command) == bool(found.endpoint):
        raise _wrong("", "must name either a command or an endpoint")
    if found.endpoint and not found.endpoint.startswith(("http://", "https://")):
        raise _wrong("endpoint", "must begin with http:// or https://")
    if found.endpoint and not found.model:
        raise _wrong("model", "is missing: an endpoint has several")
    return found


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise _wrong("command", 'must be a list of strings: ["judge", "--quick"]')
    return tuple(value)


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _wrong(key, "must be a string")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= 86_400:
        raise _wrong("timeout_sec", f"must be a number of seconds, not {value!r}")
    return float(value)


def _wrong(key: str, message: str) -> KbenchError:
    return KbenchError(f"{CONFIG}: mine.judge{f'.{key}' if key else ''}: {message}")
