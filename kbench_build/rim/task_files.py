"""Lists a folder and reads files of it within limits, however hostile what lies there.

Promises: never follows a link out of the folder, never opens what isn't a regular file, never reads
more than a limit; what can't be read is named, not raised. Leaves to rules which files matter.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kbench_build.errors import KbenchError
from kbench_build.model import FolderEntry
from kbench_build.rim.tree import ignored


def list_folder(folder: Path) -> tuple[FolderEntry, ...]:
    """Every entry below the folder that isn't itself a folder, sorted by path.

    What trees leave out everywhere is left out here. A folder that can't be read is an entry with
    an error.
    """
    return tuple(sorted(_walk(os.fspath(folder)), key=lambda e: os.fsencode(e.path)))


def _walk(folder: str) -> Iterator[FolderEntry]:
    pending = [("", folder)]
    while pending:
        prefix, here = pending.pop()
        try:
            with os.scandir(here) as found:
                items = [item for item in found if not ignored(item.name)]
        except OSError as error:
            reason = error.strerror or str(error)
            yield FolderEntry(path=prefix.rstrip("/") or ".", kind="other", error=reason)
            continue
        for item in items:
            if item.is_dir(follow_symlinks=False):
                pending.append((f"{prefix}{item.name}/", item.path))
            else:
                yield _entry(prefix + item.name, item, folder)


def _entry(path: str, item: "os.DirEntry[str]", folder: str) -> FolderEntry:
    try:
        status = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return _link(path, item.path, folder)
    except OSError as error:
        return FolderEntry(path=path, kind="other", error=error.strerror or str(error))
    regular = stat.S_ISREG(status.st_mode)
    return FolderEntry(
        path=path,
        kind="file" if regular else "other",
        size=status.st_size,
        executable=regular and bool(status.st_mode & 0o111),
    )


def _link(path: str, full: str, folder: str) -> FolderEntry:
    target = os.readlink(full)  # noqa: PTH115 - keeps odd bytes
    inside = not target.startswith("/") and _leads_inside(full, folder)
    return FolderEntry(path=path, kind="link", target=target, inside=inside)


def _leads_inside(link: str, folder: str) -> bool:
    try:
        real = os.path.realpath(link, strict=True)
    except OSError:
        return False
    return real.startswith(os.path.realpath(folder) + os.sep)


def read_whole(path: Path, name: str, most: int) -> bytes:
    """A regular file's content, at most so many bytes. A missing one is a `FileNotFoundError`.

    Whatever else is wrong is a `KbenchError` that begins with `name`.
    """
    content = _read(os.fspath(path), most)
    if isinstance(content, str):
        if not os.path.lexists(path):
            raise FileNotFoundError(path)
        raise KbenchError(f"{name}: {content}")
    return content


def read_text(path: Path, most: int) -> str:
    """A regular file's text; nothing where it can't be read or has more bytes than `most`."""
    content = _read(os.fspath(path), most)
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else ""


def unlinked(path: Path) -> bytes | None:
    """What lies at a place of our own; None for a link, and for what can't be read."""
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def unlinked_text(path: Path) -> str:
    """The same as text, empty where there is none."""
    return (unlinked(path) or b"").decode("utf-8", "replace")


def read_files(
    folder: Path, entries: tuple[FolderEntry, ...], limit: Callable[[str], int | None]
) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """The content of each entry that has a limit, and why the others with a limit weren't read."""
    data: dict[str, bytes] = {}
    reasons: dict[str, str] = {}
    for entry in entries:
        most = limit(entry.path)
        if most is None:
            continue
        if entry.error or entry.kind == "other":
            reasons[entry.path] = entry.error or "is neither a file nor a link"
        elif entry.inside:
            content = _read(os.path.join(folder, entry.path), most)  # noqa: PTH118 - half the cost
            if isinstance(content, bytes):
                data[entry.path] = content
            else:
                reasons[entry.path] = content
    return data, reasons


def _read(path: str, most: int) -> bytes | str:
    """A regular file's content, or why not. Links were looked at before."""
    try:
        # Without O_NONBLOCK a pipe put in the file's place would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _content(descriptor, most)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"can't be read: {error.strerror or error}"


def _content(descriptor: int, most: int) -> bytes | str:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    if status.st_size > most:
        return f"has {status.st_size:,} bytes, more than the {most:,} that it may have"
    # One call reads all but a file that grows meanwhile, which is read up to what it was.
    content = os.read(descriptor, status.st_size)
    while len(content) < status.st_size and (more := os.read(descriptor, status.st_size)):
        content += more
    return content
