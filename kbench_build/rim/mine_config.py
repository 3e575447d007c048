"""`[mine]` of `kbench.toml`: the preset of a language, and what a dataset changes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.config import CONFIG
from kbench_build.rim.mine_environments import Environment, read_environments
from kbench_build.rim.mine_judge import JudgeConfig, read_judge
from kbench_build.rim.mine_pieces import Pieces, read_pieces
from kbench_build.rim.presets import read_preset
from kbench_build.rim.toml import read_toml

_KINDS = ("source", "test", "build", "ignored")
_LISTS = ("bots", "chores", "labels")
_NUMBERS = ("fewest_lines", "most_lines", "most_files")


@dataclass(frozen=True, kw_only=True)
class MineConfig:
    """What `[mine]` says, or the defaults.

    `patterns` are those of the preset, with the lists that the dataset names in their place. The
    other lists come on top of the defaults.
    """

    patterns: Mapping[str, tuple[str, ...]]
    preset: str = "kotlin-gradle"
    bots: tuple[str, ...] = ()
    chores: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    fewest_lines: int = 3
    most_lines: int = 1_500
    most_files: int = 1_000
    environments: tuple[Environment, ...] = ()
    pieces: Pieces = field(default_factory=Pieces)
    judge: JudgeConfig | None = None


def load_mine_config(root: Path, preset: str = "", repository: str = "") -> MineConfig:
    """Read `[mine]` of the dataset's `kbench.toml`; `preset` wins over the one named there.

    Environments of other repositories than `repository` (`owner/name`; empty: any) are left out.
    """
    try:
        table = read_toml(root / CONFIG, CONFIG).get("mine", {})
    except FileNotFoundError:
        table = {}
    if not isinstance(table, Mapping):
        raise _wrong("", "must be a table")
    known = {"preset", "environment", "emit", "change", "judge", *_KINDS, *_LISTS, *_NUMBERS}
    for key in table:
        if key not in known:
            raise _wrong(key, f"is no key here; known are {', '.join(sorted(known))}")
    name = preset or _preset(table)
    own = {kind: _strings(table, kind) for kind in _KINDS if kind in table}
    return MineConfig(
        preset=name,
        patterns={**read_preset(name), **own},
        bots=_strings(table, "bots"),
        chores=_strings(table, "chores"),
        labels=_strings(table, "labels"),
        fewest_lines=_number(table, "fewest_lines", MineConfig.fewest_lines),
        most_lines=_number(table, "most_lines", MineConfig.most_lines),
        most_files=_number(table, "most_files", MineConfig.most_files),
        environments=_serving(read_environments(table.get("environment", []), name), repository),
        pieces=read_pieces(table.get("emit", {}), table.get("change", [])),
        judge=read_judge(table.get("judge")),
    )


def _serving(environments: Iterable[Environment], repository: str) -> tuple[Environment, ...]:
    """Those that may serve a repository; forges don't tell capitals in its name."""
    own = ("", repository.lower())
    return tuple(e for e in environments if not repository or e.repository.lower() in own)


def _preset(table: Mapping[str, Any]) -> str:
    name = table.get("preset", MineConfig.preset)
    if not isinstance(name, str):
        raise _wrong("preset", f"must be a string, not {name!r}")
    return name


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(key, "must be a list of strings")
    return tuple(value)


def _number(table: Mapping[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if type(value) is not int or value < 1:
        raise _wrong(key, f"must be a whole number from 1 up, not {value!r}")
    return int(value)


def _wrong(key: str, message: str) -> KbenchError:
    return KbenchError(f"{CONFIG}: {f'mine.{key}' if key else 'mine'}: {message}")
