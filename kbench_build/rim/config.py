"""`kbench.toml`: every key has a default, so a bare folder with `bases/` and `tasks/` works.

An unknown key, a wrong type or a value that means nothing is a `KbenchError` with its path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.model import Suppression
from kbench_build.rim.toml import read_toml

CONFIG = "kbench.toml"
# `[mine]` is read where it is needed, by `rim/mine_config.py`.
_TABLES = {"dataset", "engine", "mine", "release", "selfcheck", "suppress", "upstream"}
REQUIRABLE = ("validate", "seal", "selfcheck")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What `kbench.toml` says, or the defaults.

    `require` are the steps whose evidence a release needs, `runs` how often a selfcheck repeats.
    `mirrors` is a folder of upstream repositories, relative to the root (empty: there is none), and
    `fetch` says whether one that isn't at hand is fetched from its URL.
    `min_free_gb` of the engine's disk are to stay free when builds begin; 0: nobody looks.
    """

    name: str
    version: str = "0.1.0"
    description: str = ""
    namespace: str = "kotlin-bench"
    engine: str = "docker"
    min_free_gb: float = 2.0
    require: tuple[str, ...] = REQUIRABLE
    runs: int = 1
    suppress: tuple[Suppression, ...] = ()
    mirrors: str = ""
    fetch: bool = False


def load_config(root: Path) -> Config:
    """Read the dataset's `kbench.toml`; a missing file means the defaults."""
    name = root.resolve().name.lower() or "dataset"
    try:
        return _config(read_toml(root / CONFIG, CONFIG), name)
    except FileNotFoundError:
        return Config(name=name)


def _config(document: Mapping[str, Any], name: str) -> Config:
    _known(document, "", _TABLES)
    dataset = _table(document, "dataset", {"name", "version", "namespace", "description"})
    engine = _table(document, "engine", {"kind", "min_free_gb"})
    release = _table(document, "release", {"require"})
    selfcheck = _table(document, "selfcheck", {"runs"})
    upstream = _table(document, "upstream", {"mirrors", "fetch"})
    return Config(
        name=_string(dataset, "dataset.name", name),
        version=_string(dataset, "dataset.version", Config.version),
        description=_string(dataset, "dataset.description", Config.description),
        namespace=_string(dataset, "dataset.namespace", Config.namespace),
        engine=_string(engine, "engine.kind", Config.engine),
        min_free_gb=_min_free(engine),
        require=_require(release),
        runs=_runs(selfcheck),
        suppress=_suppressions(document.get("suppress", [])),
        mirrors=_string(upstream, "upstream.mirrors", Config.mirrors),
        fetch=_fetch(upstream),
    )


def _require(release: Mapping[str, Any]) -> tuple[str, ...]:
    value = release.get("require", list(REQUIRABLE))
    if not isinstance(value, list):
        raise _wrong("release.require", "must be a list of steps")
    for index, step in enumerate(value):
        if step not in REQUIRABLE:
            raise _wrong(
                f"release.require[{index}]", f"{step!r} isn't one of {', '.join(REQUIRABLE)}"
            )
    return tuple(step for step in REQUIRABLE if step in value)


def _min_free(engine: Mapping[str, Any]) -> float:
    value = engine.get("min_free_gb", Config.min_free_gb)
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise _wrong("engine.min_free_gb", f"must be a number from 0 up, not {value!r}")
    return float(value)


def _fetch(upstream: Mapping[str, Any]) -> bool:
    fetch = upstream.get("fetch", Config.fetch)
    if not isinstance(fetch, bool):
        raise _wrong("upstream.fetch", f"must be true or false, not {fetch!r}")
    return fetch


def _runs(selfcheck: Mapping[str, Any]) -> int:
    runs = selfcheck.get("runs", Config.runs)
    if type(runs) is not int or runs < 1:
        raise _wrong("selfcheck.runs", f"must be a whole number from 1 up, not {runs!r}")
    return runs


def _suppressions(value: Any) -> tuple[Suppression, ...]:
    if not isinstance(value, list):
        raise _wrong("suppress", "must be written as [[suppress]] tables")
    return tuple(_suppression(item, f"suppress[{index}]") for index, item in enumerate(value))


def _suppression(item: Any, path: str) -> Suppression:
    if not isinstance(item, dict):
        raise _wrong(path, "must be a table")
    _known(item, path, {"rule", "task", "reason"})
    rule = _string(item, f"{path}.rule", "")
    reason = _string(item, f"{path}.reason", "").strip()
    if not rule:
        raise _wrong(f"{path}.rule", "is missing: name the rule to suppress")
    if not reason:
        raise _wrong(f"{path}.reason", "is missing: say why the finding may stand")
    return Suppression(rule=rule, task=_string(item, f"{path}.task", "*"), reason=reason)


def _table(document: Mapping[str, Any], key: str, known: set[str]) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(key, "must be a table")
    _known(value, key, known)
    return value


def _known(table: Mapping[str, Any], path: str, known: set[str]) -> None:
    for key in table:
        if key not in known:
            spot = f"{path}.{key}" if path else key
            raise _wrong(spot, f"is no key here; known are {', '.join(sorted(known))}")


def _string(table: Mapping[str, Any], path: str, default: str) -> str:
    value = table.get(path.rpartition(".")[2], default)
    if not isinstance(value, str):
        raise _wrong(path, f"must be a string, not {value!r}")
    return value


def _wrong(path: str, message: str) -> KbenchError:
    return KbenchError(f"{CONFIG}: {path}: {message}")
