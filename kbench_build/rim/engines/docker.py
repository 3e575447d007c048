"""The Docker engine, or any engine that speaks its language (Podman's socket does).

Promises: a job runs without privileges, under its limits and its network mode, and leaves no
container, whether it ends, is killed at its time limit or is interrupted; what a job or a build
does wrong is a result, never an exception. Only what carries our label is ever removed. The docker
SDK is imported when a container or a build is needed, not for the list of images.
"""

import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbench_build.errors import EngineError
from kbench_build.model.jobs import Changes, Job, JobResult
from kbench_build.model.layers import StoredImage
from kbench_build.rim.engines import About, BuildResult, BuildSpec, HeldImage
from kbench_build.rim.engines.address import engine_address, list_images
from kbench_build.rim.process import is_alive

if TYPE_CHECKING:
    from kbench_build.rim.engines.docker_api import DockerApi

LABEL_JOB = "dev.kbench.job"
LABEL_OWNER = "dev.kbench.owner"
KEPT = "kbench-kept"
OUTPUT_TAIL_BYTES = 64 << 10
OUTPUT_LIMIT_BYTES = 256 << 20

# What Podman puts before the name of an image that was made here.
_PODMAN_HOST = "localhost/"
_UNTAGGED = "<none>:<none>"
_PIDS = 4096
# What a build or a test never needs of Docker's default set.
_DROPPED = ["AUDIT_WRITE", "MKNOD", "NET_RAW", "SETFCAP", "SETPCAP"]
# The log lies on the engine's disk, and a job may print for as long as it likes.
_LOG = {"type": "json-file", "config": {"max-size": "8m", "max-file": "2"}}
_LOG_LINES = 5000
_KILL_SEC = 60
# How often a run with a disk limit is looked at; each time the engine counts what it wrote.
_LOOK_SEC = 2.0
_CANNOT_START = (126, 127)
_NO_PROGRAM = "executable file"


