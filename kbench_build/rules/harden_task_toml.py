"""Brings a task.toml of the older shape to Harbor's current keys, in its own style.

Promises: comments, order, quotes and line ends of what stays are kept; what came out means exactly
what was meant to change and nothing else, or it is refused. Idempotent. Leaves to `validate`
whether the values are any good.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Item, SingleKey, Table, Whitespace

from kbench_build import toml
from kbench_build.rules.harden_tests import Refusal

VERSION = "1.4"
_LONGEST = 64 << 10
# What builds need: Maven Central, Gradle's plugins and services, Google's, JetBrains' and Dart's.
BUILD_HOSTS = (
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "plugins-artifacts.gradle.org",
    "services.gradle.org",
    "downloads.gradle.org",
    "maven.google.com",
    "dl.google.com",
    "cache-redirector.jetbrains.com",
    "pub.dev",
)
_Json = dict[str, Any]


class _StyleError(Exception):
    """A table that no edit here can change and keep its style. The text says which."""


@dataclass(frozen=True, kw_only=True)
class TaskToml:
    """task.toml as it should be, or why it can't be brought there."""

    text: str = ""
    refusals: tuple[Refusal, ...] = ()


def hardened_toml(text: str, *, name: str, base: str) -> TaskToml:
    """Bring a task.toml to the current keys. `name` is `organisation/name`, `base` a commit id."""
    if len(text) > _LONGEST:
        reason = f"has more than {_LONGEST:,} characters, which takes minutes to keep the style of"
        return TaskToml(refusals=(Refusal(line=0, reason=reason),))
    try:
        old = toml.loads(text)
        problem = _problem(old, base)
        if problem:
            return TaskToml(refusals=(Refusal(line=0, reason=problem),))
        new = _written(text, old, name, base)
        came_out = toml.loads(new)
    except _StyleError as error:
        return TaskToml(refusals=(Refusal(line=0, reason=str(error)),))
    except (toml.TOMLDecodeError, TOMLKitError, RecursionError, ValueError) as error:
        return TaskToml(refusals=(Refusal(line=0, reason=f"can't be read: {error}"),))
    if came_out != _meant(old, name, base):
        reason = "has tables written in a way that this can't keep while it changes them"
        return TaskToml(refusals=(Refusal(line=0, reason=reason),))
    return TaskToml(text=new)


def _problem(old: Mapping[str, Any], base: str) -> str:
    """Why the values leave it open what is meant."""
    for path in (("task",), ("metadata",), ("metadata", "source"), *map(_one, _SECTIONS)):
        here: Any = old
        for key in path:
            here = here.get(key, {}) if isinstance(here, dict) else {}
        if not isinstance(here, dict):
            return f"{'.'.join(path)} is no table"
    source = old.get("metadata", {}).get("source", {})
    known = source.get("base_commit", base)
    if known != base:
        return f"metadata.source.base_commit is {known!r}, while prepare.sh checks out {base}"
    if "issue_url" in source and "issue_urls" in source:
        return "metadata.source has both issue_url and issue_urls"
    if not isinstance(source.get("issue_url", ""), str):
        return "metadata.source.issue_url is no text"
    allows = old.get("environment", {}).get("allow_internet", True)
    return (
        "" if isinstance(allows, bool) else "environment.allow_internet is neither true nor false"
    )


_SECTIONS = ("environment", "agent", "verifier")


def _one(name: str) -> tuple[str]:
    return (name,)


def _modes(old: Mapping[str, Any]) -> Mapping[str, str]:
    """The network mode of each section that is to get one, where the older key stood."""
    environment = old.get("environment", {})
    if "allow_internet" not in environment or "network_mode" in environment:
        return {}
    wanted = {"environment": "no-network"}
    if environment["allow_internet"]:
        wanted |= {"agent": "allowlist", "verifier": "no-network"}
    return {s: mode for s, mode in wanted.items() if "network_mode" not in old.get(s, {})}


def _meant(old: Mapping[str, Any], name: str, base: str) -> _Json:
    """What the document must say when it came out."""
    new: _Json = copy.deepcopy(dict(old))
    new.pop("version", None)
    new.setdefault("schema_version", VERSION)
    new.setdefault("task", {}).setdefault("name", name)
    source = new.setdefault("metadata", {}).setdefault("source", {})
    source["base_commit"] = base
    if "issue_url" in source:
        source["issue_urls"] = [url] if (url := source.pop("issue_url")) else []
    if "implemented" in new.get("verifier", {}):
        new["metadata"].setdefault("verifier_implemented", new["verifier"].pop("implemented"))
    for section, mode in _modes(old).items():
        new.setdefault(section, {})["network_mode"] = mode
        if mode == "allowlist":
            new[section].setdefault("allowed_hosts", list(BUILD_HOSTS))
    new.get("environment", {}).pop("allow_internet", None)
    return new


def _written(text: str, old: Mapping[str, Any], name: str, base: str) -> str:
    """The same changes in the text. Each edit begins with what the one before wrote."""
    modes = _modes(old)
    edits: list[Callable[[TOMLDocument], None]] = [
        _version,
        lambda document: _name(document, name),
        _issues,
        lambda document: _base(document, base),
        _implemented,
        lambda document: _network(document, modes),
        _no_older_network,
    ]
    windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    new = text.replace("\r\n", "\n") if windows else text
    for edit in edits:
        document = tomlkit.parse(new)
        edit(document)
        new = document.as_string()
    return new.replace("\n", "\r\n") if windows else new


