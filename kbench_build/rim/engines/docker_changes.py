"""Which files a run changed, seen from outside the container.

The engine compares the container with its image, so nothing that ran inside can hide a change or
invent one. `.git` is left out at every depth.
"""

import io
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from kbench_build.model import Changes
from kbench_build.rim.engines import tars
from kbench_build.rim.engines.docker_api import DockerApi, below

LIMIT_BYTES = 512 << 20
# A request costs an engine as much as some ten megabytes of stream (it mounts the container anew).
_FEW_FILES = 4
_FEW_FOLDERS = 12
_DELETED = 2


class TooLargeError(Exception):
    """The changed files hold more bytes than we take over."""


@dataclass(kw_only=True)
class _Kept:
    """Files fetched so far: members with their bytes, below the limit."""

    members: dict[str, tuple[tarfile.TarInfo, bytes]] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, member: tarfile.TarInfo, content: bytes) -> None:
        self.size += len(content)
        if self.size > LIMIT_BYTES:
            raise TooLargeError
        self.members[name] = (member, content)

    def archive(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, (member, content) in sorted(self.members.items()):
                tar.addfile(_plain(name, member, len(content)), io.BytesIO(content))
        return out.getvalue()


def changes_under(
    api: DockerApi, container: str, pristine: AbstractContextManager[str], folder: str
) -> Changes:
    """What `container` holds below `folder` that its image doesn't.

    `pristine` makes a container of the same image that never ran; it is entered only to look at
    what was deleted. Raises `TooLargeError`.
    """
    listed = dict(_listed(api.client.diff(container) or (), folder))
    parents = {str(parent) for path in listed for parent in PurePosixPath(path).parents}
    kept = _Kept()
    _take(
        api,
        container,
        folder,
        {p for p, kind in listed.items() if kind != _DELETED} - parents,
        kept,
    )
    deleted = [path for path, kind in listed.items() if kind == _DELETED]
    gone: set[str] = set()
    if deleted:
        with pristine as image:
            gone.update(f for path in deleted for f in _files_of(api, image, folder, path))
    return Changes(archive=kept.archive(), deleted=tuple(sorted(gone - set(kept.members))))


def _take(api: DockerApi, container: str, folder: str, leaves: set[str], kept: _Kept) -> None:
    tops = sorted({path.split("/")[0] for path in leaves})
    if len(leaves) > _FEW_FILES:
        for top in tops if len(tops) <= _FEW_FOLDERS else ["."]:
            _take_folder(api, container, f"{folder}/{top}", leaves, kept)
    # A hard link to a file that didn't change has no bytes of its own in a folder's stream.
    for path in sorted(leaves - set(kept.members)):
        _take_file(api, container, folder, path, kept)


def _listed(diff: Iterable[Mapping[str, object]], folder: str) -> Iterator[tuple[str, int]]:
    for entry in diff:
        path = below(str(entry["Path"]), folder)
        if path is not None and not _is_git(path):
            yield path, int(str(entry["Kind"]))


def _is_git(path: str) -> bool:
    return ".git" in path.split("/")


def _take_file(api: DockerApi, container: str, folder: str, path: str, kept: _Kept) -> None:
    with api.archive(container, f"{folder}/{path}") as found:
        if found is None or found.is_folder:
            return
        content = tars.bounded(found.chunks, LIMIT_BYTES)
    if content is None:
        raise TooLargeError
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar:
            _keep(tar, member, path, kept)


def _take_folder(api: DockerApi, container: str, top: str, leaves: set[str], kept: _Kept) -> None:
    with api.archive(container, top) as found:
        if found is None:
            return
        with tarfile.open(fileobj=tars.Reader(found.chunks), mode="r|") as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if name in leaves:
                    _keep(tar, member, name, kept)


def _keep(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, kept: _Kept) -> None:
    if member.issym():
        kept.add(name, member, b"")
    elif member.isreg():
        if member.size > LIMIT_BYTES:
            raise TooLargeError
        file = tar.extractfile(member)
        kept.add(name, member, file.read() if file else b"")


def _plain(name: str, member: tarfile.TarInfo, size: int) -> tarfile.TarInfo:
    """A member with the name, kind, run bit and link of the original and nothing else of it."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.SYMTYPE if member.issym() else tarfile.REGTYPE
    info.linkname = member.linkname if member.issym() else ""
    info.mode = 0o755 if member.mode & 0o111 else 0o644
    info.mtime, info.size = tars.FIXED_DATE, size
    return info


def _files_of(api: DockerApi, pristine: str, folder: str, path: str) -> Iterator[str]:
    """The path if it was a file, all files below it if it was a folder."""
    with api.archive(pristine, f"{folder}/{path}") as found:
        if found is None:
            return
        if not found.is_folder:
            yield path
            return
        parent = PurePosixPath(path).parent
        with tarfile.open(fileobj=tars.Reader(found.chunks), mode="r|") as tar:
            names = [str(parent / member.name) for member in tar if not member.isdir()]
    yield from (name for name in names if not _is_git(name))
