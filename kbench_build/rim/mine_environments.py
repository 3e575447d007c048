"""`[[mine.environment]]` of `kbench.toml`: the images that changes are tried in, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.config import CONFIG
from kbench_build.rim.presets import runnable

_WORDS = ("name", "image", "start", "end", "workdir", "repository", "clone", "history")
_LISTS = ("prepare", "command", "reports", "protected", "files", "copies")
_NEEDED = ("name", "image", "command", "reports")
_HISTORIES = ("ancestors", "none")
_MOST_SEC = 1e6
_MOST_COPY = 1 << 20
# Where an image holds what belongs to no checkout.
TOOLS = "/opt/kbench"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One environment. Names that `tests/verify.json` has too mean the same here.

    `image` is a base of `bases/manifest` (`repo:base-tag`) or any image that the engine holds; it
    serves bases of `repository` (empty: of any) from `start` on and before `end` (see
    `rules/pins.py`). `prepare` are shell lines
    that run once in each checkout, with a network only where `network` says so. `files` are the
    patterns of test files that `command` can be given.

    For the tasks that are made of it: `clone` is an image that holds the upstream at `workdir`
    (empty: one is made), `history` what a task's repository keeps of it, `copies` are files of the
    dataset that lie in `/opt/kbench` of the image.
    """

    name: str
    image: str
    command: tuple[str, ...]
    reports: tuple[str, ...]
    start: str = ""
    end: str = ""
    workdir: str = "/work"
    prepare: tuple[str, ...] = ()
    network: bool = False
    protected: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_sec: float = 1_800.0
    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    repository: str = ""
    clone: str = ""
    history: str = "ancestors"
    copies: tuple[str, ...] = ()


def read_environments(value: Any, preset: str) -> tuple[Environment, ...]:
    """The tables of `[[mine.environment]]`; the preset says what else they take to be tests."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise _wrong("mine.environment", "must be written as [[mine.environment]] tables")
    found = [_read(item, f"mine.environment[{n}]", preset) for n, item in enumerate(value)]
    names = [each.name for each in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise _wrong(f"mine.environment[{index}].name", f"{name!r} stands there already")
    return tuple(found)


def read_copies(root: Path, environment: Environment) -> Mapping[str, bytes]:
    """The files that an environment's images hold in `TOOLS`. Raises `KbenchError`."""
    return {Path(name).name: _copy(root, name, environment) for name in environment.copies}


def _copy(root: Path, name: str, environment: Environment) -> bytes:
    place, path = f"mine.environment ({environment.name}).copies", root / name
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            raise _wrong(place, f"{name} lies outside the dataset")
        data = path.read_bytes()
    except OSError as error:
        raise _wrong(place, f"{name} can't be read: {error.strerror}") from error
    if len(data) > _MOST_COPY:
        raise _wrong(place, f"{name} has more than {_MOST_COPY:,} bytes")
    return data


def _read(table: Mapping[str, Any], path: str, preset: str) -> Environment:
    known = set(Environment.__dataclass_fields__)
    for key in table:
        if key not in known:
            raise _wrong(f"{path}.{key}", f"is no key here; known are {', '.join(sorted(known))}")
    for key in _NEEDED:
        if not table.get(key):
            raise _wrong(f"{path}.{key}", "is missing")
    words = {key: _text(table, path, key) for key in _WORDS if key in table}
    lists = {key: _strings(table, path, key) for key in _LISTS if key in table}
    found = Environment(
        **{"files": runnable(preset), **words, **lists},  # type: ignore[arg-type]  # checked above
        network=_flag(table, path),
        environment=_variables(table, path),
        timeout_sec=_number(table, path, "timeout_sec") or Environment.timeout_sec,
        cpus=_number(table, path, "cpus"),
        memory_mb=_whole(table, path, "memory_mb"),
        disk_mb=_whole(table, path, "disk_mb"),
    )
    if not found.workdir.startswith("/") or found.workdir.strip("/.") == "":
        raise _wrong(f"{path}.workdir", "must be the absolute path of a folder of its own")
    if found.history not in _HISTORIES:
        raise _wrong(f"{path}.history", f"must be one of {', '.join(_HISTORIES)}")
    return found


def _text(table: Mapping[str, Any], path: str, key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise _wrong(f"{path}.{key}", f"must be a string, not {value!r}")
    return value


def _strings(table: Mapping[str, Any], path: str, key: str) -> tuple[str, ...]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(f"{path}.{key}", "must be a list of strings")
    return tuple(value)


def _flag(table: Mapping[str, Any], path: str) -> bool:
    value = table.get("network", False)
    if not isinstance(value, bool):
        raise _wrong(f"{path}.network", f"must be true or false, not {value!r}")
    return value


def _variables(table: Mapping[str, Any], path: str) -> Mapping[str, str]:
    value = table.get("environment", {})
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise _wrong(f"{path}.environment", "must be a table of strings")
    return dict(value)


def _number(table: Mapping[str, Any], path: str, key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < _MOST_SEC:
        raise _wrong(f"{path}.{key}", f"must be a number above 0, not {value!r}")
    return float(value)


def _whole(table: Mapping[str, Any], path: str, key: str) -> int | None:
    value = table.get(key)
    if value is not None and (type(value) is not int or value < 1):
        raise _wrong(f"{path}.{key}", f"must be a whole number from 1 up, not {value!r}")
    return value


def _wrong(path: str, message: str) -> KbenchError:
    return KbenchError(f"{CONFIG}: {path}: {message}")
