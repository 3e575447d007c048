"""Images in an engine's store, and what is found in their layers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of an image, with all that lies below it: images that share it name it alike."""

    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the engine's store, tagged or not; `created` is in seconds since 1970.

    `layers` begin with the lowest. `in_use`: a container stands on it, whether it runs or not.
    """

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    created: float
    layers: tuple[Layer, ...]
    in_use: bool


@dataclass(frozen=True, kw_only=True)
class KeptLayer:
    """What is kept on disk of one layer that was searched; `name` is its diff id.

    `files` are the names of the files that keep it, `size` their bytes on disk, `written` when the
    newest was, in seconds since 1970. `name` is empty for files that nothing reads any more: those
    of an earlier version, and those that a killed run left half written.
    """

    name: str
    files: tuple[str, ...]
    size: int
    written: float


@dataclass(frozen=True, kw_only=True)
class GitTrace:
    """Something of git among an image layer's files.

    `repository`: a folder or file called `.git`, or a bare repository. `objects`: loose objects, or
    a pack with its index, whose `ids` are known. `pack`, `bundle`: such a file alone.
    """

    place: str
    kind: Literal["repository", "objects", "pack", "bundle"]
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """How many things weren't read for one reason, and where some of them are."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LayerHit:
    """A file of a layer, and the numbers of the texts that it holds.

    A file inside an archive is `archive!file`.
    """

    place: str
    numbers: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class LayerFound:
    """What was found in one image layer, by its diff id.

    `files` and `size` (bytes) count what stands in the layer itself, `members` and `unpacked` what
    its archives hold. `left_out` says by reason what wasn't read.
    """

    layer: str
    files: int
    size: int
    members: int
    unpacked: int
    hits: tuple[LayerHit, ...] = ()
    git: tuple[GitTrace, ...] = ()
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
