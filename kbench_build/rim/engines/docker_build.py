"""Building an image through the engine's own builder, or through `docker buildx` where a line of
the Dockerfile needs BuildKit.

The context is a tar made here, a function of the files alone. The tag moves only when the build has
ended well. The image that had it before, and the images of stages, are removed then, so they don't
pile up; what a failed build left stays, as the cache of the next try.
"""

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import docker.errors

from kbench_build.errors import KbenchError
from kbench_build.rim import process
from kbench_build.rim.engines import BuildResult, BuildSpec, tars
from kbench_build.rim.engines.docker_api import FAILURES, DockerApi, raise_for_status, sentence

_TAIL_LINES = 40
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FULL = ("no space left on device", "disk quota exceeded")
_UNREACHABLE = ("dial tcp", "tls handshake timeout", "toomanyrequests", "i/o timeout")


class _BuildError(Exception):
    """The builder ended without an image: it said why, or it was stopped."""

    def __init__(self, said: str, *, expired: bool = False) -> None:
        super().__init__(said)
        self.expired = expired


def build(api: DockerApi, spec: BuildSpec) -> BuildResult:
    """Build, tag, and clear away the earlier image and the images of stages."""
    began = time.monotonic()
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        before = _image_id(api, spec)
        _keep_log(_buildx(api, spec) if spec.buildkit else _classic(api, spec), spec, tail)
        image = api.client.inspect_image(spec.image)
        _clear_away(api, spec, {before} - {image["Id"], ""})
    except _BuildError as error:
        result = _timeout(spec) if error.expired else _failed(str(error), tail)
    except FAILURES as error:
        result = BuildResult(status="engine-error", error=_full_disk(error) or sentence(error))
    else:
        result = BuildResult(status="built", image_id=image["Id"], size=image["Size"])
    return _with_times(result, tail, time.monotonic() - began)


def _with_times(result: BuildResult, tail: deque[str], seconds: float) -> BuildResult:
    return BuildResult(
        status=result.status,
        image_id=result.image_id,
        size=result.size,
        seconds=seconds,
        output="\n".join(tail),
        error=result.error,
    )


def _keep_log(texts: Iterator[str], spec: BuildSpec, tail: deque[str]) -> None:
    try:
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        log = spec.log.open("w", encoding="utf-8", errors="replace")
    except OSError as error:
        raise KbenchError(f"{spec.log}: can't be written: {error.strerror}") from error
    with log:
        for text in texts:
            log.write(text)
            tail.extend(line for line in text.splitlines() if line.strip())


def _timeout(spec: BuildSpec) -> BuildResult:
    return BuildResult(status="timeout", error=f"didn't end within {spec.timeout_sec:g} s")


def _failed(said: str, tail: deque[str]) -> BuildResult:
    """A recipe that doesn't build, unless the words show that the machine was to blame."""
    if full := _full_disk(f"{said} {' '.join(tail)}"):
        return BuildResult(status="engine-error", error=full)
    if any(sign in said.lower() for sign in _UNREACHABLE):
        return BuildResult(status="engine-error", error=said)
    return BuildResult(status="failed", error=said)


def _full_disk(said: object) -> str:
    if not any(sign in str(said).lower() for sign in _FULL):
        return ""
    return "the disk is full: free space where the engine keeps its images (see `docker system df`)"


def _classic(api: DockerApi, spec: BuildSpec) -> Iterator[str]:
    """The builder's words, as they come. Raises `_BuildError`."""
    expired = threading.Event()
    with _request(api, spec) as response:
        timer = threading.Timer(spec.timeout_sec, _stop, (response, expired))
        timer.start()
        try:
            for line in response.iter_lines():
                if line.strip():
                    yield _words(json.loads(line))
        except FAILURES:
            if not expired.is_set():
                raise
        finally:
            timer.cancel()
    if expired.is_set():
        raise _BuildError("", expired=True)


def _request(api: DockerApi, spec: BuildSpec) -> Any:
    response = api.client.post(
        api.url("/build"),
        params={
            "t": spec.image,
            "dockerfile": spec.dockerfile,
            "labels": json.dumps(dict(spec.labels)),
            "rm": "1",
            "forcerm": "1",
            "nocache": "0" if spec.use_cache else "1",
        },
        data=tars.stream(spec.context),
        headers={"Content-Type": "application/tar"},
        stream=True,
        timeout=None,
    )
    raise_for_status(response)
    return response


def _stop(response: Any, expired: threading.Event) -> None:
    """End a read that waits; closing the connection makes the engine give the build up."""
    expired.set()
    with suppress(OSError, ValueError, RuntimeError):
        response.raw.shutdown()


def _words(message: Any) -> str:
    if "error" in message:
        raise _BuildError(" ".join(str(message["error"]).split()))
    if "stream" in message:
        return _COLOUR.sub("", str(message["stream"]))
    status = str(message.get("status", ""))
    # Progress bars repeat themselves many times a second.
    return f"{status} {message.get('id', '')}\n" if status and "progress" not in message else ""


def _image_id(api: DockerApi, spec: BuildSpec) -> str:
    try:
        return str(api.client.inspect_image(spec.image)["Id"])
    except docker.errors.ImageNotFound:
        return ""


def _clear_away(api: DockerApi, spec: BuildSpec, replaced: set[str]) -> None:
    key, value = spec.stage_label
    untagged = api.client.images(filters={"dangling": True})
    for image in untagged:
        if image["Id"] in replaced or (image["Labels"] or {}).get(key) == value:
            # In a container, or below another image: the engine refuses, rightly.
            with suppress(*FAILURES):
                api.client.remove_image(image["Id"])


def _buildx(api: DockerApi, spec: BuildSpec) -> Iterator[str]:
    environment = {**os.environ, "DOCKER_HOST": api.address}
    try:
        process.run(["docker", "buildx", "version"], env=environment, timeout=60)
    except process.ProcessError:
        raise _BuildError(
            f"{spec.buildkit} needs BuildKit, and there is no `docker buildx` here: "
            "install Docker's buildx plugin, or write the line without it"
        ) from None
    try:
        done = process.run(
            _buildx_command(spec),
            env=environment,
            timeout=spec.timeout_sec,
            stdin=b"".join(tars.stream(spec.context)),
        )
    except process.ProcessError as error:
        yield error.stderr.decode("utf-8", "replace")
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise _BuildError(" ".join(last), expired=error.code is None) from error
    yield done.stderr.decode("utf-8", "replace")


def _buildx_command(spec: BuildSpec) -> list[str]:
    labels = [f"--label={key}={value}" for key, value in spec.labels.items()]
    cache = [] if spec.use_cache else ["--no-cache"]
    return [
        *("docker", "buildx", "build", "--load", "--progress=plain", f"--tag={spec.image}"),
        *labels,
        *cache,
        *(f"--file={spec.dockerfile}", "-"),
    ]
