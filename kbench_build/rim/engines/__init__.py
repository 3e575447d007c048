"""Container engines: where images are made and jobs run.

Promises: one shape for every engine, so that nothing else in the house knows which it is; nothing
is imported or opened before it is used. A further engine is one file and one line in `ENGINES`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from kbench_build.errors import KbenchError
from kbench_build.model.jobs import Job, JobResult
from kbench_build.model.layers import StoredImage


@dataclass(frozen=True, kw_only=True)
class HeldImage:
    """An image that the engine holds under some tag: its id and its labels.

    `size` is that of all its layers, `digests` are those that registries know it by
    (`name@sha256:…`).
    """

    id: str
    labels: Mapping[str, str]
    size: int = 0
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class About:
    """An engine: its name and version, and the folder in which its images lie.

    `storage` is empty where that folder can't be seen from here: on another machine, or in a
    virtual one.
    """

    name: str
    storage: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildSpec:
    """An image to build.

    `context` maps POSIX paths to files on disk or to bytes; `dockerfile` is one of them.
    `stage_label` (key, value) stands in the Dockerfile at the end of every stage but the last.
    `buildkit` names the line that needs BuildKit, empty where none does. The whole output goes to
    `log`.
    """

    image: str
    context: Mapping[str, Path | bytes]
    dockerfile: str
    labels: Mapping[str, str]
    stage_label: tuple[str, str]
    timeout_sec: float
    log: Path
    buildkit: str = ""
    use_cache: bool = True


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """What came of a build. `failed`: the recipe doesn't build. `engine-error`: the engine failed.

    `output` is the tail of the log, `error` one line.
    """

    status: Literal["built", "failed", "timeout", "engine-error"]
    image_id: str = ""
    size: int = 0
    seconds: float = 0.0
    output: str = ""
    error: str = ""
    notes: tuple[str, ...] = field(default=())


class ContainerEngine(Protocol):
    """What every engine does. Only a missing engine is an exception: `EngineError`, one line."""

    def __call__(self, job: Job) -> JobResult:
        """Run a job in a fresh container; never raises for a failing job."""

    def images(self) -> Mapping[str, HeldImage]:
        """Every tagged image by its tag, in one request."""

    def build(self, spec: BuildSpec) -> BuildResult:
        """Build an image; never raises for a failing build."""

    def read(self, image: str, path: str) -> Iterator[bytes]:
        """A path of an image as a tar stream, without running anything.

        Member names begin with the path's last part; `/` is the whole file system, its names
        without a leading slash. A missing path is a `FileNotFoundError`.
        """

    def workdir(self, image: str) -> str:
        """The folder in which an image's commands run."""

    def layers(self, image: str) -> Sequence[str]:
        """The diff ids of an image's layers, the lowest first. A missing image has none."""

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Images as one archive (`docker save`): every layer once, also what others hide."""

    def sweep(self) -> int:
        """Remove what killed runs of ours left; returns how many containers."""

    def abort(self) -> None:
        """End all jobs of this process, in whatever thread they run."""

    def about(self) -> About:
        """Which engine it is, and where it keeps its images."""

    def stored(self) -> Sequence[StoredImage]:
        """Every image but the builder's steps; takes some milliseconds an image."""

    def discard(self, image: str) -> str:
        """Remove an image by its id, unless something needs it; returns why it can't be."""

    def abandoned(self) -> Sequence[str]:
        """The containers that `sweep` would remove, without removing them."""

    def published(self, image: str) -> str:
        """The digest that a registry has for a tag now. Raises `EngineError`."""


def _docker() -> ContainerEngine:
    from kbench_build.rim.engines.docker import DockerEngine  # noqa: PLC0415 - only when asked for

    return DockerEngine()


ENGINES: dict[str, Callable[[], ContainerEngine]] = {"docker": _docker}


def connect(kind: str) -> ContainerEngine:
    """The engine of this kind. Nothing is opened until it is used."""
    if kind not in ENGINES:
        known = ", ".join(sorted(ENGINES))
        raise KbenchError(f"kbench.toml: engine.kind: {kind!r} isn't one of: {known}")
    return ENGINES[kind]()
