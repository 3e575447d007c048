"""What a task's `task.toml` asks of whoever runs it: time, CPUs, memory, network, environment.

Defaults and older spellings are Harbor 0.26's. Two things are narrower here, and said in `notes`: a
network allow-list becomes no network, and a variable that must come from the host is left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbench_build.rules.tables import table

DEFAULT_TIMEOUT_SEC = 600.0
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_UNITS = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of a run: the solution (or agent), or the verifier."""

    timeout_sec: float
    network: Literal["none", "public"]
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What both parts of a run get. None: no limit of that kind. `image` is a ready-made one."""

    build_timeout_sec: float
    cpus: float | None
    memory_mb: int | None
    workdir: str | None
    image: str | None
    solution: Phase
    verifier: Phase
    notes: tuple[str, ...]


def limits(task_toml: Mapping[str, Any]) -> Limits:
    """Read the settings; a value of the wrong type counts as missing (validation names it)."""
    environment = table(task_toml, "environment")
    notes: list[str] = []
    return Limits(
        build_timeout_sec=_number(environment, "build_timeout_sec") or DEFAULT_TIMEOUT_SEC,
        cpus=_number(environment, "cpus"),
        memory_mb=_memory(environment),
        workdir=_text(environment, "workdir"),
        image=_text(environment, "docker_image"),
        solution=_phase(task_toml, "agent", "solution", notes),
        verifier=_phase(task_toml, "verifier", "verifier", notes),
        notes=tuple(dict.fromkeys(notes)),
    )


def _phase(task_toml: Mapping[str, Any], name: str, variables: str, notes: list[str]) -> Phase:
    section, environment = table(task_toml, name), table(task_toml, "environment")
    wanted = {**table(environment, "env"), **table(task_toml, variables, "env")}
    return Phase(
        timeout_sec=_number(section, "timeout_sec") or DEFAULT_TIMEOUT_SEC,
        network=_network(section, environment, name, notes),
        environment=dict(_literal(wanted, notes)),
    )


def _network(
    phase: Mapping[str, Any], environment: Mapping[str, Any], name: str, notes: list[str]
) -> Literal["none", "public"]:
    mode = _text(phase, "network_mode") or _text(environment, "network_mode")
    if mode is None and environment.get("allow_internet") is False:
        mode = "no-network"
    if mode == "allowlist":
        notes.append(f"{name}: network_mode is an allow-list; run without a network")
    return "public" if mode in (None, "public") else "none"


def _memory(environment: Mapping[str, Any]) -> int | None:
    megabytes = _number(environment, "memory_mb")
    if megabytes is None:
        match = re.fullmatch(r"\s*([0-9.]+)([KMG])\s*", str(environment.get("memory", "")).upper())
        megabytes = float(match[1]) * _UNITS[match[2]] if match else None
    return int(megabytes) if megabytes else None


def _literal(wanted: Mapping[str, Any], notes: list[str]) -> Iterator[tuple[str, str]]:
    for key, value in wanted.items():
        match = _TEMPLATE.fullmatch(str(value))
        if match is None:
            yield key, str(value)
        elif match[2] is not None:
            yield key, match[2]
        else:
            notes.append(f"variable {key}: comes from the host, left out")


def _number(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        return None
    return float(value)


def _text(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) and value else None
