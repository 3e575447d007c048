"""How fast a layer is searched for the fixes of a whole dataset, against hashing its bytes."""

import hashlib
import io
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import blake3

from benchmarks.processes import Usage, interleaved
from benchmarks.rows import Row, speed
from kbench_build.rim import tar_members
from kbench_build.rim.layer_scan import scan_layer
from kbench_build.rim.matcher import Matcher

_TASKS, _MARKS = 105, 60
_PACKED = {".gz", ".zip", ".whl", ".jar", ".xz", ".bz2", ".npz", ".tar", ".jmod", ".deb"}
_A_JAR = 500


def content_scan(repeats: int) -> Iterator[Row]:
    """Files of this system as a layer, Python's own sources as one, and the former in jars."""
    system = dict(_files(Path("/usr"), 256 << 20))
    sources = dict(_files(Path(sysconfig.get_paths()["stdlib"]), 64 << 20))
    matcher = Matcher(_marks())
    matcher.numbers(b"compiled before the clock starts")
    yield from _plain("system files", _tar(system), matcher, repeats)
    yield from _plain("small sources", _tar(sources), matcher, repeats)
    yield _jars(_in_jars(system), sum(map(len, system.values())), matcher, repeats)


def _plain(what: str, layer: bytes, matcher: Matcher, repeats: int) -> Iterator[Row]:
    """A layer searched, against hashing each of its files, and against its bytes in one piece."""
    scan, sha1, b3, stream = interleaved(
        repeats,
        _timed(lambda: scan_layer(memoryview(layer), matcher)),
        _timed(lambda: _hash_files(layer, partial(hashlib.sha1, usedforsecurity=False))),
        _timed(lambda: _hash_files(layer, blake3.blake3)),
        _timed(lambda: blake3.blake3(layer)),
    )
    name, size = f"content scan, {what}", len(layer)
    yardsticks = (("SHA-1", sha1, 0.5), ("BLAKE3", b3, 0.5), ("BLAKE3 in one piece", stream, None))
    for to, theirs, limit in yardsticks:
        yield speed(f"{name} ({to})", 0, scan, theirs, size=size, to=to, limit=limit)


def _hash_files(layer: bytes, hasher: Callable[[memoryview], Any]) -> None:
    """Hash every file of a layer, found as quickly as the search finds it."""
    data = memoryview(layer)
    for _, _, start, size in tar_members.members(data):
        hasher(data[start : start + size]).digest()


def _jars(jars: dict[str, bytes], size: int, matcher: Matcher, repeats: int) -> Row:
    """A layer of jars searched, against unpacking and hashing their members; `size` unpacked."""
    layer = _tar(jars)
    scan, hashed = interleaved(
        repeats,
        _timed(lambda: scan_layer(memoryview(layer), matcher)),
        _timed(lambda: _hash_members(jars.values())),
    )
    to = "zipfile and SHA-1"
    return speed("content scan, jars", 0, scan, hashed, size=size, to=to, limit=0.5)


def _hash_members(jars: Iterable[bytes]) -> None:
    for jar in jars:
        with zipfile.ZipFile(io.BytesIO(jar)) as archive:
            for member in archive.infolist():
                hashlib.sha1(archive.read(member), usedforsecurity=False)


def _files(root: Path, size: int) -> Iterator[tuple[str, bytes]]:
    """A sample of the files below a folder, the same on every run."""
    for path in sorted(root.rglob("*"), key=lambda p: hashlib.sha256(bytes(p)).digest()):
        if path.suffix in _PACKED or path.is_symlink() or not path.is_file():
            continue
        if 0 < path.stat().st_size <= size:
            content = path.read_bytes()
            size -= len(content)
            yield str(path.relative_to("/")), content


def _marks() -> list[bytes]:
    """As many lines as the fixes of a hundred tasks have, none of which stands anywhere."""
    ids = (hashlib.sha256(b"%d" % n).hexdigest() for n in range(_TASKS * _MARKS))
    return [f"val {i[:9]} = {i[9:20]}Of(the, {i[20:28]}, {i[28:36]})".encode() for i in ids]


def _in_jars(files: dict[str, bytes]) -> dict[str, bytes]:
    names = list(files)
    jars = {}
    for at in range(0, len(names), _A_JAR):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as jar:
            for name in names[at : at + _A_JAR]:
                jar.writestr(name, files[name])
        jars[f"usr/share/java/{at}.jar"] = buffer.getvalue()
    return jars


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _timed(work: Callable[[], object]) -> Callable[[], Usage]:
    def run() -> Usage:
        began = time.process_time()
        work()
        return Usage(seconds=time.process_time() - began)

    return run
