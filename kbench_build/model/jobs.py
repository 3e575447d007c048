"""What an engine is asked to run in a container, and what comes back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A tar archive to unpack in a container, at the absolute path `into`, before the job runs."""

    into: str
    archive: bytes


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an engine is asked to run: one command in one fresh container of `image`.

    `outputs` are absolute paths fetched after the run, each as a tar archive (a missing one is left
    out). `changes_under` asks which files below that path the run changed, `keep` for an image of
    what a run that ends with 0 leaves. A run that writes more than `disk_mb` is killed within
    seconds. More CPUs than the host has are clamped.
    """

    name: str
    image: str
    command: tuple[str, ...]
    timeout_sec: float
    network: Literal["none", "public"] = "none"
    workdir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    uploads: tuple[Upload, ...] = ()
    outputs: tuple[str, ...] = ()
    changes_under: str | None = None
    keep: bool = False


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a run changed below a folder: a tar archive of new and edited files, and deleted paths.

    Members (files and symbolic links) and paths are relative to the folder; `.git` is no part of
    it. A member may stand where a folder was, or below what was a file.
    """

    archive: bytes
    deleted: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What came back. An engine never raises for a failing job: `status` says how it ended.

    `exited`: the command ended by itself, with `exit_code`. `timeout`: the container was killed at
    the limit. `oom`: it was killed for memory. `disk`: it was killed for what it wrote.
    `engine-error`: the engine failed, see `error`. `image` is the id of the one that was kept.
    `output` is the tail of both streams, `seconds` the command's run time, `notes` what else a
    reader must know: a limit that was clamped, an output too large to keep.
    """

    status: Literal["exited", "timeout", "oom", "disk", "engine-error"]
    exit_code: int | None = None
    seconds: float = 0.0
    output: str = ""
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    changes: Changes | None = None
    error: str = ""
    notes: tuple[str, ...] = ()
    image: str = ""


Engine = Callable[[Job], JobResult]
