"""What Compose sees in a compose file: its services, the images that they name, and where.

Promises: anchors, merges, tags and several documents count as Compose takes them; a file that
Compose refuses has the reasons in place of services. Leaves to others: `extends` and `include` of
other files, variables that somebody sets, and all that no check asks for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kbench_build.rules.yaml_nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    YamlError,
    documents,
    duplicates,
    line_of,
)

_MERGE = "<<"
_RESET = "!reset"
_TOP = frozenset({"name", "include", "networks", "volumes", "configs", "secrets", "models"})
# A name from a variable, with what Compose takes where nothing sets it.
_DEFAULT = re.compile(r"\$\{\w+:?-([^${}]*)\}")


@dataclass(frozen=True, kw_only=True)
class Service:
    """One service. `image` is empty where it names none; `line` is where it is named.

    `builds`: Compose builds the image, and gives it the name, if there is one.
    """

    name: str
    image: str = ""
    line: int = 0
    builds: bool = False


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why Compose refuses a file, and the line (0: the whole file)."""

    message: str
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class ComposeFile:
    """A compose file: its services, or what keeps Compose from reading it."""

    services: tuple[Service, ...] = ()
    problems: tuple[Problem, ...] = ()


@lru_cache(maxsize=8)
def read_compose(data: bytes) -> ComposeFile:
    """Read a compose file. Never raises."""
    try:
        tops = [*documents(data)]
    except YamlError as error:
        return ComposeFile(problems=(Problem(message=str(error), line=error.line),))
    problems = (*_problems(tops),)
    return ComposeFile(services=() if problems else (*_services(tops),), problems=problems)


def _problems(tops: Sequence[Node]) -> Iterator[Problem]:
    if not tops:
        yield Problem(message="is empty")
    for top in tops:
        if not isinstance(top, MappingNode):
            yield Problem(message="is no mapping", line=line_of(top))
            continue
        yield from (
            Problem(message=f"the key {key.value!r} is there already", line=line_of(key))
            for key in duplicates(top)
        )
        yield from _no_mappings(_entry(top, "services"))
        yield from _services_of_old(top)


def _services_of_old(top: Node) -> Iterator[Problem]:
    """Services at the top of the file, as the first version of the format had them."""
    if _entry(top, "services") is None:
        for name, value in _entries(top):
            known = name in _TOP or name.startswith("x-")
            if not known and any(_entry(value, key) is not None for key in ("image", "build")):
                message = f"the service {name!r} isn't below 'services'"
                yield Problem(message=message, line=line_of(value))


def _no_mappings(services: Node | None) -> Iterator[Problem]:
    if services is None or services.tag == _RESET:
        return
    if not isinstance(services, MappingNode):
        yield Problem(message="'services' is no mapping", line=line_of(services))
        return
    for name, service in _entries(services):
        if not isinstance(service, MappingNode) and service.tag != _RESET:
            yield Problem(message=f"the service {name!r} is no mapping", line=line_of(service))


def _services(tops: Sequence[Node]) -> Iterator[Service]:
    """The services of all documents; what a later one says of a service takes the place."""
    found: dict[str, dict[str, Node]] = {}
    for top in tops:
        services = _entry(top, "services")
        for name, service in _entries(services) if services is not None else ():
            if service.tag == _RESET:
                found.pop(name, None)
                continue
            said = {key: _entry(service, key) for key in ("image", "build")}
            known = found.setdefault(name, {})
            known |= {key: node for key, node in said.items() if node is not None}
    yield from (_service(name, known) for name, known in found.items())


def _service(name: str, known: Mapping[str, Node]) -> Service:
    image, build = known.get("image"), known.get("build")
    builds = build is not None and build.tag != _RESET
    if not isinstance(image, ScalarNode) or image.tag == _RESET:
        return Service(name=name, builds=builds)
    named = _DEFAULT.sub(r"\1", image.value)
    return Service(name=name, image=named, line=line_of(image), builds=builds)


def _entries(node: Node) -> Iterator[tuple[str, Node]]:
    """The entries of a mapping, with those that it merges after its own; each key once."""
    seen: set[str] = set()
    for key, value in _with_merged(node):
        if key not in seen:
            seen.add(key)
            yield key, value


def _entry(node: Node, key: str) -> Node | None:
    return next((value for name, value in _with_merged(node) if name == key), None)


def _with_merged(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node, SequenceNode):
        for each in node.value:
            yield from _with_merged(each)
    if not isinstance(node, MappingNode):
        return
    merged: list[Node] = []
    for key, value in node.value:
        # In quotes it is a key like others.
        if isinstance(key, ScalarNode) and key.value == _MERGE and not key.tag:
            merged.append(value)
        elif isinstance(key, ScalarNode):
            yield key.value, value
    for each in merged:
        yield from _with_merged(each)
