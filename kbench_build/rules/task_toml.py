"""Checks of `task.toml` beyond its schema: versions, names, missing facts, network settings."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from kbench_build.rules.content import TASK, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.recipes import base_commit
from kbench_build.rules.tables import table

HARBOR_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
SOURCE_KEYS = (
    "repository_owner",
    "repository_name",
    "repository_url",
    "license",
    "code_change_id",
    "code_change_url",
    "base_commit",
)


def _version(task: Content) -> Iterator[Spot]:
    config = task.config or {}
    version = config.get("schema_version", config.get("version"))
    if isinstance(version, str) and version not in HARBOR_VERSIONS:
        message = f"version {version!r} isn't one that is known here: {', '.join(HARBOR_VERSIONS)}"
        yield Spot(file=TASK, where="schema_version", message=message)
    if "schema_version" in config and "version" in config:
        yield Spot(file=TASK, where="version", message="stands beside schema_version; keep one")


def _older_keys(task: Content) -> Iterator[Spot]:
    config = task.config or {}
    newer = {"allow_internet": "network_mode", "memory": "memory_mb", "storage": "storage_mb"}
    found = ["version (schema_version)"] if "version" in config else []
    environment = table(config, "environment")
    found += [f"environment.{old} ({new})" for old, new in newer.items() if old in environment]
    if found:
        yield Spot(file=TASK, message=f"uses older keys: {', '.join(found)}")


def _name(task: Content) -> Iterator[Spot]:
    if task.config is None:
        return
    name = table(task.config, "task").get("name")
    wanted = f"{task.around.namespace}/{task.id.lower()}"
    if name is None:
        yield Spot(file=TASK, where="task.name", message=f"is missing; {wanted!r} is meant")
    elif name != wanted:
        yield Spot(file=TASK, where="task.name", message=f"is {name!r} where {wanted!r} is meant")


def _missing(task: Content) -> Iterator[Spot]:
    if task.config is None:
        return
    source = table(task.config, "metadata", "source")
    for key in SOURCE_KEYS:
        if source.get(key) in (None, ""):
            yield Spot(file=TASK, where=f"metadata.source.{key}", message="is missing")


def _base_commit(task: Content) -> Iterator[Spot]:
    commit = base_commit(task.config)
    if commit and not _COMMIT.fullmatch(commit):
        message = f"{commit!r} is no full commit id of 40 lower-case hexadecimal digits"
        yield Spot(file=TASK, where="metadata.source.base_commit", message=message)


def _network(task: Content) -> Iterator[Spot]:
    for path in (("environment",), ("agent",), ("verifier",), ("verifier", "environment")):
        settings = table(task.config, *path)
        is_phase = path[-1] != "environment"
        for key, message in _hosts_problems(settings, is_phase=is_phase):
            yield Spot(file=TASK, where=".".join((*path, key)), message=message)


def _hosts_problems(settings: Mapping[str, Any], *, is_phase: bool) -> Iterator[tuple[str, str]]:
    mode, hosts = settings.get("network_mode"), settings.get("allowed_hosts")
    if not isinstance(hosts, list):
        return
    if (hosts and mode != "allowlist") or (is_phase and mode is None):
        yield "allowed_hosts", "is refused unless network_mode is 'allowlist'"
    for index, host in enumerate(hosts):
        if isinstance(host, str) and (problem := _host_problem(host)):
            yield f"allowed_hosts[{index}]", f"{host!r} {problem}"


def _host_problem(host: str) -> str:
    name = host.strip().lower().rstrip(".")
    if _is_address(name):
        return ""
    name = name.removeprefix("*.")
    if "*" in name:
        return "has a * elsewhere than in the place of its first part"
    is_host = all(_LABEL.fullmatch(label) for label in name.split("."))
    return "" if is_host else "is no host name, address or range of addresses"


def _is_address(text: str) -> bool:
    try:
        ip_network(text, strict=True)
    except ValueError:
        return False
    return "%" not in text


def _verifier_mode(task: Content) -> Iterator[Spot]:
    verifier = table(task.config, "verifier")
    if verifier.get("environment_mode") == "shared" and "environment" in verifier:
        message = "is 'shared', but [verifier.environment] describes another container"
        yield Spot(file=TASK, where="verifier.environment_mode", message=message)


def _network_odd(task: Content) -> Iterator[Spot]:
    environment = table(task.config, "environment")
    old, mode = environment.get("allow_internet"), environment.get("network_mode")
    if isinstance(old, bool) and mode is not None and old != (mode == "public"):
        message = f"contradicts network_mode = {mode!r}, which wins"
        yield Spot(file=TASK, where="environment.allow_internet", message=message)
    for section in ("environment", "agent", "verifier"):
        settings = table(task.config, section)
        if settings.get("network_mode") == "allowlist" and not settings.get("allowed_hosts"):
            where = f"{section}.allowed_hosts"
            yield Spot(file=TASK, where=where, message="is empty, so nothing is reachable")


def _public_agent(task: Content) -> Iterator[Spot]:
    if task.config is None:
        return
    if agent_network(task.config) == "public":
        message = "the agent reaches the whole network, and so the published fix"
        yield Spot(file=TASK, where="agent.network_mode", message=message)


def agent_network(config: Mapping[str, Any]) -> str:
    """The network mode that an agent gets: its own, or the environment's, old key included."""
    mode = table(config, "agent").get("network_mode")
    environment = table(config, "environment")
    if mode is None:
        mode = environment.get("network_mode")
    if mode is None and environment.get("allow_internet") is False:
        return "no-network"
    return mode if isinstance(mode, str) else "public"


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="task/version",
        severity="warning",
        why="Harbor reads other versions by guess, or not at all.",
        mend='Write schema_version = "1.4".',
        find=_version,
    ),
    Check(
        id="task/older-keys",
        severity="note",
        why="Harbor still reads these keys, and says that they go.",
        mend="Use the keys named in brackets.",
        find=_older_keys,
    ),
    Check(
        id="task/name",
        severity="warning",
        why="A registry and dataset.toml know the task by this name.",
        mend="Write [task] name as said.",
        find=_name,
        forms=("shipped",),
    ),
    Check(
        id="provenance/missing",
        severity="error",
        why="Without it nobody can tell the licence, find the change or check the seal.",
        mend="Add the key to [metadata.source].",
        find=_missing,
        forms=("shipped",),
    ),
    Check(
        id="provenance/incomplete",
        severity="warning",
        why="Without it nobody can tell the licence, find the change or check the seal.",
        mend="Add the key to [metadata.source].",
        find=_missing,
        forms=("own",),
    ),
    Check(
        id="provenance/base-commit",
        severity="error",
        why="Names and short ids come to mean other commits over time.",
        mend="Write the full commit id.",
        find=_base_commit,
    ),
    Check(
        id="network/hosts",
        severity="error",
        why="Harbor refuses such a task, or lets less through than is meant.",
        mend='Set network_mode = "allowlist" in the same section, with plain host names.',
        find=_network,
    ),
    Check(
        id="task/verifier-mode",
        severity="error",
        why="Harbor refuses a verifier that is to run in two containers.",
        mend='Write environment_mode = "separate", or remove [verifier.environment].',
        find=_verifier_mode,
    ),
    Check(
        id="network/settings",
        severity="warning",
        why="Settings that contradict each other hide what the network really lets through.",
        mend="Keep network_mode, and list the hosts that are needed.",
        find=_network_odd,
    ),
    Check(
        id="network/public-agent",
        severity="warning",
        why="The fix of a public project is one download away.",
        mend='Set [agent] network_mode = "allowlist" and name the build hosts.',
        find=_public_agent,
        forms=("shipped", "own"),
    ),
)
