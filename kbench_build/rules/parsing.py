"""TOML and JSON documents from bytes: the value, or the spot where it goes wrong. Never raises."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kbench_build import toml

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """Something wrong with a file: the spot in it (may be empty) and what."""

    file: str
    where: str = ""
    message: str


def parse_toml(path: str, data: bytes) -> Mapping[str, Any] | Flaw:
    """A TOML document as JSON values (dates become text), or where it goes wrong."""
    text = ""
    try:
        text = data.decode("utf-8")
        return {key: _plain(value) for key, value in toml.loads(text).items()}
    except UnicodeDecodeError as error:
        return not_utf8(path, data, error)
    except toml.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line, column = (place[1], place[2]) if place and place[1] else _end_of(text)
        where = f"line {line}, column {column}"
        return Flaw(file=path, where=where, message=_PLACE.sub("", str(error)))


def _end_of(text: str) -> tuple[int, int]:
    """Line and column behind the last character, from 1."""
    return text.count("\n") + 1, len(text.rpartition("\n")[2]) + 1


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)  # inf and nan are no numbers of JSON
    return value if isinstance(value, str | bool | int | float) else str(value)


def parse_json(path: str, data: bytes) -> Mapping[str, Any] | Flaw:
    """A JSON object, or where it goes wrong."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return Flaw(file=path, where=where, message=error.msg)
    if not isinstance(value, dict):
        return Flaw(file=path, message="holds no JSON object")
    return value


def not_utf8(path: str, data: bytes, error: UnicodeDecodeError) -> Flaw:
    """The flaw of a text that isn't UTF-8, with its line and column."""
    before = data[: error.start]
    line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
    where = f"line {line}, column {column}"
    return Flaw(file=path, where=where, message=f"byte 0x{data[error.start]:02x} isn't UTF-8")
