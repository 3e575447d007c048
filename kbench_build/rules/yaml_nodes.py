"""YAML that nobody vouches for, as nodes with their lines, read within bounds.

Promises: whatever the bytes, documents or a `YamlError`, in bounded time and memory. No value is
ever made of a tag; an alias is the node itself, nothing is unfolded, and no node holds itself: one
that walks a document, every alias as often as it stands there, visits no more than `MOST` nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

__all__ = ["LONGEST", "MOST", "MappingNode", "Node", "ScalarNode", "SequenceNode", "YamlError"]

LONGEST = 128 << 10
"""Bytes of the longest file that is read."""

MOST = 100_000
"""Nodes that a file may unfold to. Compose has the same limit."""

_DEEPEST = 100
_STRING = "tag:yaml.org,2002:str"
# Written in C wherever the library comes with it, as on all usual systems.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """No YAML, or more of it than is read. `line` counts from 1; 0: the whole file."""

    def __init__(self, message: str, line: int = 0) -> None:
        """`message` is what a person should read, without the line."""
        super().__init__(message)
        self.line = line


def documents(data: bytes) -> Iterator[Node]:
    """The documents of a file, each as its top node; those without one are left out."""
    if len(data) > LONGEST:
        raise YamlError(f"is longer than {LONGEST >> 10} KiB")
    size = 0
    try:
        under_way = _Document(size)
        for event in yaml.parse(data, Loader=_LOADER):
            if not isinstance(event, events.DocumentEndEvent):
                under_way.take(event)
                continue
            if under_way.top is not None:
                yield under_way.top
            under_way = _Document(under_way.size)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "isn't YAML", mark.line + 1 if mark else 0) from error
    except yaml.YAMLError as error:
        raise YamlError(str(error).partition("\n")[0]) from error


@dataclass(kw_only=True)
class _Open:
    """A list or mapping whose end hasn't come yet; `before` is the size of all before it."""

    node: Node
    anchor: str | None
    before: int
    parts: list[Node] = field(default_factory=list)


class _Document:
    """A document under way. The library's own would refuse an anchor that is given anew."""

    def __init__(self, size: int) -> None:
        self.top: Node | None = None
        self.size = size
        self._open: list[_Open] = []
        self._known: dict[str, tuple[Node, int]] = {}

    def take(self, event: Any) -> None:
        begins, ends = event.start_mark, event.end_mark
        match event:
            case events.AliasEvent():
                self._repeat(event)
            case events.ScalarEvent():
                # What is in quotes is text, whatever it looks like.
                tag = event.tag or (_STRING if event.style else "")
                node = ScalarNode(tag, event.value, begins, ends)
                self._name(event.anchor, node, 1)
                self._add(node, 1)
            case events.MappingStartEvent() | events.SequenceStartEvent():
                self._begin(event)
            case events.MappingEndEvent() | events.SequenceEndEvent():
                self._end()

    def _repeat(self, event: Any) -> None:
        node, size = self._known.get(event.anchor, (None, 0))
        if node is None or not size:
            why = "holds itself" if node else "isn't there"
            raise YamlError(f"the anchor {event.anchor!r} {why}", event.start_mark.line + 1)
        self._add(node, size)

    def _begin(self, event: Any) -> None:
        kind = MappingNode if isinstance(event, events.MappingStartEvent) else SequenceNode
        node = kind(event.tag or "", [], event.start_mark, event.end_mark)
        self._name(event.anchor, node, 0)
        self._open.append(_Open(node=node, anchor=event.anchor, before=self.size))
        if len(self._open) > _DEEPEST:
            raise YamlError(f"is nested more than {_DEEPEST} deep", line_of(node))

    def _end(self) -> None:
        ended = self._open.pop()
        parts = ended.parts
        pairs = isinstance(ended.node, MappingNode)
        ended.node.value = [*zip(parts[::2], parts[1::2], strict=True)] if pairs else parts
        size = self.size - ended.before + 1
        if ended.anchor is not None and self._known[ended.anchor][0] is ended.node:
            self._name(ended.anchor, ended.node, size)
        self._add(ended.node, 1)

    def _name(self, anchor: str | None, node: Node, size: int) -> None:
        """What an anchor stands for from here on; the size is 0 until its end has come."""
        if anchor is not None:
            self._known[anchor] = (node, size)

    def _add(self, node: Node, size: int) -> None:
        self.size += size
        if self.size > MOST:
            raise YamlError(f"unfolds to more than {MOST:,} values", line_of(node))
        if self._open:
            self._open[-1].parts.append(node)
        else:
            self.top = node


def line_of(node: Node) -> int:
    """The line in which a node begins, counted from 1."""
    return int(node.start_mark.line) + 1


def duplicates(top: Node) -> Iterator[Node]:
    """The keys that a mapping below a node has already, each where it stands again."""
    seen: set[int] = set()
    left = [top]
    while left:
        node = left.pop()
        if id(node) in seen or isinstance(node, ScalarNode):
            continue
        seen.add(id(node))
        pairs = node.value if isinstance(node, MappingNode) else [(None, v) for v in node.value]
        left += [each for pair in pairs for each in pair if each is not None]
        keys: set[str] = set()
        for key, _ in pairs:
            if isinstance(key, ScalarNode):
                if key.value in keys:
                    yield key
                keys.add(key.value)
