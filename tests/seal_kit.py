"""What tests of the seal share: running the script, and proving a folder as if it were an image."""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kbench_build.model import Report
from kbench_build.rim.engines import tars
from kbench_build.steps.seal import seal
from tests.seal_routes import ENV, Site

RUNTIME = Path(__file__).parent.parent / "kbench_build" / "runtime"
TASK = "acme_parser-7"


@dataclass(kw_only=True)
class FolderImage:
    """An engine for one image, whose checkout is a folder here."""

    place: Path

    def read(self, image: str, path: str) -> Iterator[bytes]:
        if image == "empty" or path != "/home/checkout":
            raise FileNotFoundError(path)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(self.place, arcname="checkout")
        data = buffer.getvalue()
        yield from (data[at : at + 65536] for at in range(0, len(data), 65536))

    def workdir(self, image: str) -> str:
        return "/" if image == "nowhere" else "/home/checkout"

    def layers(self, image: str) -> Sequence[str]:
        return [] if image in ("empty", "nowhere") else [layer_id(self._layer)]

    def save(self, _images: Sequence[str]) -> Iterator[bytes]:
        yield saved_image([self._layer])

    @cached_property
    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(self.place, arcname="home/checkout")
        return buffer.getvalue()


def layer_id(layer: bytes) -> str:
    """The diff id of a layer's tar."""
    return f"sha256:{hashlib.sha256(layer).hexdigest()}"


def saved_image(layers: Sequence[bytes]) -> bytes:
    """What `docker save` gives, in Docker's own form."""
    members: dict[str, Path | bytes] = {f"{n:064x}/layer.tar": x for n, x in enumerate(layers)}
    return b"".join(tars.stream({"manifest.json": b"[]", **members}))


def run_script(
    name: str, *argv: str | Path, code: int = 0, env: Mapping[str, str] = ENV
) -> subprocess.CompletedProcess[bytes]:
    """Run one of the shipped scripts; its exit code must be `code`."""
    command = ["bash", RUNTIME / name, *argv]
    done = subprocess.run(command, env={**ENV, **env}, capture_output=True, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def run_seal(
    folder: Path, base: str, *history: str, code: int = 0, env: Mapping[str, str] = ENV
) -> str:
    """Seal a checkout; what the script said on standard error."""
    return run_script(
        "seal_git_history.sh", folder, base, *history, code=code, env=env
    ).stderr.decode()


def write_task(site: Site, root: Path, *, base: str | None = None) -> Path:
    """The task that a site belongs to; its folder."""
    task = root / "tasks" / TASK
    for part in ("solution", "tests"):
        (task / part).mkdir(parents=True, exist_ok=True)
    base = site.upstream.base if base is None else base
    (task / "task.toml").write_text(f'[metadata.source]\nbase_commit = "{base}"\n')
    (task / "solution" / "fix.patch").write_bytes(site.upstream.fix_patch)
    (task / "tests" / "test.patch").write_bytes(site.upstream.test_patch)
    return task


def prove(site: Site, root: Path, *, image: str = "image", upstream: bool = True) -> Report:
    """The proof of a site, for the task under `root` (written where there is none)."""
    if not (root / "tasks").exists():
        write_task(site, root)
    upstreams = [site.upstream.folder] if upstream else []
    engine = FolderImage(place=site.folder)
    return seal(root, TASK, engine=engine, image=image, inputs="digest", upstreams=upstreams)


def rules(report: Report) -> set[str]:
    """The rules that a report's findings break."""
    return {finding["rule"] for finding in report.data["findings"]}


def said(report: Report) -> str:
    """All findings as text."""
    return "\n".join(report.data["details"])