class DockerEngine:
    """An engine at an address; by default the one that `engine_address` finds."""

    def __init__(self, address: str | None = None) -> None:
        """Opens nothing."""
        self._address = address

    def __call__(self, job: Job) -> JobResult:
        """Run a job in a fresh container; never raises for a failing job or engine."""
        from kbench_build.rim.engines.docker_api import (  # noqa: PLC0415 - imports the SDK
            FAILURES,
            sentence,
        )

        try:
            with self._container(job.image, **self._wishes(job)) as name:
                return self._run(job, name)
        except (*FAILURES, EngineError) as error:
            return JobResult(status="engine-error", error=sentence(error))

    def images(self) -> Mapping[str, HeldImage]:
        """Every tagged image by its tag, in one request."""
        if self.address.startswith("unix://"):
            listed = list_images(self.address.removeprefix("unix://"))
        else:
            listed = self._api.client.images()
        return {
            tag.removeprefix(_PODMAN_HOST): HeldImage(
                id=image["Id"],
                labels=image.get("Labels") or {},
                size=image.get("Size") or 0,
                digests=tuple(image.get("RepoDigests") or ()),
            )
            for image in listed
            for tag in image.get("RepoTags") or ()
            if tag != _UNTAGGED
        }

    def build(self, spec: BuildSpec) -> BuildResult:
        """Build an image; never raises for a failing build."""
        from kbench_build.rim.engines.docker_build import build  # noqa: PLC0415 - imports the SDK

        return build(self._api, spec)

    def read(self, image: str, path: str) -> Iterator[bytes]:
        """A path of an image as a tar stream, without running anything."""
        with self._container(image) as name:
            if path == "/":
                yield from self._api.client.export(name)
                return
            with self._api.archive(name, path) as found:
                if found is None:
                    raise FileNotFoundError(f"{path} isn't in the image {image}")
                yield from found.chunks

    def workdir(self, image: str) -> str:
        """The folder in which an image's commands run."""
        return str(self._api.client.inspect_image(image)["Config"].get("WorkingDir") or "/")

    def layers(self, image: str) -> Sequence[str]:
        """The diff ids of an image's layers, the lowest first. A missing image has none."""
        import docker.errors  # noqa: PLC0415 - loaded already, by the connection

        try:
            described = self._api.client.inspect_image(image)
        except docker.errors.ImageNotFound:
            return ()
        return tuple(described["RootFS"].get("Layers") or ())

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Images as one archive: every layer once, also what others hide."""
        with self._api.saved(images) as chunks:
            yield from chunks

    def sweep(self) -> int:
        """Remove the containers and kept images that killed runs of ours on this machine left."""
        return _sweep(self._connected)

    def abort(self) -> None:
        """End all jobs of this process, in whatever thread they run."""
        for container in _ours(self._connected):
            if container["Labels"][LABEL_OWNER] == _owner():
                _remove(self._connected, container["Id"], patience=0.0)

    def abandoned(self) -> Sequence[str]:
        """The containers that `sweep` would remove, without removing them."""
        return [c["Names"][0].lstrip("/") for c in _left(self._connected)]

    def about(self) -> About:
        """Which engine it is, and where it keeps its images. Asked once."""
        return self._about

    def stored(self) -> Sequence[StoredImage]:
        """Every image but the builder's steps; takes some milliseconds an image."""
        from kbench_build.rim.engines import docker_store  # noqa: PLC0415 - imports the SDK

        return docker_store.stored(self._connected)

    def discard(self, image: str) -> str:
        """Remove an image by its id, unless something needs it; returns why it can't be."""
        from kbench_build.rim.engines import docker_store  # noqa: PLC0415 - imports the SDK

        return docker_store.discard(self._connected, image)

    def published(self, image: str) -> str:
        """The digest that a registry has for a tag now. Raises `EngineError`."""
        from kbench_build.rim.engines import docker_store  # noqa: PLC0415 - imports the SDK

        return docker_store.published(self._connected, image)

    @cached_property
    def address(self) -> str:
        """Where the engine listens."""
        return self._address or engine_address()

    @cached_property
    def _about(self) -> About:
        from kbench_build.rim.engines import docker_store  # noqa: PLC0415 - imports the SDK

        return docker_store.about(self._connected)

    @cached_property
    def _connected(self) -> "DockerApi":
        from kbench_build.rim.engines.docker_api import DockerApi  # noqa: PLC0415 - the SDK

        return DockerApi(self.address)

    @cached_property
    def _api(self) -> "DockerApi":
        """The connection for jobs and builds, which first clear away what killed runs left."""
        _sweep(self._connected)
        return self._connected

    @cached_property
    def _host_cpus(self) -> float:
        return float(self._api.client.info()["NCPU"])

    def _run(self, job: Job, name: str) -> JobResult:
        """Start, wait, and fetch what the job left."""
        client = self._api.client
        began = time.monotonic()
        problem = self._start(name)
        killed = "" if problem else self._wait(name, job)
        state = client.inspect_container(name)["State"]
        outputs, notes = self._outputs(job, name)
        changes, more = self._changes(job, name)
        status = _status(state, killed)
        code = None if killed else (int(state["ExitCode"]) or (127 if problem else 0))
        return JobResult(
            status=status,
            exit_code=code,
            seconds=_run_time(state, time.monotonic() - began),
            output=problem or self._tail(name),
            outputs=outputs,
            changes=changes,
            notes=(*self._clamped(job), *_memory_note(state, status), *notes, *more),
            image=self._keep(name) if job.keep and status == "exited" and code == 0 else "",
        )

    def _keep(self, name: str) -> str:
        """An image of a container, labelled as the container is: `sweep` knows whose it is."""
        return str(self._api.client.commit(name, repository=KEPT, tag=name)["Id"])

    def _start(self, name: str) -> str:
        """Start a container. A command that can't be started is the job's fault: returns why."""
        import docker.errors  # noqa: PLC0415 - loaded already, by the container

        try:
            self._api.client.start(name)
        except docker.errors.APIError as error:
            state = self._api.client.inspect_container(name)["State"]
            said = str(error.explanation)
            if state.get("ExitCode") not in _CANNOT_START and _NO_PROGRAM not in said:
                raise
            return said
        return ""

    def _wait(self, name: str, job: Job) -> str:
        """Wait for the end; kill the container at a limit, and say which one it was."""
        deadline = time.monotonic() + job.timeout_sec
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            if self._ended_within(name, min(left, _LOOK_SEC) if job.disk_mb else left):
                return ""
            late = time.monotonic() >= deadline
            if late or self._written(name) > (job.disk_mb or 0) << 20:
                return ("timeout" if late else "disk") if self._kill(name) else ""

    def _ended_within(self, name: str, seconds: float) -> bool:
        """Whether a container ends within that time."""
        import requests.exceptions  # noqa: PLC0415 - loaded already, by the container

        deadline = time.monotonic() + seconds
        try:
            self._api.client.wait(name, timeout=max(seconds, 0.001))
        except requests.exceptions.RequestException:
            # The SDK has no word for a time-out of its own: it is a broken connection.
            if time.monotonic() < deadline:
                raise
            return False
        return True

    def _kill(self, name: str) -> bool:
        """Kill a container; False where it had just ended by itself."""
        import docker.errors  # noqa: PLC0415 - loaded already, by the container

        try:
            self._api.client.kill(name)
        except docker.errors.APIError:
            return False
        self._api.client.wait(name, timeout=_KILL_SEC)
        return True

    def _written(self, name: str) -> int:
        """How many bytes a container's own layer holds."""
        described = self._api.client.get(
            self._api.url(f"/containers/{name}/json"), params={"size": "1"}, timeout=_KILL_SEC
        )
        return int(described.json().get("SizeRw") or 0)

    def _outputs(self, job: Job, name: str) -> tuple[Mapping[str, bytes], tuple[str, ...]]:
        from kbench_build.rim.engines import tars  # noqa: PLC0415 - only jobs with archives

        outputs: dict[str, bytes] = {}
        notes: list[str] = []
        for path in job.outputs:
            with self._api.archive(name, path) as found:
                if found is None:
                    continue
                content = tars.bounded(found.chunks, OUTPUT_LIMIT_BYTES)
            if content is None:
                notes.append(f"{path}: larger than {OUTPUT_LIMIT_BYTES >> 20} MiB, left out")
            else:
                outputs[path] = content
        return outputs, tuple(notes)

    def _changes(self, job: Job, name: str) -> tuple[Changes | None, tuple[str, ...]]:
        if job.changes_under is None:
            return None, ()
        from kbench_build.rim.engines import docker_changes  # noqa: PLC0415 - only such jobs

        try:
            pristine = self._container(job.image)
            changes = docker_changes.changes_under(self._api, name, pristine, job.changes_under)
        except docker_changes.TooLargeError:
            limit = docker_changes.LIMIT_BYTES >> 20
            return None, (f"{job.changes_under}: changes larger than {limit} MiB, left out",)
        return changes, ()

    def _tail(self, name: str) -> str:
        """The end of both streams."""
        kept: deque[bytes] = deque()
        size = 0
        for chunk in self._api.client.logs(name, stream=True, tail=_LOG_LINES):
            kept.append(chunk)
            size += len(chunk)
            while size - len(kept[0]) >= OUTPUT_TAIL_BYTES:
                size -= len(kept.popleft())
        return b"".join(kept)[-OUTPUT_TAIL_BYTES:].decode("utf-8", "replace")

    def _clamped(self, job: Job) -> tuple[str, ...]:
        if job.cpus is None or job.cpus <= self._host_cpus:
            return ()
        return (f"{job.cpus:g} CPUs asked for, {self._host_cpus:g} given: the host has no more",)

    def _wishes(self, job: Job) -> dict[str, Any]:
        """What the engine is asked to make of a job, beside its image."""
        return {
            "entrypoint": [job.command[0]],
            "command": list(job.command[1:]),
            "working_dir": job.workdir,
            "environment": dict(job.environment),
            "labels": {LABEL_JOB: job.name},
            "healthcheck": {"test": ["NONE"]},
            "host_config": {
                "network_mode": "none" if job.network == "none" else "bridge",
                "nano_cpus": int(min(job.cpus, self._host_cpus) * 1e9) if job.cpus else None,
                "mem_limit": job.memory_mb << 20 if job.memory_mb else None,
                "memswap_limit": job.memory_mb << 20 if job.memory_mb else None,
                "pids_limit": _PIDS,
                "cap_drop": _DROPPED,
                "security_opt": ["no-new-privileges"],
                "log_config": _LOG,
            },
            "uploads": job.uploads,
        }

    @contextmanager
    def _container(
        self,
        image: str,
        *,
        host_config: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        uploads: tuple[Any, ...] = (),
        **wishes: Any,
    ) -> Iterator[str]:
        """A container that isn't started, and that is gone afterwards whatever happens.

        Its name is chosen here, so that it can be removed even when the answer to its creation
        was never heard.
        """
        client = self._api.client
        name = f"kbench-{os.getpid()}-{secrets.token_hex(6)}"
        made = False
        try:
            client.create_container(
                image,
                name=name,
                labels={**(labels or {}), LABEL_OWNER: _owner()},
                host_config=client.create_host_config(**(host_config or {})),
                **{"entrypoint": ["/nothing"], **wishes},
            )
            made = True
            if uploads:
                from kbench_build.rim.engines import tars  # noqa: PLC0415 - only such jobs

                client.put_archive(name, "/", tars.merge(uploads))
            yield name
        finally:
            _remove(self._api, name, patience=0.0 if made else 1.0)


