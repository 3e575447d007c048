"""Images that the engine really holds, one for each recipe, made without building anything.

All share one layer of a few bytes; each differs in its labels. They carry a label of their own, by
which they are removed.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from typing import Any

from benchmarks.datasets import LABEL
from kbench_build.errors import EngineError
from kbench_build.rim.engines.address import engine_address
from kbench_build.rim.engines.docker import DockerEngine
from kbench_build.rules.images import LABEL_KIND, LABEL_RECIPE, LABEL_SUBJECT, Recipe

_LAYER = "layer.tar"


def engine_answers() -> bool:
    """Whether there is an engine to ask."""
    try:
        DockerEngine().images()
    except EngineError:
        return False
    return True


def load(recipes: Iterable[Recipe], owner: str) -> None:
    """Give the engine an image for each recipe, labelled as built from it and as `owner`'s."""
    layer = _tar({"made-for": owner.encode()})
    layer_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    files, manifest = {_LAYER: layer}, []
    for recipe in recipes:
        config = _config(recipe, owner, layer_id)
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        files[name] = config
        manifest.append({"Config": name, "RepoTags": [recipe.image], "Layers": [_LAYER]})
    files["manifest.json"] = json.dumps(manifest).encode()
    for _ in _client().load_image(_tar(files)):
        pass


def remove(owner: str) -> None:
    """Remove the images that were loaded for this owner."""
    client = _client()
    for image in client.images(filters={"label": f"{LABEL}={owner}"}):
        client.remove_image(image["Id"], force=True)


def _client() -> Any:
    from kbench_build.rim.engines.docker_api import DockerApi  # noqa: PLC0415 - the SDK is large

    client = DockerApi(engine_address()).client
    client.timeout = 1800
    return client


def _config(recipe: Recipe, owner: str, layer_id: str) -> bytes:
    kind = "task" if "/task:" in recipe.image else "base"
    labels = {
        LABEL: owner,
        LABEL_RECIPE: recipe.digest,
        LABEL_KIND: kind,
        LABEL_SUBJECT: recipe.subject,
    }
    value = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": labels, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer_id]},
        "history": [{"created_by": "benchmark"}],
    }
    return json.dumps(value).encode()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
