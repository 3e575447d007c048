"""A repository whose changes end in every way that a trial can, and an image to try them in.

Its tests are Python files with functions; `/run_tests.py` in the image runs those that it is given
and writes JUnit XML, with the words that pytest has for a file that it can't load.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    for test, function in vars(module).items():
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
def image(folder: Path, *, without: str = "", name: str = IMAGE) -> Iterator[str]:
    """The image, while it is there; without some of its programs."""
    programs = " ".join(p for p in verifier_image.PROGRAMS.split() if p not in without.split())
    text = f"FROM scratch\nADD root.tar /\nADD run_tests.py /\nRUN {verifier_image.LINK_PYTHON}\n"
    context = {
        "root.tar": verifier_image.programs(f"{programs} rmdir id"),
        "run_tests.py": RUNNER.encode(),
        "Dockerfile": text.encode(),
    }
    result = engine_box.engine.build(engine_box.spec(folder, text, image=name, context=context))
    assert result.status == "built", result
    try:
        yield name
    finally:
        engine_box.engine._api.client.remove_image(name, force=True)


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


def kbench(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """`kbench mine …` in a dataset's root."""
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}
    command = [sys.executable, "-c", main, "mine", *argv]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
