"""TOML that nobody vouches for, read within bounds. For all but our own files.

Promises: whatever the text, a document or a `TOMLDecodeError`, in time proportional to the text;
no document is nested so deeply that walking it could exhaust the stack.
"""

import re
import tomllib
from functools import lru_cache
from tomllib import TOMLDecodeError
from typing import Any

__all__ = ["TOMLDecodeError", "loads"]

_DEEPEST = 64
# The time that a dotted key takes grows with the square of its parts.
_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_DEEPEST}}}"""
)


@lru_cache(maxsize=1024)
def loads(text: str) -> dict[str, Any]:
    """The document of a text. Raises `TOMLDecodeError` for any that is none, or is too deep.

    The last ones are remembered, since a survey and a check both read each task's: the document
    isn't to be changed.
    """
    if text.count(".") >= _DEEPEST and (found := _LONG_KEY.search(text)):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        raise TOMLDecodeError(
            f"A key has more than {_DEEPEST} parts (at line {line}, column {column})"
        )
    try:
        document = tomllib.loads(text)
    except TOMLDecodeError:
        raise
    except RecursionError as error:
        raise TOMLDecodeError("Nested too deeply") from error
    except ValueError as error:
        raise TOMLDecodeError(str(error)) from error
    if _is_deep(document):
        raise TOMLDecodeError("Nested too deeply")
    return document


def _is_deep(document: dict[str, Any]) -> bool:
    level: list[Any] = [document]
    for _ in range(_DEEPEST * 2):
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [i for values in inner for i in values if isinstance(i, dict | list)]
        if not level:
            return False
    return True
