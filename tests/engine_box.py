"""A small image made of this machine's own programs, for tests that need containers.

Nothing is fetched: programs and the libraries that they load are packed into one tar. Everything
made here carries the label `dev.kbench.test`, by which it is removed.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kbench_build.model.jobs import Job, JobResult, Upload
from kbench_build.rim.engines import BuildSpec, tars
from kbench_build.rim.engines.docker import DockerEngine

LABEL = "dev.kbench.test"
STAGE_LABEL = "dev.kbench.test.stage"
NAMESPACE = f"kbench-test-{os.getpid()}"
TINY = f"{NAMESPACE}/tiny:1"
PROGRAMS = (
    "bash sh cat chmod cp dd env head id ln ls mkdir mkfifo mv printf pwd rm rmdir seq sleep "
    "tail touch tr true yes grep"
)

engine = DockerEngine()


@functools.cache
def rootfs() -> bytes:
    """The programs and their libraries as a tar."""
    files: dict[str, Path] = {}
    for program in PROGRAMS.split():
        found = shutil.which(program, path="/usr/bin:/bin")
        if found:
            files[f"bin/{program}"] = Path(found).resolve()
            files |= {lib.lstrip("/"): Path(lib).resolve() for lib in _libraries(found)}
    return b"".join(tars.stream(files))


def _libraries(program: str) -> list[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+)", done.stdout)


def spec(tmp_path: Path, dockerfile: str, **changes: object) -> BuildSpec:
    """A build of a Dockerfile's text; `changes` replace parts of the specification."""
    values: dict[str, object] = {
        "image": f"{NAMESPACE}/built:1",
        "context": {"Dockerfile": dockerfile.encode()},
        "dockerfile": "Dockerfile",
        "labels": {LABEL: NAMESPACE},
        "stage_label": (STAGE_LABEL, NAMESPACE),
        "timeout_sec": 120.0,
        "log": tmp_path / "build.log",
        **changes,
    }
    return BuildSpec(**values)  # type: ignore[arg-type]


def build_tiny(tmp_path: Path) -> str:
    """Build the small image; its working directory is `/work`, with a few files in it."""
    text = (
        "FROM scratch\nADD rootfs.tar /\nWORKDIR /work\n"
        "RUN mkdir -p kept/deep gone/deep tmp && printf 1 >kept/deep/a && printf 2 >kept/b "
        "&& printf 3 >gone/deep/c && printf 4 >gone/d && printf 5 >edited && printf 6 >removed "
        "&& ln -s edited link && mkdir .git && printf x >.git/HEAD\n"
    )
    context = {"Dockerfile": text.encode(), "rootfs.tar": rootfs()}
    result = engine.build(spec(tmp_path, text, image=TINY, context=context))
    assert result.status == "built", result
    return TINY


def run(image: str, script: str, **wishes: object) -> JobResult:
    """A shell script in a fresh container."""
    values: dict[str, object] = {"timeout_sec": 60.0, **wishes}
    job = Job(name="test", image=image, command=("sh", "-c", script), **values)  # type: ignore[arg-type]
    return engine(job)


def upload(into: str, **files: str) -> Upload:
    """Files to put into a folder of a container."""
    return Upload(into=into, archive=tars.pack({k: v.encode() for k, v in files.items()}))


def containers() -> set[str]:
    """Names of all containers that this process, or a child of it, may have left."""
    listed = engine._api.client.containers(all=True, filters={"label": "dev.kbench.owner"})
    return {name.lstrip("/") for item in listed for name in item["Names"]}


def remove_images(*names: str) -> None:
    """Remove these images, or every image that this process's tests made."""
    client = engine._api.client
    for name in [tag for tag in engine.images() if tag.startswith(f"{NAMESPACE}/")]:
        if not names or name in names:
            client.remove_image(name, force=True)
    client.prune_images(filters={"dangling": True, "label": f"{LABEL}={NAMESPACE}"})


def fixture(tmp_path: Path) -> Iterator[str]:
    """The body of the fixture `tiny`."""
    try:
        yield build_tiny(tmp_path)
    finally:
        remove_images()
