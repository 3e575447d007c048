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

from kbench_build.model.jobs import Changes
from kbench_build.rim.engines import tars
from kbench_build.rim.engines.docker_api import DockerApi, below

LIMIT_BYTES = 512 << 20
# A request costs an engine as much as some ten megabytes of stream (it mounts the container anew).
_MOST_REQUESTS = 4
_DELETED = 2


class TooLargeError(Exception):
    """The changed files hold more bytes than we take over."""


@dataclass(kw_only=True)
class _Collector:
    """The changed files of a container's folder: `leaves` by path below it, and those fetched."""

    api: DockerApi
    container: str
    folder: str
    leaves: set[str]
    members: dict[str, tuple[tarfile.TarInfo, bytes]] = field(default_factory=dict)
    size: int = 0

    def collect(self) -> None:
        """Fetch every leaf."""
        for place in places(self.leaves):
            self._take(place)
        # A hard link to a file that didn't change has no bytes of its own in a folder's stream.
        for path in sorted(self.leaves - set(self.members)):
            self._take(path)

    def archive(self) -> bytes:
        """What was fetched as a tar."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, (member, content) in sorted(self.members.items()):
                tar.addfile(_plain(name, member, len(content)), io.BytesIO(content))
        return out.getvalue()

    def _take(self, place: str) -> None:
        with self.api.archive(self.container, f"{self.folder}/{place}") as found:
            # A leaf that is a folder is empty, or only its mode changed: no file changed.
            if found is None or (found.is_folder and place in self.leaves):
                return
            with tarfile.open(fileobj=tars.Reader(found.chunks), mode="r|") as tar:
                for member in tar:
                    name = posixpath.normpath(posixpath.join(_parent(place), member.name))
                    if name in self.leaves:
                        self._keep(tar, member, name)

    def _keep(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        self.size += member.size if member.isreg() else 0
        if self.size > LIMIT_BYTES:
            raise TooLargeError
        file = tar.extractfile(member) if member.isreg() else None
        if file or member.issym():
            self.members[name] = (member, file.read() if file else b"")


def changes_under(
    api: DockerApi, container: str, pristine: AbstractContextManager[str], folder: str
) -> Changes:
    """What `container` holds below `folder` that its image doesn't.

    `pristine` makes a container of the same image that never ran; it is entered only to look at
    what was deleted. Raises `TooLargeError`.
    """
    listed = dict(_listed(api.client.diff(container) or (), folder))
    parents = {str(parent) for path in listed for parent in PurePosixPath(path).parents}
    leaves = {path for path, kind in listed.items() if kind != _DELETED} - parents
    collector = _Collector(api=api, container=container, folder=folder, leaves=leaves)
    collector.collect()
    deleted = [path for path, kind in listed.items() if kind == _DELETED]
    gone: set[str] = set()
    if deleted:
        with pristine as image:
            gone.update(f for path in deleted for f in _files_of(api, image, folder, path))
    return Changes(
        archive=collector.archive(), deleted=tuple(sorted(gone - set(collector.members)))
    )


def places(leaves: set[str]) -> list[str]:
    """Few files and folders that hold all the leaves: the deepest are given up for their parents.

    `.` is the whole folder.
    """
    found = set(leaves)
    while len(found) > _MOST_REQUESTS:
        deepest = max(path.count("/") for path in found)
        parents = {_parent(path) if path.count("/") == deepest else path for path in found}
        found = {"."} if "." in parents else {p for p in parents if not _is_below(p, parents)}
    return sorted(found)


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _is_below(path: str, folders: set[str]) -> bool:
    return any(str(parent) in folders for parent in PurePosixPath(path).parents)


def _listed(diff: Iterable[Mapping[str, object]], folder: str) -> Iterator[tuple[str, int]]:
    for entry in diff:
        path = below(str(entry["Path"]), folder)
        if path is not None and not _is_git(path):
            yield path, int(str(entry["Kind"]))


def _is_git(path: str) -> bool:
    return ".git" in path.split("/")


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
