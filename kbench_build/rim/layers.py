"""What image layers hold, read once for all tasks that stand on them, and kept under `.kbench/`.

Promises: a layer is known by the digest of its content, computed here from what the engine gave;
what was found for a set of texts is kept by layer and by the texts' digest, each file whole, so
that a killed run loses at most the layer in flight; two processes never read at the same time.
Memory is bounded: a layer lies in a file without a name, which goes with the process.
"""

import fcntl
import hashlib
import json
import mmap
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

import zstandard

from kbench_build.errors import EngineError, KbenchError
from kbench_build.model.layers import GitTrace, KeptLayer, LayerFound, LayerHit, LeftOut
from kbench_build.rim import streams
from kbench_build.rim.engines.tars import Reader
from kbench_build.rim.layer_scan import LayerContents, scan_layer
from kbench_build.rim.matcher import Matcher
from kbench_build.rim.store import STATE, write_whole
from kbench_build.rim.zip_members import UnreadError

SCAN_VERSION = 1
"""Raised with every change of what is looked for in a layer."""

_AT_ONCE = 24
_PIECE = 1 << 20
_DIGEST_BYTES = 16
_MOST_HITS = 5_000
# A file here, or the temporary one that it is written as.
_KEPT = re.compile(r"(\.?)([0-9a-f]{64})\.v(\d+)\.(?:contents|[0-9a-f]{1,32}\.hits)\.zst(\..*)?")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is looked for in the layers of one image.

    `digest` names the texts. `short` are the numbers of those that count in small files alone.
    """

    image: str
    digest: str
    texts: tuple[bytes, ...]
    short: frozenset[int] = frozenset()


class LayerSource(Protocol):
    """What is asked of an engine."""

    def layers(self, image: str) -> Sequence[str]:
        """The diff ids of an image's layers, the lowest first."""
        ...

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Images as one archive, each layer once."""
        ...


def read_layers(
    root: Path, engine: LayerSource, mine: Wanted, others: Iterable[Callable[[], Wanted]] = ()
) -> tuple[LayerFound, ...]:
    """What the layers of an image hold, the lowest first.

    A layer that has to be read is searched for what `others` want in it as well (they are asked
    only then), and layers of images that stand on the same are read along. Raises `EngineError`.
    """
    store = LayerStore(root)
    layers = engine.layers(mine.image)
    if any(not store.has(layer, mine.digest) for layer in layers):
        with store.held():
            # Another process may have read them meanwhile.
            if any(not store.has(layer, mine.digest) for layer in layers):
                _read(store, engine, mine, [other() for other in others])
    return tuple(store.found(layer, mine.digest) for layer in layers)


def _read(store: "LayerStore", engine: LayerSource, mine: Wanted, others: Sequence[Wanted]) -> None:
    seekers = {s.image: s for s in (mine, *others)}.values()
    stand_on = {s.image: tuple(dict.fromkeys(engine.layers(s.image))) for s in seekers}
    own = set(stand_on[mine.image])
    shared = {s.image: len(own & set(stand_on[s.image])) for s in seekers}
    missing: dict[str, list[Wanted]] = {}
    for seeker in seekers:
        for layer in stand_on[seeker.image]:
            if not store.has(layer, seeker.digest):
                missing.setdefault(layer, []).append(seeker)
    lacking = [s for s in seekers if any(layer in missing for layer in stand_on[s.image])]
    along = sorted(lacking, key=lambda s: (s is not mine, -shared[s.image]))[:_AT_ONCE]
    together = [s for s in along if s is mine or shared[s.image]]
    wanted = {
        layer: missing[layer] for s in together for layer in stand_on[s.image] if layer in missing
    }
    left = set(wanted)
    for layer, data in saved_layers(engine.save([s.image for s in together]), left, store.folder):
        _scan(store, layer, data, wanted[layer])
        left.discard(layer)
    if left:
        raise EngineError(f"the engine gave an image without its layer {min(left)}")


def _scan(store: "LayerStore", layer: str, data: memoryview, seekers: Sequence[Wanted]) -> None:
    """Search a layer for the texts of all at once, and keep what each of them is told."""
    texts = tuple(dict.fromkeys(text for seeker in seekers for text in seeker.texts))
    numbers = {text: number for number, text in enumerate(texts)}
    short = {numbers[s.texts[n]] for s in seekers for n in s.short}
    long = {numbers[t] for s in seekers for n, t in enumerate(s.texts) if n not in s.short}
    contents = scan_layer(data, Matcher(texts), short=frozenset(short - long))
    store.keep(layer, contents)
    for seeker in {s.digest: s for s in seekers}.values():
        mine = {numbers[text]: number for number, text in enumerate(seeker.texts)}
        hits = {
            place: sorted(mine[n] for n in found if n in mine)
            for place, found in contents.hits.items()
            if not found.isdisjoint(mine)
        }
        store.keep_hits(layer, seeker.digest, hits)


class LayerStore:
    """`.kbench/layers/`: what each layer holds, and what was found in it for whom."""

    def __init__(self, root: Path) -> None:
        """Touches nothing; `root` is the dataset's."""
        self.folder = root / STATE / "layers"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait until no other process reads layers, and keep others waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def has(self, layer: str, texts: str) -> bool:
        """Whether a layer was read for these texts."""
        return self._hits(layer, texts).is_file() and self._contents(layer).is_file()

    def keep(self, layer: str, contents: LayerContents) -> None:
        """Keep what a layer holds, whatever is sought in it."""
        head = {
            "files": contents.files,
            "size": contents.size,
            "members": contents.members,
            "unpacked": contents.unpacked,
            "left_out": {k: [v.count, v.examples] for k, v in contents.left_out.items()},
            "git": [[g.place, g.kind, sorted(g.ids)] for g in contents.git],
            "contents": len(contents.places),
        }
        line = json.dumps(head).encode("ascii")
        body = b"".join([line, b"\n", contents.digests, b"\0".join(contents.places)])
        write_whole(self._contents(layer), zstandard.compress(body, 3))

    def keep_hits(self, layer: str, texts: str, hits: Mapping[bytes, Sequence[int]]) -> None:
        """Keep where some texts stand; those with the most, where there are very many."""
        fullest = sorted(hits.items(), key=lambda hit: (-len(hit[1]), hit[0]))[:_MOST_HITS]
        value = [[p.decode("utf-8", "surrogateescape"), numbers] for p, numbers in sorted(fullest)]
        data = json.dumps({"hits": value, "more": len(hits) - len(fullest)}).encode("ascii")
        write_whole(self._hits(layer, texts), zstandard.compress(data, 3))

    def found(self, layer: str, texts: str) -> LayerFound:
        """What is known of a layer. Raises `KbenchError` where a file was damaged."""
        head, _ = self._read(layer)
        try:
            hits = json.loads(zstandard.decompress(self._hits(layer, texts).read_bytes()))
            left_out = {
                k: LeftOut(count=v[0], examples=tuple(v[1])) for k, v in head["left_out"].items()
            }
            if hits["more"]:
                left_out["files with the fewest matches"] = LeftOut(count=hits["more"], examples=())
            return LayerFound(
                layer=layer,
                files=head["files"],
                size=head["size"],
                members=head["members"],
                unpacked=head["unpacked"],
                hits=tuple(LayerHit(place=p, numbers=frozenset(n)) for p, n in hits["hits"]),
                git=tuple(GitTrace(place=p, kind=k, ids=frozenset(i)) for p, k, i in head["git"]),
                left_out=left_out,
            )
        except (OSError, ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
            raise self._damaged(layer) from error

    def places_of(self, layer: str, digests: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
        """Where files with these content digests stand in a layer."""
        head, body = self._read(layer)
        known = body[: head["contents"] * _DIGEST_BYTES]
        places: list[bytes] = []
        for digest in digests:
            at = known.find(digest)
            while at >= 0:
                if at % _DIGEST_BYTES == 0:
                    places = places or body[len(known) :].split(b"\0")
                    yield digest, places[at // _DIGEST_BYTES].decode("utf-8", "surrogateescape")
                at = known.find(digest, at + 1)

    def kept(self) -> list[KeptLayer]:
        """What is kept, by layer; files with other names than we give aren't looked at."""
        found: dict[str, list[os.DirEntry[str]]] = {}
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                name = _KEPT.fullmatch(entry.name)
                if name and entry.is_file(follow_symlinks=False):
                    whole = not name[1] and not name[4] and int(name[3]) == SCAN_VERSION
                    found.setdefault(f"sha256:{name[2]}" if whole else "", []).append(entry)
        return [_kept(layer, files) for layer, files in sorted(found.items())]

    def forget(self, kept: KeptLayer) -> None:
        """Remove what is kept of a layer. Raises `KbenchError` where the disk doesn't let us."""
        for name in kept.files:
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError as error:
                message = f"{self.folder / name}: can't be removed: {error.strerror}"
                raise KbenchError(message) from error

    def _read(self, layer: str) -> tuple[dict[str, Any], bytes]:
        try:
            whole = zstandard.decompress(self._contents(layer).read_bytes())
            line, _, body = whole.partition(b"\n")
            return json.loads(line), body
        except (OSError, ValueError, zstandard.ZstdError) as error:
            raise self._damaged(layer) from error

    def _damaged(self, layer: str) -> KbenchError:
        return KbenchError(f"{self._contents(layer)}: can't be read; remove {self.folder}")

    def _contents(self, layer: str) -> Path:
        return self.folder / f"{_name(layer)}.contents.zst"

    def _hits(self, layer: str, texts: str) -> Path:
        return self.folder / f"{_name(layer)}.{texts[:32]}.hits.zst"


def _kept(layer: str, files: Sequence[os.DirEntry[str]]) -> KeptLayer:
    about = [file.stat(follow_symlinks=False) for file in files]
    return KeptLayer(
        name=layer,
        files=tuple(sorted(file.name for file in files)),
        size=sum(each.st_blocks * 512 for each in about),
        written=max(each.st_mtime for each in about),
    )


def saved_layers(
    chunks: Iterable[bytes], wanted: set[str], scratch: Path
) -> Iterator[tuple[str, memoryview]]:
    """The layers of a saved image that are wanted, by diff id, as the archive brings them.

    Serves the archives of all engines: Docker's own form, where a layer is called `layer.tar`, and
    the OCI layout, whose blobs may be compressed. Raises `EngineError`.
    """
    reader = cast(IO[bytes], Reader(chunks))
    try:
        with tarfile.open(fileobj=reader, mode="r|", bufsize=_PIECE) as archive:
            for member in archive:
                content = archive.extractfile(member) if _may_be_layer(member) else None
                if content is not None:
                    with _spooled(_pieces(content), scratch) as found:
                        yield from _as_layer(found, wanted, scratch)
    except (tarfile.TarError, EOFError) as error:
        raise EngineError(f"the engine gave an image that can't be read: {error}") from error


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    while piece := content.read(_PIECE):
        yield piece


def _may_be_layer(member: tarfile.TarInfo) -> bool:
    return member.isreg() and (
        member.name.endswith("layer.tar") or member.name.startswith("blobs/")
    )


def _as_layer(
    found: "_Spooled", wanted: set[str], scratch: Path
) -> Iterator[tuple[str, memoryview]]:
    """The layer as it is, or unpacked; nothing where it isn't wanted, or isn't a layer."""
    kind = streams.kind_of(bytes(found.data[:4]))
    if found.diff_id in wanted:
        yield found.diff_id, found.data
    elif kind:
        try:
            with _spooled(streams.pieces(kind, found.data), scratch) as unpacked:
                if unpacked.diff_id in wanted:
                    yield unpacked.diff_id, unpacked.data
        except UnreadError as error:
            raise EngineError(f"the engine gave a layer that can't be read: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Spooled:
    diff_id: str
    data: memoryview


@contextmanager
def _spooled(pieces: Iterator[bytes], scratch: Path) -> Iterator[_Spooled]:
    """Bytes in a file without a name, to be looked at as memory, with their digest."""
    running = hashlib.sha256()
    with tempfile.TemporaryFile(dir=scratch) as file:
        for piece in pieces:
            running.update(piece)
            file.write(piece)
        file.flush()
        diff_id = f"sha256:{running.hexdigest()}"
        if not file.tell():
            yield _Spooled(diff_id=diff_id, data=memoryview(b""))
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            yield _Spooled(diff_id=diff_id, data=data)


def _name(layer: str) -> str:
    algorithm, _, digits = layer.partition(":")
    if algorithm != "sha256" or len(digits) != 64 or digits.strip("0123456789abcdef"):
        raise EngineError(f"the engine names a layer that isn't one: {layer[:100]!r}")
    return f"{digits}.v{SCAN_VERSION}"
