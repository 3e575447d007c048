"""What an engine keeps: its images with their layers, its disk, and what a registry says of a tag.

Promises: nothing is removed unless it is named. A layer is told by the history up to it, which all
images that share it have in common; the engine names no layers that its steps and images share.
"""

import hashlib
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker.errors

from kbench_build.errors import EngineError
from kbench_build.model.layers import Layer, StoredImage
from kbench_build.rim.engines import About
from kbench_build.rim.engines.docker_api import FAILURES, DockerApi, sentence

# Where images lie when the engine leaves them to containerd, as newer ones do.
_CONTAINERD = "/var/lib/containerd"
_SNAPSHOTTER = "io.containerd.snapshotter.v1"


def about(api: DockerApi) -> About:
    """Which engine it is, and where it keeps its images."""
    try:
        info, version = api.client.info(), api.client.version()
    except FAILURES as error:
        said = sentence(error)
        raise EngineError(f"the container engine says nothing of itself: {said}") from error
    parts = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    name = "podman" if any("podman" in part.lower() for part in parts) else "docker"
    return About(name=f"{name} {version.get('Version', '')}", storage=_storage(api, info))


def _storage(api: DockerApi, info: Mapping[str, Any]) -> str:
    """The folder of the images, if it is this machine's: the same path may be there by chance."""
    if not api.address.startswith("unix://") or info.get("Name") != socket.gethostname():
        return ""
    driver = info.get("DriverStatus") or ()
    folder = _CONTAINERD if any(_SNAPSHOTTER in row for row in driver) else info["DockerRootDir"]
    return str(folder) if Path(folder).is_dir() else ""


def stored(api: DockerApi) -> tuple[StoredImage, ...]:
    """Every image but the builder's steps. One that is removed meanwhile is left out."""
    try:
        used = {c["ImageID"] for c in api.client.containers(all=True)}
        return tuple(_stored(api, api.client.images(), used))
    except FAILURES as error:
        raise EngineError(f"the container engine lists no images: {sentence(error)}") from error


def _stored(
    api: DockerApi, listed: Iterable[Mapping[str, Any]], used: set[str]
) -> Iterator[StoredImage]:
    for image in listed:
        try:
            history = api.client.history(image["Id"])
        except docker.errors.NotFound:
            continue
        yield StoredImage(
            id=image["Id"],
            tags=_tags(image),
            labels=image.get("Labels") or {},
            created=float(image["Created"]),
            layers=tuple(_layers(history)),
            in_use=image["Id"] in used,
        )


def _tags(image: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags of an image as the engine lists it, without what Podman puts before them."""
    found = image.get("RepoTags") or ()
    return tuple(tag.removeprefix("localhost/") for tag in found if tag != "<none>:<none>")


def _layers(history: Iterable[Mapping[str, Any]]) -> Iterator[Layer]:
    key = ""
    for step in reversed([*history]):
        said = f"{key}\0{step['Created']}\0{step['CreatedBy']}\0{step['Size']}"
        key = hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()
        yield Layer(key=key, size=step["Size"])


def discard(api: DockerApi, image: str) -> str:
    """Remove an image by its id, unless something needs it; returns why it can't be."""
    try:
        api.client.remove_image(image)
    except docker.errors.ImageNotFound:
        return ""
    except FAILURES as error:
        return sentence(error)
    return ""


def published(api: DockerApi, image: str) -> str:
    """The digest that a registry has for a tag now, asked through the engine."""
    try:
        found = api.client.inspect_distribution(image)
        return str(found["Descriptor"]["digest"])
    except (*FAILURES, KeyError) as error:
        raise EngineError(sentence(error)) from error
