"""Reads a TOML file; what is wrong is a `KbenchError` with the file, line and column."""

import re
from pathlib import Path
from typing import Any

from kbench_build import toml
from kbench_build.errors import KbenchError
from kbench_build.rim.task_files import read_whole

_MOST_BYTES = 1 << 20
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def read_toml(path: Path, name: str) -> dict[str, Any]:
    """The document in the file, which messages call `name`. `FileNotFoundError` passes through."""
    try:
        text = read_whole(path, name, _MOST_BYTES).decode("utf-8").replace("\r\n", "\n")
        return toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise KbenchError(f"{name}: {_with_place(str(error), text)}") from error
    except UnicodeDecodeError as error:
        raise KbenchError(f"{name}: byte {error.start} isn't UTF-8") from error


def _with_place(message: str, text: str) -> str:
    found = _PLACE.fullmatch(message)
    if not found:
        return message
    before = text.rpartition("\n")
    line, column = found[2] or text.count("\n") + 1, found[3] or len(before[2]) + 1
    return f"line {line}, column {column}: {found[1]}"
