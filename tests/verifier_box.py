"""A container made of namespaces, in which tests run the shipped verifier at its real paths.

The root is a folder of the test; the host's /usr and /etc are in it, read-only. Needs root and
unshare(1): where a machine allows neither, the tests that use it fail in CI and are skipped
elsewhere.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.runtime import junit_compare
from kbench_build.steps.sync import sync

PROJECT = Path(__file__).parent / "data" / "verifier_project"
ENTER = Path(__file__).parent / "data" / "enter_box.sh"
WORKDIR = "home/up"

# What the build of the little project reports in the hidden tests' class, and in its others.
EXPECTED = {
    "f2p_tests": ["app.CalcTest.adds two numbers"],
    "p2p_tests": ["app.CalcTest.keeps", "core.WordsTest.joins \u201cquotes\u201d & spaces"],
    "s2p_tests": ["core.WordsTest.was skipped"],
    "n2p_tests": ["core.NewTest.appears[1]"],
}


def usable() -> bool:
    """Whether this machine lets us make such a container."""
    command = ["unshare", "--mount", "--pid", "--fork", "true"]
    return shutil.which("unshare") is not None and _quiet(command) == 0


def _quiet(command: Sequence[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def git(where: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """Real git with nobody's configuration and a fixed clock."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": "2024-05-01T10:00:00Z",
        "GIT_COMMITTER_DATE": "2024-05-01T10:00:00Z",
    }
    settings = ["-c", "user.name=Tests", "-c", "user.email=tests@example.invalid"]
    done = subprocess.run(
        ["git", *settings, *arguments],
        cwd=where,
        env=environment,
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@dataclass(kw_only=True)
class Graded:
    """What the verifier left, and how it ended."""

    reward: str
    report: dict[str, Any]
    code: int
    output: str
    seconds: float = 0.0

    @property
    def kinds(self) -> set[str]:
        """The kinds of errors that the report names."""
        return {error["kind"] for error in self.report["errors"]}


@dataclass(kw_only=True)
class Box:
    """One container: the checkout, /tests, /solution and /logs of a task."""

    root: Path

    @property
    def checkout(self) -> Path:
        return self.root / WORKDIR

    @property
    def tests(self) -> Path:
        return self.root / "tests"

    @property
    def logs(self) -> Path:
        return self.root / "logs" / "verifier"

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command as process 1 of the container."""
        plain = {"PATH": "/usr/bin:/bin", "HOME": "/root", **(env or {})}
        words = [f"{key}={value}" for key, value in plain.items()]
        return subprocess.run(
            ["bash", str(ENTER), str(self.root), "/usr/bin/env", "-i", *words, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )

    def shell(
        self, script: str, *, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a bash script as process 1 of the container, in the checkout."""
        return self.run("bash", "-c", f"cd /{WORKDIR}\n{script}", env=env, timeout=timeout)

    def solve(self) -> None:
        """Apply the gold patch the way that the oracle does."""
        done = self.shell("bash /solution/solve.sh")
        assert done.returncode == 0, done.stdout.decode()

    def grade(
        self, before: str = "", *, env: Mapping[str, str] | None = None, after: str = ""
    ) -> Graded:
        """Run the shipped test.sh; `before` and `after` run in the same container."""
        script = f"{before}\nbash /tests/test.sh\ncode=$?\n{after}\nexit $code"
        done = self.shell(script, env=env)
        return self.graded(done.returncode, done.stdout.decode("utf-8", "replace"))

    def grade_alone(self) -> Graded:
        """Run test.sh as process 1 without the right to trace, as engines start a container."""
        less = ("--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
        done = self.run("setpriv", *less, "bash", "/tests/test.sh")
        return self.graded(done.returncode, done.stdout.decode("utf-8", "replace"))

    def graded(self, code: int, output: str) -> Graded:
        """Read what was left. A report must be there, and its score must follow from it."""
        assert not (self.logs / "reward.json").exists(), output
        reward = (self.logs / "reward.txt").read_text()
        report = json.loads((self.logs / "report.json").read_text())
        assert reward == f"{report['reward']}\n", output
        expected = frozenset(i for ids in EXPECTED.values() for i in ids)
        assert junit_compare.rescore(report, expected) == report["reward"], output
        return Graded(reward=reward.strip(), report=report, code=code, output=output)

    def data(self) -> dict[str, Any]:
        """verify.json's value."""
        value: dict[str, Any] = json.loads((self.tests / "verify.json").read_text())
        return value

    def edit_data(self, **changes: Any) -> None:
        """Change keys of verify.json."""
        (self.tests / "verify.json").write_text(json.dumps({**self.data(), **changes}))


def make_box(root: Path) -> Box:
    """A task of its own: the little project at its base, the hidden patch, the gold patch.

    The task is completed the way that an author completes one, by `kbench sync`.
    """
    box = Box(root=root)
    box.logs.mkdir(parents=True)
    shutil.copytree(PROJECT / "base", box.checkout)
    git(box.checkout, "init", "--quiet", "--initial-branch=main")
    git(box.checkout, "add", "--all")
    git(box.checkout, "update-index", "--chmod=+x", "tools/check.sh")
    git(box.checkout, "commit", "--quiet", "--message=The base")
    git(box.checkout, "reset", "--quiet", "--hard")
    task = root / "dataset" / "tasks" / "acme_up-1"
    for part in ("tests", "solution"):
        (task / part).mkdir(parents=True)
    (task / "tests" / "test.patch").write_bytes(_patch(box.checkout, PROJECT / "hidden"))
    (task / "solution" / "fix.patch").write_bytes(_patch(box.checkout, PROJECT / "fix"))
    (task / "tests" / "expected_tests.json").write_text(json.dumps(EXPECTED))
    base = git(box.checkout, "rev-parse", "HEAD").decode().strip()
    (task / "tests" / "verify.json").write_text(json.dumps(_data(base)))
    (synced,) = sync(root / "dataset", ["acme_up-1"], repository=box.checkout)
    assert not synced.findings
    for part in ("tests", "solution"):
        (task / part).rename(root / part)
    shutil.rmtree(root / "dataset")
    return box


def copy_box(template: Box, root: Path) -> Box:
    """The same again, for a test to spoil."""
    subprocess.run(["cp", "-a", str(template.root), str(root)], check=True)
    return Box(root=root)


def _data(base: str) -> dict[str, Any]:
    return {
        "version": 1,
        "workdir": f"/{WORKDIR}",
        "base_commit": base,
        "command": ["python3", "build.py"],
        "environment": {"BUILD": "full"},
        "timeout_sec": 30,
        "reports": ["**/build/test-results/test/TEST-*.xml"],
        "protected": {"globs": ["**/src/test/**", "build.py", "tools/**"]},
    }


def _patch(checkout: Path, overlay: Path) -> bytes:
    """The difference that laying the overlay's files over the base makes; the base again after."""
    shutil.copytree(overlay, checkout, dirs_exist_ok=True)
    deleted = checkout / "deleted.txt"
    if deleted.exists():
        for line in deleted.read_text().splitlines():
            (checkout / line).unlink()
        deleted.unlink()
    # Without the index git reads every file again: sizes and times may be the same.
    (checkout / ".git" / "index").unlink()
    git(checkout, "add", "--all")
    if overlay.name == "hidden":
        git(checkout, "update-index", "--chmod=-x", "tools/check.sh")
    patch = git(checkout, "diff", "--cached", "--binary", "--full-index")
    git(checkout, "reset", "--quiet", "--hard")
    return patch