def _remove(api: "DockerApi", name: str, *, patience: float) -> None:
    """Kill and remove a container. One whose creation was interrupted may appear a bit later."""
    from kbench_build.rim.engines.docker_api import FAILURES  # noqa: PLC0415 - loaded already

    deadline = time.monotonic() + patience
    while True:
        with suppress(*FAILURES):
            api.client.remove_container(name, force=True, v=True)
            return
        if time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _sweep(api: "DockerApi") -> int:
    left = _left(api)
    for container in left:
        _remove(api, container["Id"], patience=0.0)
    _sweep_kept(api)
    return len(left)


def _sweep_kept(api: "DockerApi") -> None:
    """Remove the kept images whose process on this machine is dead."""
    from kbench_build.rim.engines.docker_api import FAILURES  # noqa: PLC0415 - loaded already

    for image in api.client.images(KEPT, filters={"label": LABEL_OWNER}):
        if _is_dead(image["Labels"][LABEL_OWNER]):
            for tag in image["RepoTags"] or ():
                # In a container, or gone already.
                with suppress(*FAILURES):
                    api.client.remove_image(tag)


def _left(api: "DockerApi") -> Sequence[Mapping[str, Any]]:
    """The containers of ours whose process on this machine is dead."""
    return [c for c in _ours(api) if _is_dead(c["Labels"][LABEL_OWNER])]


def _ours(api: "DockerApi") -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = api.client.containers(
        all=True, filters={"label": LABEL_OWNER}
    )
    return found


def _is_dead(owner: str) -> bool:
    """Whether an owner is a process of this machine that is gone."""
    host = f"{socket.gethostname()}:"
    try:
        return owner.startswith(host) and not is_alive(int(owner.removeprefix(host)))
    except ValueError:
        return True


def _status(state: Mapping[str, Any], killed: str) -> Any:
    if killed:
        return killed
    return "oom" if state.get("OOMKilled") and state["ExitCode"] != 0 else "exited"


def _memory_note(state: Mapping[str, Any], status: str) -> tuple[str, ...]:
    if not state.get("OOMKilled") or status == "oom":
        return ()
    return ("a process inside was killed for memory",)


def _run_time(state: Mapping[str, Any], fallback: float) -> float:
    """Seconds between start and end, by the engine's own clock."""
    try:
        began, ended = (datetime.fromisoformat(state[k]) for k in ("StartedAt", "FinishedAt"))
    except (KeyError, ValueError):
        return fallback
    seconds = (ended - began).total_seconds()
    return seconds if seconds >= 0 else fallback
