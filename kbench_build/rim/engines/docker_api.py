"""The few requests that the docker SDK has no good words for, and its errors as one sentence.

An object of this class is one connection pool to one engine. The SDK is imported here, so import
this module only when a container or a build is needed.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import docker
import docker.errors
import docker.utils
import requests.exceptions
import urllib3.exceptions

from kbench_build.rim.engines.address import no_answer

# Requests that answer at once on a healthy engine; a slow disk may need a while to remove an image.
QUICK_SEC = 120
SAVE_SEC = 3600
_CHUNK = 1 << 18
_GO_FOLDER = 1 << 31

FAILURES = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A path of a container as a tar stream; `is_folder` says what the path is."""

    is_folder: bool
    chunks: Iterator[bytes]


class DockerApi:
    """One engine, spoken to through the docker SDK's low-level client."""

    def __init__(self, address: str) -> None:
        """Connect; raises `EngineError` when nothing answers at the address."""
        self.address = address
        settings: dict[str, Any] = {**docker.utils.kwargs_from_env(), "base_url": address}
        try:
            self.client: Any = docker.APIClient(version="auto", timeout=QUICK_SEC, **settings)
        except FAILURES as error:
            raise no_answer(address, error) from error

    def url(self, path: str) -> str:
        """The full address of an API path."""
        return f"{self.client.base_url}/v{self.client.api_version}{path}"

    @contextmanager
    def archive(self, container: str, path: str) -> Iterator[Archive | None]:
        """A path of a container as a tar stream, None where the path is missing."""
        response = self.client.get(
            self.url(f"/containers/{container}/archive"),
            params={"path": path},
            headers={"Accept-Encoding": "identity"},
            stream=True,
            timeout=QUICK_SEC,
        )
        with response:
            if response.status_code == 404:
                yield None
                return
            raise_for_status(response)
            stat = _decoded(response.headers.get("x-docker-container-path-stat", ""))
            yield Archive(
                is_folder=bool(int(stat.get("mode", 0)) & _GO_FOLDER),
                chunks=response.iter_content(_CHUNK),
            )

    @contextmanager
    def saved(self, images: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """Images as the archive that `docker save` writes.

        An engine gathers all layers before it sends the first byte.
        """
        response = self.client.get(
            self.url("/images/get"),
            params={"names": list(images)},
            headers={"Accept-Encoding": "identity"},
            stream=True,
            timeout=SAVE_SEC,
        )
        with response:
            raise_for_status(response)
            yield response.iter_content(_CHUNK)


def raise_for_status(response: Any) -> None:
    """Raise the SDK's error, with the engine's words, for an answer that isn't a success."""
    if response.status_code >= 400:
        try:
            said = response.json()["message"]
        except (ValueError, KeyError):
            said = response.text
        raise docker.errors.APIError(said, response=response, explanation=said)


def sentence(error: BaseException) -> str:
    """An engine's error on one line."""
    said = getattr(error, "explanation", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:1000]


def below(path: str, folder: str) -> str | None:
    """The path relative to the folder; None when it isn't below it."""
    pure = PurePosixPath(path)
    return str(pure.relative_to(folder)) if pure.is_relative_to(folder) else None


def _decoded(header: str) -> Mapping[str, Any]:
    value: Mapping[str, Any] = json.loads(base64.b64decode(header)) if header else {}
    return value
