"""What the containers of a trial are asked: to hold a checkout, to be prepared, to grade a state.

Promises: nothing runs here; each job has the limits of its environment, and a network only while
it is prepared, where the environment asks for one. Leaves to others when a job runs and what comes
of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbench_build.model.jobs import Job, JobResult, Upload
from kbench_build.rim.engines import tars
from kbench_build.rim.mine_environments import TOOLS, Environment
from kbench_build.rim.shipped_files import shipped_file

# The script that puts a checkout into a container, and makes sure of the tools that grading needs.
PUT = "put_checkout.sh"
_KIT = "/kbench"
_LOOK_SEC = 120.0
# What the verifier may take beside the test command.
_SLACK_SEC = 300.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the verifier runs: an image with the checkout, or one to put it into first."""

    image: str
    command: tuple[str, ...] = ("bash", "/tests/test.sh")
    uploads: tuple[Upload, ...] = ()


def look_job(environment: Environment, image: str) -> Job:
    """Ends with 0 where an image has the tools that grading needs."""
    return Job(
        name=f"mine/{environment.name}/look",
        image=image,
        command=("sh", f"{_KIT}/{PUT}"),
        timeout_sec=_LOOK_SEC,
        uploads=(_kit({}),),
    )


def uploads_of(
    checkout: bytes, copies: Mapping[str, bytes], then: Sequence[str]
) -> tuple[Upload, ...]:
    """The checkout, the shell lines that run in it, and the environment's own files."""
    lines = "".join(f"{line}\n" for line in then).encode("utf-8", "surrogateescape")
    own = [Upload(into=TOOLS, archive=tars.pack(copies))] if copies else []
    return _kit({"then.sh": lines}), Upload(into=f"{_KIT}/checkout", archive=checkout), *own


def unprepared_place(environment: Environment, image: str, uploads: tuple[Upload, ...]) -> Place:
    """An environment's own image; `uploads` put the checkout there and run what comes then."""
    return Place(image=image, command=_put(environment), uploads=uploads)


def prepare_job(
    environment: Environment, *, name: str, image: str, uploads: tuple[Upload, ...]
) -> Job:
    """Makes the image, with the checkout in it, that all states of a candidate begin from."""
    return _job(
        environment,
        name=f"{name}/prepare",
        image=image,
        command=_put(environment),
        timeout_sec=environment.timeout_sec,
        network="public" if environment.network else "none",
        environment=environment.environment,
        uploads=uploads,
        keep=True,
    )


def state_job(
    environment: Environment,
    place: Place,
    *,
    name: str,
    tests: Mapping[str, bytes],
    changes: bytes,
    outputs: tuple[str, ...],
) -> Job:
    """The verifier's run in one state: `tests` as in a task, `changes` (may be none) as a fix."""
    uploads = [Upload(into="/", archive=tars.pack(tests)), *place.uploads]
    if changes:
        uploads.append(Upload(into=f"{_KIT}/changes", archive=changes))
    return _job(
        environment,
        name=name,
        image=place.image,
        command=place.command,
        timeout_sec=environment.timeout_sec + _SLACK_SEC,
        uploads=tuple(uploads),
        outputs=outputs,
    )


def outputs_of(result: JobResult) -> Mapping[str, bytes]:
    """The files that a job left, by their last names. Raises `EngineError` for a bad archive."""
    return {path.rpartition("/")[2]: tars.unpack_one(a) for path, a in result.outputs.items()}


def _job(of: Environment, /, **more: Any) -> Job:
    return Job(workdir="/", cpus=of.cpus, memory_mb=of.memory_mb, disk_mb=of.disk_mb, **more)


def _put(environment: Environment) -> tuple[str, ...]:
    return ("sh", f"{_KIT}/{PUT}", environment.workdir)


def _kit(files: Mapping[str, bytes]) -> Upload:
    return Upload(into=_KIT, archive=tars.pack({PUT: shipped_file(PUT), **files}))
