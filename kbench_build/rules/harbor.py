"""Harbor's own digests and names, computed as Harbor 0.26 does.

A task's digest covers `task.toml instruction.md README.md trajectory.json` and everything below
`environment solution steps tests`, without what its root `.gitignore` names (or, where there is
none, Python and editor leftovers) and without what `.harborignore` files name below `tests/` and
`solution/`. SHA-256 over `path NUL sha256 LF`, sorted by path. Modes aren't covered; a link counts
as the file that it points to.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec, PathSpec, Pattern

SINGLE_FILES = frozenset({"task.toml", "instruction.md", "README.md", "trajectory.json"})
FOLDERS = frozenset({"environment", "solution", "steps", "tests"})
GITIGNORE = ".gitignore"
HARBORIGNORE = ".harborignore"

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_LEFTOVER = re.compile(r"__pycache__|.*\.pyc|\.DS_Store|.*\.sw[po]|.*~", re.DOTALL)
_IGNORE_SCOPE = re.compile(r"(?:steps/[^/]+/)?(?:tests|solution)(?:/|$)")
_MOST_LINKS = 40


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file of a task as Harbor sees it: its SHA-256, or the target of a link."""

    sha256: str = ""
    link: str | None = None


def content_of(mode: str, sha256: str, data: bytes | None) -> Content:
    """A file with git's mode and its SHA-256; `data` is a link's target."""
    if mode == "120000":
        return Content(link=os.fsdecode(data or b""))
    return Content(sha256=sha256)


def is_name(name: object) -> bool:
    """Whether Harbor takes this as the name of a task or a dataset: `organisation/name`."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and ".." not in name


def is_ignore_file(path: str) -> bool:
    """Whether a file of a task says what Harbor leaves out of the digest."""
    return path == GITIGNORE or posixpath.basename(path) == HARBORIGNORE


def task_digest(files: Mapping[str, Content], ignore_files: Mapping[str, str]) -> str:
    """Harbor's digest of a task, as `sha256:<hex>`.

    `files` are all files by path in the task, `ignore_files` the texts of its `.gitignore` and
    `.harborignore` files by path.
    """
    digest = hashlib.sha256()
    for path in sorted(_selected(files, ignore_files)):
        content = _followed(files, path)
        if content:
            digest.update(f"{path}\0{content.sha256}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{digest.hexdigest()}"


def dataset_digest(tasks: Iterable[str], files: Mapping[str, str]) -> str:
    """Harbor's digest of a dataset, from its tasks' digests and its own files' by name."""
    text = ",".join(sorted(task.removeprefix("sha256:") for task in tasks))
    if files:
        listed = (f"{name}:{value.removeprefix('sha256:')}" for name, value in files.items())
        text += ";" + ",".join(sorted(listed))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _selected(files: Mapping[str, Content], ignore_files: Mapping[str, str]) -> Iterator[str]:
    ignored = _GitIgnore(ignore_files.get(GITIGNORE))
    harbor_ignored = _HarborIgnore(files, ignore_files)
    for path in files:
        top, _, rest = path.partition("/")
        if path in SINGLE_FILES:
            counts = True
        else:
            counts = bool(rest) and top in FOLDERS and not harbor_ignored.matches(path)
        if counts and not ignored.matches(path):
            yield path


def _followed(files: Mapping[str, Content], path: str) -> Content | None:
    """The file that a path leads to; None for a link to a folder, to nothing, or to outside."""
    for _ in range(_MOST_LINKS):
        content = files.get(path)
        if content is None or content.link is None:
            return content
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), content.link))
    return None


class _GitIgnore:
    """The root `.gitignore` of a task, or Harbor's own list where there is none."""

    def __init__(self, text: str | None) -> None:
        self._spec: PathSpec[Pattern] | None = None
        if text is not None:
            self._spec = _path_spec(text.splitlines())

    def matches(self, path: str) -> bool:
        if self._spec is not None:
            return bool(self._spec.match_file(path))
        return any(_LEFTOVER.fullmatch(part) for part in path.split("/"))


def _path_spec(lines: list[str]) -> "PathSpec[Pattern]":
    from pathspec import PathSpec  # noqa: PLC0415 - few tasks need it

    return PathSpec.from_lines("gitignore", lines)


def _git_ignore_spec(lines: list[str]) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - few tasks need it

    return GitIgnoreSpec.from_lines(lines)


class _HarborIgnore:
    """The `.harborignore` files below `tests/` and `solution/`."""

    def __init__(self, files: Mapping[str, Content], texts: Mapping[str, str]) -> None:
        self._files = files
        self._specs: dict[str, GitIgnoreSpec] = {}
        for path, text in texts.items():
            folder, name = posixpath.split(path)
            if name == HARBORIGNORE and _IGNORE_SCOPE.match(folder):
                self._specs[folder] = _git_ignore_spec(text.splitlines())

    def matches(self, path: str) -> bool:
        """Whether the path is left out, or is a link to a path that is."""
        if self._leaves_out(path):
            return True
        content = self._files.get(path)
        if not self._specs or content is None or content.link is None:
            return False
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), content.link))
        return self._leaves_out(target)

    def _leaves_out(self, path: str) -> bool:
        parts = path.split("/")
        if parts[-1] == HARBORIGNORE:
            return True
        return any(
            self._excludes("/".join(parts[:end]), is_folder=end < len(parts))
            for end in range(1, len(parts) + 1)
        )

    def _excludes(self, path: str, *, is_folder: bool) -> bool:
        """Whether the rules of the folders above a path exclude it; the deepest rule decides."""
        if not _IGNORE_SCOPE.match(path):
            return False
        excluded = False
        for folder in sorted(f for f in self._specs if path.startswith(f"{f}/")):
            relative = path[len(folder) + 1 :] + ("/" if is_folder else "")
            include = self._specs[folder].check_file(relative).include
            excluded = excluded if include is None else include
        return excluded
