"""What tells one task from another, short enough to be kept for thousands of tasks.

Promises: never raises, whatever the document or the patch; the text form holds no line end. What
two tasks share is `duplicates`' business.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from kbench_build import digest
from kbench_build.rules.tables import table

_LONGEST = 200
_SECTIONS = ("environment", "agent", "verifier")
_UNSET = "-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """One task: its repository (`owner/name`, lower case), change's number, fix and network.

    Each is empty where the task doesn't say it. `fix` is a digest of the lines that the gold patch
    adds and removes: where they stand and what surrounds them doesn't count. `network` says for
    each section of task.toml the mode and, after a `+`, a digest of the hosts.
    """

    repository: str = ""
    change: str = ""
    fix: str = ""
    network: str = ""

    @property
    def text(self) -> str:
        """The traits on one line; `from_text` reads it back."""
        return "\t".join(astuple(self))


def from_text(text: str) -> Traits:
    """The traits that `Traits.text` wrote."""
    repository, change, fix, network = text.split("\t")
    return Traits(repository=repository, change=change, fix=fix, network=network)


def traits_of(document: Mapping[str, Any], fix: bytes) -> Traits:
    """The traits of a task, from its task.toml and its gold patch."""
    source = table(document, "metadata", "source")
    owner, name = _word(source, "repository_owner"), _word(source, "repository_name")
    return Traits(
        repository=f"{owner}/{name}".lower() if owner and name else "",
        change=_word(source, "code_change_id").lstrip("#!"),
        fix=_changed(fix),
        network=" ".join(_network(document)) if document else "",
    )


def sections(network: str) -> Mapping[str, tuple[str, str]]:
    """(mode, digest of the hosts) by section, from the trait."""
    parts = dict(zip(_SECTIONS, network.split(" "), strict=False))
    return {name: (part.partition("+")[0], part.partition("+")[2]) for name, part in parts.items()}


def _network(document: Mapping[str, Any]) -> Iterator[str]:
    for name in _SECTIONS:
        section = table(document, name)
        mode, hosts = _word(section, "network_mode"), section.get("allowed_hosts")
        if not mode and isinstance(section.get("allow_internet"), bool):
            mode = "public" if section["allow_internet"] else "no-network"
        listed = sorted(set(map(str, hosts))) if isinstance(hosts, list) else []
        yield f"{mode or _UNSET}+{digest.of_json(listed)[:12]}" if listed else mode or _UNSET


def _changed(patch: bytes) -> str:
    """Digest of what a patch does, without where: its files' names and its `+` and `-` lines."""
    lines = [line.rstrip() for line in _CHANGED.findall(patch)]
    return digest.of_bytes(b"\n".join(lines))[:16] if lines else ""


# Not the lines of blob ids, hunks' heads, and what is kept around a change.
_CHANGED = re.compile(
    rb"^(?:[+-]|rename |copy |literal |delta |[A-Za-z][^ \n]{40}).*$", re.MULTILINE
)


def _word(table: Mapping[str, Any], key: str) -> str:
    """A short text without spaces; empty where something else stands there."""
    value = table.get(key)
    plain = isinstance(value, str) and len(value) <= _LONGEST and not re.search(r"\s", value)
    return str(value) if plain else ""
