"""The base that holds a mined upstream, of which task images take what their commit reaches.

Promises: it holds what the newest base commit reaches, so never the newest change; its recipe can
be followed by others wherever the upstream's address answers, and is pinned by the commit's id.
Leaves making the bundle, and writing, to others.
"""

import re

from kbench_build.rules.base_inputs import heads_digest, parse_inputs
from kbench_build.rules.emit import toml_text

TAG, BUNDLE, SCRIPT, REF = "history", "history.bundle", "fetch_history.sh", "refs/heads/main"
DOCKERFILE = "Dockerfile.history"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_HEAD = (
    "# The upstream up to the newest base that a task begins with; `kbench mine --emit` wrote it.\n"
)


def repo_name(repository: str) -> str:
    """The name of a repository's folder below `bases/`, which is one of images as well."""
    owner, _, name = repository.lower().partition("/")
    return "_".join(part for p in (owner, name) if (part := _NO_NAME.sub("-", p).strip("-")))


def place_of(repository: str) -> str:
    """Where the clone stands in the image."""
    return f"/home/{_ODD.sub('-', repository.rpartition('/')[2]).strip('.') or 'upstream'}"


def base_files(
    repository: str, *, image: str, address: str, commit: str, script: bytes
) -> dict[str, bytes]:
    """The files of the base, by their names below `bases/<repo>/`.

    `image` has git; `address` is where the upstream can be fetched from.
    """
    place = place_of(repository)
    recipe = (
        f"{_HEAD}FROM {image}\n"
        f"COPY {BUNDLE} /opt/history/\n"
        f"RUN git clone --quiet --branch main /opt/history/{BUNDLE} {place}\n"
    )
    values = {
        "file": BUNDLE,
        "command": ["bash", SCRIPT, address, commit],
        "sources": [SCRIPT],
        "bases": [TAG],
        "git_heads": heads_digest(f"{commit} {REF}"),
    }
    return {
        DOCKERFILE: recipe.encode(),
        SCRIPT: script,
        "inputs.toml": f"{_HEAD}[[input]]\n{toml_text(values)}".encode(),
    }


def pinned_commit(inputs: str, repo: str) -> str:
    """The commit that an `inputs.toml` of this kind holds; empty where it is of another kind."""
    found, _ = parse_inputs(inputs, repo)
    ours = [item for item in found if item.file == BUNDLE and len(item.command) == 4]
    return ours[0].command[3] if len(found) == len(ours) == 1 else ""


def with_line(manifest: str, repo: str) -> str:
    """The manifest with the base's line, which it may have already."""
    line = f"{repo} {TAG} {DOCKERFILE}"
    if line in (" ".join(each.partition("#")[0].split()) for each in manifest.splitlines()):
        return manifest
    before = (manifest or "# repo base-tag dockerfile").removesuffix("\n")
    return f"{before}\n{line}\n"
