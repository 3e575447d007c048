"""A repository whose changes end in every way that a trial can, and an image to try them in.

Its tests are Python files with functions; `/run_tests.py` in the image runs those that it is given
and writes JUnit XML, with the words that pytest has for a file that it can't load.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.rim.engines.docker import KEPT
from tests import engine_box, verifier_image
from tests.upstream_kit import Upstream, new_upstream

IMAGE = f"{engine_box.NAMESPACE}/trials:1"
RUNNER = """
import importlib.util, os, sys, traceback
from pathlib import Path
from xml.sax.saxutils import quoteattr

sys.path.insert(0, os.getcwd())
cases = []
for name in sys.argv[1:]:
    dotted = name.removesuffix(".py").replace("/", ".")
    try:
        spec = importlib.util.spec_from_file_location(dotted, name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception:
        traceback.print_exc()
        body = '<error message="collection failure"/>'
        cases.append(f'<testcase classname="" name="{dotted}">{body}</testcase>')
        continue
    for test, function in list(vars(module).items()):
        if test.startswith("test_"):
            body = ""
            try:
                function()
            except Exception as error:
                body = f"<failure message={quoteattr(str(error))}/>"
            cases.append(f'<testcase classname="{dotted}" name="{test}">{body}</testcase>')
Path("report.xml").write_text("<testsuite>" + "".join(cases) + "</testsuite>")
"""
CONFIG = f'''
[mine]
preset = "python-pytest"

[[mine.environment]]
name = "py"
image = "{IMAGE}"
command = ["python3", "/run_tests.py", "{{files}}"]
reports = ["report.xml"]
timeout_sec = 5
'''


@contextmanager
def image(folder: Path) -> Iterator[str]:
    """The image, while it is there."""
    text = f"FROM scratch\nADD root.tar /\nADD run_tests.py /\nRUN {verifier_image.LINK_PYTHON}\n"
    context = {
        "root.tar": verifier_image.programs(f"{verifier_image.PROGRAMS} rmdir"),
        "run_tests.py": RUNNER.encode(),
        "Dockerfile": text.encode(),
    }
    result = engine_box.engine.build(engine_box.spec(folder, text, image=IMAGE, context=context))
    assert result.status == "built", result
    try:
        yield IMAGE
    finally:
        engine_box.engine._api.client.remove_image(IMAGE, force=True)


class Project:
    """The repository; each change is a squashed commit `(#n)` of source and tests."""

    def __init__(self, folder: Path) -> None:
        self.upstream: Upstream = new_upstream(folder)
        self.upstream.git("remote", "add", "origin", "https://forge.example.org/acme/text.git")
        self.change({"lib.py": "def one():\n    return 1\n", "tests/test_old.py": OLD})
        self.number = 0

    def change(self, files: dict[str, str | bytes | None], message: str = "Begin") -> str:
        """Write (or, with None, remove) these files, and commit."""
        for name, content in files.items():
            place = self.upstream.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                place.unlink()
            else:
                place.write_bytes(content.encode() if isinstance(content, str) else content)
        self.upstream.later()
        self.upstream.git("add", "-A")
        self.upstream.git("commit", "-q", "--allow-empty", "-m", message)
        return self.upstream.git("rev-parse", "HEAD")

    def pull(self, files: dict[str, str | bytes | None]) -> str:
        """A merged pull request; its id."""
        self.number += 1
        self.change(files, f"Mend it (#{self.number})")
        return f"#{self.number}"


OLD = "import lib\n\n\ndef test_one():\n    assert lib.one() == 1\n"


def slow_project(folder: Path, seconds: int = 1) -> tuple[Project, Path]:
    """Two changes whose tests take so many seconds, and the root of a dataset."""
    project = Project(folder)
    for name in ("a", "b"):
        body = f"    time.sleep({seconds})\n    import {name}\n"
        test = f"import time\n\n\ndef test_{name}():\n{body}"
        project.pull({f"{name}.py": "one = 1\ntwo = 2\n", f"tests/test_{name}.py": test})
    root = folder / "dataset"
    root.mkdir()
    (root / "kbench.toml").write_text(CONFIG.replace("sec = 5", "sec = 20"), encoding="utf-8")
    return project, root


def start(root: Path, *argv: str) -> subprocess.Popen[str]:
    """`kbench mine …` in a dataset's root, not waited for."""
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}
    return subprocess.Popen(
        [sys.executable, "-c", main, "mine", *argv],
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended, and what of it the engine still holds."""

    code: int
    stdout: str
    stderr: str
    left: tuple[str, ...]

    @property
    def trials(self) -> dict[str, Any]:
        """What JSON says of the trials."""
        value: dict[str, Any] = json.loads(self.stdout)["trials"]
        return value


def kbench(root: Path, *argv: str) -> Done:
    """`kbench mine …` in a dataset's root."""
    process = start(root, *argv)
    stdout, stderr = process.communicate()
    return Done(code=process.returncode, stdout=stdout, stderr=stderr, left=left_by(process.pid))


def left_by(pid: int) -> tuple[str, ...]:
    """The containers and kept images of a process."""
    own = f"kbench-{pid}-"
    tags = (tag.partition(":") for tag in engine_box.engine.images())
    kept = (tag for name, _, tag in tags if name == KEPT)
    return tuple(name for name in (*engine_box.containers(), *kept) if name.startswith(own))
