"""Presets of a language: which files are source, tests and build, as data in `presets/`."""

import tomllib
from collections.abc import Mapping
from importlib import resources

from kbench_build.errors import KbenchError

_FOLDER = "presets"
_ENDING = ".toml"
_RUNNABLE = "runnable"


def preset_names() -> tuple[str, ...]:
    """The presets that there are, sorted."""
    files = resources.files("kbench_build").joinpath(_FOLDER).iterdir()
    return tuple(sorted(f.name.removesuffix(_ENDING) for f in files if f.name.endswith(_ENDING)))


def read_preset(name: str) -> Mapping[str, tuple[str, ...]]:
    """The patterns of a preset, by kind. Raises `KbenchError` for one that there isn't."""
    return {kind: found for kind, found in _document(name).items() if kind != _RUNNABLE}


def runnable(name: str) -> tuple[str, ...]:
    """A preset's patterns of the test files that a test command can be given."""
    return _document(name)[_RUNNABLE]


def _document(name: str) -> Mapping[str, tuple[str, ...]]:
    if name not in preset_names():
        raise KbenchError(f"{name}: no such preset; there are {', '.join(preset_names())}")
    file = resources.files("kbench_build").joinpath(_FOLDER, f"{name}{_ENDING}")
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    return {kind: tuple(patterns) for kind, patterns in document.items()}