_Body = list[tuple[Any, Item]]


def _place(body: _Body, key: str) -> int:
    """Where a key stands in a table's body; -1 where it doesn't."""
    return next((i for i, (k, _) in enumerate(body) if k is not None and k.key == key), -1)


def _renamed(body: _Body, at: int, key: str, value: Item) -> None:
    """Put another key and value into a line, which keeps its indent and its comment."""
    value.trivia.indent = body[at][1].trivia.indent
    value.trivia.comment_ws = body[at][1].trivia.comment_ws
    value.trivia.comment = body[at][1].trivia.comment
    value.trivia.trail = body[at][1].trivia.trail
    body[at] = (SingleKey(key), value)


def _version(document: TOMLDocument) -> None:
    body: _Body = document.body
    at = _place(body, "version")
    if at >= 0 and "schema_version" in document:
        document.remove("version")
    elif at >= 0:
        _renamed(body, at, "schema_version", tomlkit.item(VERSION))
    elif "schema_version" not in document:
        _insert(body, "schema_version", tomlkit.item(VERSION))


def _insert(body: _Body, key: str, value: Item) -> None:
    """A first key, below the comments that a file begins with."""
    at = next((i for i, (k, _) in enumerate(body) if k is not None), len(body))
    is_table = at == len(body) or isinstance(body[at][1], Table)
    body.insert(at, (SingleKey(key), value))
    if is_table:
        body.insert(at + 1, (None, Whitespace("\n")))


def _append(body: _Body, key: str, value: Item) -> None:
    """A key behind a table's last one: comments that lead to the next table stay below it."""
    keyed = [i for i, (k, item) in enumerate(body) if k is not None and not isinstance(item, Table)]
    at = keyed[-1] + 1 if keyed else 0
    if keyed and not body[at - 1][1].trivia.trail:
        body[at - 1][1].trivia.trail = "\n"
    body.insert(at, (SingleKey(key), value))


def _name(document: TOMLDocument, name: str) -> None:
    if "task" in document:
        table = _table(document, "task")
        if "name" not in table:
            _append(table.value.body, "name", tomlkit.item(name))
        return
    table = tomlkit.table()
    table["name"] = name
    table.add(tomlkit.nl())
    body: _Body = document.body
    at = next((i for i, (_, item) in enumerate(body) if isinstance(item, Table)), len(body))
    body.insert(at, (SingleKey("task"), table))
    if at and body[at - 1][0] is not None:
        body.insert(at, (None, Whitespace("\n")))


def _issues(document: TOMLDocument) -> None:
    body: _Body = _source(document).value.body
    at = _place(body, "issue_url")
    if at >= 0:
        inner = body[at][1].as_string() if body[at][1].unwrap() else ""
        _renamed(body, at, "issue_urls", tomlkit.value(f"[{inner}]"))


def _base(document: TOMLDocument, base: str) -> None:
    source = _source(document)
    if "base_commit" not in source:
        _append(source.value.body, "base_commit", tomlkit.item(base))


def _implemented(document: TOMLDocument) -> None:
    """Harbor's sections have no such key; [metadata] is free."""
    if "implemented" not in document.get("verifier", {}):
        return
    verifier, metadata = _table(document, "verifier"), _table(document, "metadata")
    line = verifier.value.body[_place(verifier.value.body, "implemented")][1]
    verifier.remove("implemented")
    if "verifier_implemented" not in metadata:
        line.trivia.indent = ""
        _append(metadata.value.body, "verifier_implemented", line)


def _network(document: TOMLDocument, modes: Mapping[str, str]) -> None:
    for section, mode in modes.items():
        table = _table(document, section)
        at = _place(table.value.body, "allow_internet")
        if at >= 0:
            _renamed(table.value.body, at, "network_mode", tomlkit.item(mode))
            continue
        _append(table.value.body, "network_mode", tomlkit.item(mode))
        if mode == "allowlist" and "allowed_hosts" not in table:
            hosts = "".join(f'  "{host}",\n' for host in BUILD_HOSTS)
            _append(table.value.body, "allowed_hosts", tomlkit.value(f"[\n{hosts}]"))


def _no_older_network(document: TOMLDocument) -> None:
    if "allow_internet" in document.get("environment", {}):
        _table(document, "environment").remove("allow_internet")


def _source(document: TOMLDocument) -> Table:
    metadata = _table(document, "metadata")
    if "source" not in metadata:
        metadata["source"] = tomlkit.table()
    source = metadata["source"]
    if not isinstance(source, Table):
        raise _StyleError("metadata.source is written inside a line or in several parts")
    return source


def _table(document: TOMLDocument, key: str) -> Table:
    """A table with a header of its own, made where it is missing."""
    if key not in document:
        document[key] = tomlkit.table()
    table = document[key]
    if not isinstance(table, Table):
        raise _StyleError(f"{key} is written inside a line or in several parts")
    return table
