"""Frozen dataclasses ↔ JSON values, by their type hints.

Promises: what is read has exactly the fields and types that the dataclass declares, and an error
names the path to the bad key (`tasks[3].bases[0]: must be a string, not 7`). Leaves to others what
the values mean.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

Reader = Callable[[Any, str], Any]

_NAMES = {str: "a string", int: "a whole number", bool: "true or false", float: "a number"}


class FormatError(ValueError):
    """A JSON value isn't what a record declares. The text begins with the path to the key."""


def to_json(value: Any) -> Any:
    """The JSON value of a record, or of mappings and tuples of records."""
    if value is None or isinstance(value, (str, int, float)):
        return value  # most are: asking what else they might be takes longer
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _field_names(type(value))}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return {key: to_json(item) for key, item in value.items()}


def from_json(kind: type[T], value: Any, path: str = "") -> T:
    """Read a record of the dataclass `kind`. Raises `FormatError`."""
    read: Reader = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    record: T = read(value, path)
    return record


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _reader(kind: Any) -> Reader:
    """The function that reads one type; made once for each type."""
    if kind is Any:
        return lambda value, _: value
    if is_dataclass(kind) and isinstance(kind, type):
        return _record_reader(kind)
    args = get_args(kind)
    return _composite_reader(kind, args) if args else _plain_reader(kind)


def _composite_reader(kind: Any, args: tuple[Any, ...]) -> Reader:
    origin = get_origin(kind)
    if origin is tuple:
        return _list_reader(_reader(args[0]))
    if origin is Literal:
        return _choice_reader(args)
    if origin in (Union, UnionType):
        return _optional_reader(_reader(next(arg for arg in args if arg is not NoneType)))
    return _mapping_reader(_reader(args[1]))


def _plain_reader(kind: type) -> Reader:
    accepted = (int, float) if kind is float else (kind,)

    def read(value: Any, path: str) -> Any:
        if type(value) not in accepted:
            raise _wrong(path, f"must be {_NAMES[kind]}, not {_short(value)}")
        return value

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any, path: str) -> Any:
        if value not in choices:
            raise _wrong(path, f"must be one of {', '.join(choices)}, not {_short(value)}")
        return value

    return read


def _optional_reader(inner: Reader) -> Reader:
    return lambda value, path: None if value is None else inner(value, path)


def _list_reader(inner: Reader) -> Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(path, f"must be a list, not {_short(value)}")
        return tuple([inner(item, f"{path}[{index}]") for index, item in enumerate(value)])

    return read


def _mapping_reader(inner: Reader) -> Reader:
    def read(value: Any, path: str) -> Any:
        _object(value, path)
        return {key: inner(item, _below(path, key)) for key, item in value.items()}

    return read


def _record_reader(kind: type) -> Reader:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name in _field_names(kind)}
    needed = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]

    def read(value: Any, path: str) -> Any:
        _object(value, path)
        for name in needed:
            if name not in value:
                raise _wrong(_below(path, name), "is missing")
        arguments = {}
        for key, item in value.items():
            reader = readers.get(key)
            if reader is None:
                known = ", ".join(sorted(readers))
                raise _wrong(_below(path, key), f"is no key here; known are {known}")
            arguments[key] = reader(item, _below(path, key))
        return kind(**arguments)

    return read


def _object(value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, f"must be an object, not {_short(value)}")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _wrong(path: str, message: str) -> FormatError:
    return FormatError(f"{path}: {message}" if path else f"the whole value {message}")
