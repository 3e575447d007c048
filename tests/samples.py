"""Sound little tasks of every form, made with real git, for tests to break one thing at a time."""

import json
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kbench_build.model import Base, Finding, Report
from kbench_build.rim.config import Config
from kbench_build.rim.dataset import open_dataset
from kbench_build.rules.manifest import parse_manifest
from kbench_build.steps import validate

TASK = "acme_adder-7"
BASE = "a" * 40
DIGEST = f"sha256:{'b' * 64}"
MANIFEST = "adder history Dockerfile.history\nadder jdk17 Dockerfile.jdk17\n"
SOURCE = "src/main/kotlin/Adder.kt"
SPEC = "src/test/kotlin/AdderTest.kt"

_BEFORE = {
    SOURCE: "class Adder {\n    fun add(left: Int, right: Int) = left - right\n}\n",
    SPEC: "class AdderTest {\n    @Test fun zero() = assertEquals(0, Adder().add(0, 0))\n}\n",
}
_AFTER = {
    SOURCE: "class Adder {\n    fun add(left: Int, right: Int): Int = left.plus(right)\n"
    "    // Overflow wraps, as for every Int.\n    fun twice(value: Int) = add(value, value)\n}\n",
    SPEC: "class AdderTest {\n    @Test fun zero() = assertEquals(0, Adder().add(0, 0))\n"
    "    @Test fun two() = assertEquals(2, Adder().add(1, 1))\n}\n",
}

TASK_TOML = f"""schema_version = "1.4"

[task]
name = "kotlin-bench/acme_adder-7"
description = "Adding two numbers subtracts them."

[metadata]
difficulty = "easy"
category = "bug-fix"

[metadata.source]
repository_owner = "acme"
repository_name = "adder"
repository_url = "https://example.org/acme/adder"
license = "Apache-2.0"
code_change_type = "pull_request"
code_change_id = "7"
code_change_url = "https://example.org/acme/adder/pull/7"
issue_urls = ["https://example.org/acme/adder/issues/6"]
base_commit = "{BASE}"

[environment]
build_timeout_sec = 600.0
cpus = 2
memory_mb = 2048

[agent]
timeout_sec = 1800.0
network_mode = "allowlist"
allowed_hosts = ["repo.example.org", "*.example.net"]

[verifier]
timeout_sec = 900.0
network_mode = "no-network"
"""

PLAIN_TOML = """version = "1.0"

[metadata]
difficulty = "medium"
tags = ["javascript"]

[verifier]
timeout_sec = 600.0

[environment]
cpus = 1
memory_mb = 2048
gpus = 0

[verifier.env]

[solution.env]
"""

DOCKERFILE = f"""FROM kotlin-bench/adder:history AS sealed
COPY seal_git_history.sh /opt/kbench/
RUN bash /opt/kbench/seal_git_history.sh /home/adder {BASE} none
FROM kotlin-bench/adder:jdk17
COPY --from=sealed /home/adder /home/adder
COPY prepare.sh check_git_changes.sh /opt/kbench/
RUN bash /opt/kbench/prepare.sh
WORKDIR /home/adder
"""

# A sound verifier of a task's own: it fails closed.
OWN_TEST = """#!/bin/bash
PATH=/usr/bin:/bin
echo 0 > /logs/verifier/reward.txt
cd /home/adder || exit 1
git apply /tests/test.patch || exit 1
find . -path '*/build/test-results/*' -name '*.xml' -delete
./gradlew --offline test --continue
if python3 /tests/compare.py .; then
  echo 1 > /logs/verifier/reward.txt
fi
"""

PLAIN_TEST = """#!/bin/bash
PATH=/usr/bin:/bin
echo 0 > /logs/verifier/reward.txt
cd /app || exit 1
cp /tests/adder.spec.js spec/adder.spec.js || exit 1
npx mocha --reporter json --reporter-option output=/tmp/report.json spec/adder.spec.js
if node /tests/compare.js /tmp/report.json; then
  echo 1 > /logs/verifier/reward.txt
fi
"""


