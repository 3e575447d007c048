"""Small datasets for the graph, and doit as a user runs it: in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
DODO = (ROOT / "dodo.py").read_text(encoding="utf-8")

TASK_TOML = """version = "1.0"

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 60.0

[environment]
cpus = 1
memory_mb = 256
"""
TEST_SH = """#!/bin/bash
if [ -e /work/fixed ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write(path: Path, text: str) -> None:
    """A file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make_dataset(
    root: Path,
    *,
    tasks: int = 3,
    image: str = "ubuntu:24.04",
    bases: Mapping[str, str] | None = None,
    namespace: str = "kbench-test",
    require: str = '["validate"]',
) -> Path:
    """Plain Harbor tasks `acme__tool-<n>`, each with its own Dockerfile on `image`.

    `bases` are Dockerfiles' texts by tag of the repository `tool`.
    """
    write(root / "dodo.py", DODO)
    write(
        root / "kbench.toml",
        f'[dataset]\nname = "small"\nversion = "1.0.0"\nnamespace = "{namespace}"\n'
        f"[release]\nrequire = {require}\n",
    )
    if bases:
        write(root / "bases" / "manifest", "".join(f"tool {t} Dockerfile.{t}\n" for t in bases))
        for tag, text in bases.items():
            write(root / "bases" / "tool" / f"Dockerfile.{tag}", text)
    for number in range(1, tasks + 1):
        make_task(root, f"acme__tool-{number}", image)
    return root


def make_task(root: Path, task: str, image: str) -> None:
    """One plain Harbor task, whose solution makes a file that its test looks for."""
    folder = root / "tasks" / task
    write(folder / "task.toml", TASK_TOML)
    write(folder / "instruction.md", f"Make the file /work/fixed ({task}).\n")
    write(folder / "environment" / "Dockerfile", f"FROM {image}\nENV TASK={task}\nWORKDIR /work\n")
    write(folder / "solution" / "solve.sh", "#!/bin/bash\ntouch /work/fixed\n")
    write(folder / "tests" / "test.sh", TEST_SH)


def command(*arguments: str) -> list[str]:
    """The command line of doit."""
    return [sys.executable, "-m", "doit", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, without colours."""
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), **changes}


def doit(
    root: Path, *arguments: str, code: int | None = 0, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run doit in the dataset; `code` is the exit code to insist on."""
    done = subprocess.run(
        command(*arguments),
        cwd=root,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def counts(output: str) -> dict[str, int]:
    """The totals in the last line: `3 done, 1 up to date in 0.2 s`."""
    last = output.strip().splitlines()[-1]
    return {what: int(n) for n, what in re.findall(r"(\d+) (done|up to date|failed|not run)", last)}


def lines(output: str, step: str) -> list[str]:
    """The subjects that were done in a step, in order."""
    found = (re.match(r"(?:ok|failed|error)\s+(\w+)\s+(\S+)", line) for line in output.splitlines())
    return [match[2] for match in found if match and match[1] == step]
