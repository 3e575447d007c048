"""An image in which the shipped verifier runs: this machine's programs, and a task's checkout."""

import io
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import engine_box
from tests.verifier_box import WORKDIR, Box

IMAGE = f"{engine_box.NAMESPACE}/verifier:1"
PROGRAMS = (
    "bash sh env git setsid dirname cp rm mkdir mv ln cat sleep touch chmod ls head tr sed find"
)


@contextmanager
def built(task: Box, folder: Path) -> Iterator[str]:
    """The image's name, while it is there; it holds the task's files too. Logs go to the folder."""
    context = {"root.tar": programs(), "task.tar": _tar(task.root)}
    text = f"FROM scratch\nADD root.tar /\nADD task.tar /\nRUN {LINK_PYTHON}\nWORKDIR /{WORKDIR}\n"
    context["Dockerfile"] = text.encode()
    spec = engine_box.spec(folder, text, image=IMAGE, context=context)
    result = engine_box.engine.build(spec)
    assert result.status == "built", result
    try:
        yield IMAGE
    finally:
        engine_box.engine._api.client.remove_image(IMAGE, force=True)


def _python() -> str:
    return str(Path(sys.base_prefix, "bin", f"python{sysconfig.get_python_version()}").resolve())


LINK_PYTHON = (
    f"mkdir -p /tmp /usr/bin && ln -s {_python()} /usr/bin/python3 && ln -s /bin/env /usr/bin/env"
)


def programs(names: str = PROGRAMS) -> bytes:
    """A tar of the programs, the standard library and every library that they load."""
    found = [f"/usr/bin/{name}" for name in names.split()]
    library = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "__pycache__", "idlelib", "lib2to3"}
    modules = [p for p in library.rglob("*") if p.is_file() and not left_out & set(p.parts)]
    files = {_python(): Path(_python()), **{str(path): path for path in modules}}
    files |= {f"/bin/{Path(name).name}": Path(name) for name in found}
    for program in [*found, _python(), *(str(p) for p in modules if p.suffix == ".so")]:
        files |= {lib: Path(lib) for lib in engine_box._libraries(program)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            if path.exists():
                tar.add(path.resolve(), name.lstrip("/"))
    return buffer.getvalue()


def _tar(root: Path) -> bytes:
    parts = [WORKDIR, "tests", "solution", "logs"]
    command = ["tar", "-C", str(root), "--owner=0", "--group=0", "-cf", "-", *parts]
    return subprocess.run(command, capture_output=True, check=True).stdout