@cache
def patches() -> tuple[bytes, bytes, dict[str, dict[str, str | None]]]:
    """The gold patch, the hidden patch, and verify.json's `hidden`, from a real repository."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        _git(root, "init", "-q")
        _write(root, _BEFORE)
        _git(root, "add", ".")
        _git(root, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "base")
        before = _blob(root, SPEC)
        _write(root, _AFTER)
        diff = ("diff", "--binary", "--full-index")
        fix, test = (_git(root, *diff, "--", path) for path in (SOURCE, SPEC))
        return fix, test, {SPEC: {"base": before, "after": _blob(root, SPEC)}}


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, timeout=60
    ).stdout


def _blob(root: Path, path: str) -> str:
    return "100644 " + _git(root, "hash-object", path).decode().strip()


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def expected() -> dict[str, Any]:
    """Expected tests that agree with what they say of before."""
    before = {"passed_tests": ["AdderTest.zero"], "failed_tests": [], "skipped_tests": []}
    return {
        "f2p_tests": ["AdderTest.two"],
        "p2p_tests": ["AdderTest.zero"],
        "s2p_tests": [],
        "n2p_tests": [],
        "run_result": before,
        "test_patch_result": {**before, "failed_tests": ["AdderTest.two"]},
    }


def verify() -> dict[str, Any]:
    """The data of the shipped verifier."""
    return {
        "version": 1,
        "workdir": "/home/adder",
        "base_commit": BASE,
        "command": ["gradle", "--offline", "test", "--continue"],
        "environment": {"PATH": "/usr/bin"},
        "timeout_sec": 600,
        "reports": ["**/build/test-results/test/TEST-*.xml"],
        "hidden": patches()[2],
        "protected": {"globs": ["**/src/test/**", "build.gradle"], "files": {}},
    }


class Sample:
    """A dataset with one task in `root`, and the means to break it."""

    def __init__(self, root: Path, form: str = "shipped") -> None:
        self.root = root
        self.form = form
        self.task = root / "tasks" / TASK
        self.config = Config(name="sample")
        {"shipped": self._shipped, "own": self._own, "plain": self._plain}[form]()

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file of the task."""
        _put(self.task / path, content)

    def remove(self, path: str) -> None:
        """Delete a file of the task."""
        (self.task / path).unlink()

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text in a file of the task; it must be there."""
        text = (self.task / path).read_bytes().decode()
        assert old in text, f"{path} has no {old!r}"
        self.write(path, text.replace(old, new))

    def change(self, path: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change a JSON file of the task."""
        value = json.loads((self.task / path).read_bytes())
        change(value)
        self.write(path, json.dumps(value))

    def bases(self) -> tuple[Base, ...]:
        """The bases of the manifest."""
        return parse_manifest(open_dataset(self.root).manifest)[0]

    def validate(self) -> Report:
        """What validation says of the task."""
        return validate.validate_task(
            self.root, TASK, config=self.config, bases=self.bases(), inputs="-"
        )

    def validate_dataset(self) -> Report:
        """What validation says of the dataset as a whole."""
        found = open_dataset(self.root)
        return validate.validate_dataset(
            self.root, tasks=found.tasks, manifest=found.manifest, config=self.config, inputs="-"
        )

    def _common(self, config: str) -> None:
        fix, _, _ = patches()
        self.write("task.toml", config)
        self.write("instruction.md", "Adding 1 and 1 gives 0. It should give 2.\n")
        self.write("solution/fix.patch", fix)

    def _shipped(self) -> None:
        self._common(TASK_TOML)
        for path, content in validate.shipped().items():
            self.write(path, content)
        self.write("environment/Dockerfile", DOCKERFILE)
        self.write("environment/prepare.sh", f"git checkout --detach {BASE}\n")
        self.write("tests/test.patch", patches()[1])
        self.write("tests/expected_tests.json", json.dumps(expected()))
        self.write("tests/verify.json", json.dumps(verify()))
        self._with_bases()

    def _own(self) -> None:
        self._shipped()
        self.remove("tests/verify.json")
        self.remove("tests/verify_checkout.py")
        self.write("tests/test.sh", OWN_TEST)
        self.write("tests/compare.py", "raise SystemExit(1)\n")

    def _plain(self) -> None:
        self._common(PLAIN_TOML)
        self.write("environment/Dockerfile", f"FROM node:22.4@{DIGEST}\nWORKDIR /app\n")
        self.write("solution/solve.sh", "patch -p1 < /solution/fix.patch\n")
        self.write("tests/test.sh", PLAIN_TEST)

    def _with_bases(self) -> None:
        _put(self.root / "bases/manifest", MANIFEST)
        _put(self.root / "bases/adder/Dockerfile.history", "FROM kotlin-bench/adder:jdk17\n")
        _put(self.root / "bases/adder/Dockerfile.jdk17", f"FROM debian:bookworm@{DIGEST}\n")


def _put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def rules(findings: Iterable[Finding]) -> list[str]:
    """The rules that fired, sorted, each once."""
    return sorted({finding.rule for finding in findings})
