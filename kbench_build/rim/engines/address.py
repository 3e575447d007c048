"""Where the engine listens, and the one question that is asked on every run, asked cheaply.

Importing the docker SDK costs more than a whole up-to-date run, so the list of images is read from
the Unix socket directly, with one request.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import EngineError

_DEFAULT = "unix:///var/run/docker.sock"
_TIMEOUT_SEC = 60.0
_START = "start one with `sudo systemctl start docker` (without systemd: `sudo dockerd &`)"
_ALLOW = (
    "you may not use it: run as root, or join its group with `sudo usermod -aG docker $USER` "
    "and log in again"
)


def engine_address() -> str:
    """`DOCKER_HOST`, or the first socket there is of Docker, rootless Docker and Podman."""
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = ["/var/run/docker.sock"]
    if runtime:
        places += [f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    found = next((place for place in places if Path(place).exists()), None)
    return f"unix://{found}" if found else _DEFAULT


def no_answer(address: str, error: BaseException) -> EngineError:
    """The one line for a person: no engine, and what to do."""
    chain = f"{error!r} {error}"
    if isinstance(error, PermissionError) or "Permission denied" in chain:
        return EngineError(f"the container engine at {address}: {_ALLOW}")
    return EngineError(f"no container engine answers at {address}: {_START}")


def list_images(socket_path: str) -> list[Mapping[str, Any]]:
    """What the engine says of its images, over its Unix socket. Raises `EngineError`."""
    address = f"unix://{socket_path}"
    try:
        answer = _get(socket_path, "/images/json")
    except OSError as error:
        raise no_answer(address, error) from error
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        said = body.decode("utf-8", "replace").strip()[:200]
        raise EngineError(f"the container engine at {address} doesn't list its images: {said}")
    try:
        images: list[Mapping[str, Any]] = orjson.loads(body)
    except ValueError as error:
        raise EngineError(f"the container engine at {address} stopped answering") from error
    return images


def _get(socket_path: str, path: str) -> bytes:
    # HTTP/1.0: the answer isn't chunked and ends with the connection.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SEC)
        connection.connect(socket_path)
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode("ascii"))
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))
