"""The files of a dataset: where they stand, and reading them with errors that name the place."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.config import Config, load_config
from kbench_build.rim.task_files import read_whole
from kbench_build.rim.toml import read_toml
from kbench_build.rim.tree import ignored

TASKS = "tasks"
BASES = "bases"
_LARGEST_FIX = 64 << 20
_LARGEST_MANIFEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset as its folder shows it: the root, its configuration and the ids of its tasks.

    `manifest` is the text of `bases/manifest`, empty where there is none.
    """

    root: Path
    config: Config
    tasks: tuple[str, ...]
    manifest: str


def open_dataset(root: Path) -> Dataset:
    """Look at the folder. It must hold `tasks/`; everything else may be missing."""
    try:
        with os.scandir(root / TASKS) as found:
            tasks = sorted(e.name for e in found if e.is_dir() and not ignored(e.name))
    except FileNotFoundError:
        raise KbenchError(
            f"{root}: no folder {TASKS}/ here: run in the root of a dataset"
        ) from None
    except OSError as error:
        raise KbenchError(f"{root / TASKS}: can't be read: {error.strerror}") from error
    return Dataset(
        root=root, config=load_config(root), tasks=tuple(tasks), manifest=read_manifest(root)
    )


def read_manifest(root: Path) -> str:
    """The text of `bases/manifest`, empty where there is none."""
    path = root / BASES / "manifest"
    try:
        # Its own line ends are kept: the rules look at them.
        return read_whole(path, f"{BASES}/manifest", _LARGEST_MANIFEST).decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise KbenchError(f"{BASES}/manifest: byte {error.start} isn't UTF-8") from error


def read_task_toml(root: Path, task: str) -> dict[str, Any]:
    """A task's `task.toml`. Raises `KbenchError` with the file, and the line and column."""
    name = f"{TASKS}/{task}/task.toml"
    try:
        return read_toml(root / name, name)
    except FileNotFoundError:
        raise KbenchError(f"{name}: is missing") from None


def read_fix(root: Path, task: str) -> bytes:
    """A task's gold patch; empty where there is none of usual size that can be read."""
    path = root / TASKS / task / "solution" / "fix.patch"
    try:
        status = path.lstat()
        usual = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FIX
        return path.read_bytes() if usual else b""
    except OSError:
        return b""
