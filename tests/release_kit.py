"""A small dataset to release: two tasks on two bases, with the reports that a release needs."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbench_build import digest
from kbench_build.model import Base, Finding, Report
from kbench_build.rim.dataset import open_dataset
from kbench_build.rim.store import write_whole
from kbench_build.rim.tree import scan_tree
from kbench_build.rules import findings
from kbench_build.rules.draft import Proof
from kbench_build.rules.images import Recipe
from kbench_build.rules.lock import Lock, parse_lock
from kbench_build.rules.manifest import parse_manifest
from kbench_build.steps import release as release_step
from kbench_build.steps import verify as verify_step

STEPS = ("validate", "seal", "selfcheck")
ADDER, TEXT = "acme_adder-7", "acme_text-12"

CONFIG = """[dataset]
name = "demo"
version = "{version}"
description = "Two tasks | for tests"

[release]
require = {require}
"""

TOML = """schema_version = "1.4"

[task]
name = "kotlin-bench/{id}"

[metadata]
difficulty = "easy"

[metadata.source]
repository_url = "https://example.org/acme/{repo}"
license = "{license}"
code_change_url = "https://example.org/acme/{repo}/pull/1"
base_commit = "{commit}"

[environment]
cpus = 2
memory_mb = 2048

[verifier]
timeout_sec = 60.0
"""

FILES: Mapping[str, str] = {
    "LICENSE": "Apache License 2.0\n",
    "bases/manifest": "debian slim Dockerfile\nadder jdk17 Dockerfile.jdk17\ntext k19 Dockerfile\n",
    "bases/debian/Dockerfile": "FROM scratch\nADD rootfs.tar /\n",
    "bases/adder/Dockerfile.jdk17": "FROM kotlin-bench/debian:slim\n",
    "bases/adder/notes.md": "Built once a year.\n",
    "bases/text/Dockerfile": "FROM kotlin-bench/debian:slim\nCOPY größe.txt /\n",
    "bases/text/größe.txt": "42\n",
}

TASK_FILES: Mapping[str, str] = {
    "instruction.md": "Adding is broken.\n",
    "environment/Dockerfile": "FROM kotlin-bench/{repo}:{tag}\n",
    "environment/prepare.sh": "git checkout {commit}\n",
    "solution/fix.patch": "--- a\n+++ b\n",
    "solution/solve.sh": "git apply /solution/fix.patch\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "tests/expected_tests.json": '{{"f2p_tests": ["{id} ü"]}}\n',
}


@dataclass(kw_only=True)
class Kit:
    """A dataset under test, and the reports about it."""

    root: Path
    reports: dict[str, dict[str, Report]]
    expected: dict[str, dict[str, str]]
    recipes: dict[str, Recipe]

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, name: str, text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.path(name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def configure(self, version: str = "1.0.0", require: tuple[str, ...] = STEPS) -> None:
        self.write("kbench.toml", CONFIG.format(version=version, require=list(require)))

    @property
    def proof(self) -> Proof:
        bases, _ = parse_manifest(open_dataset(self.root).manifest)
        return Proof(
            bases=bases,
            recipes=tuple(self.recipes.values()),
            reports=self.reports,
            expected=self.expected,
        )

    def release(self, **options: Any) -> Report:
        return release_step.release(open_dataset(self.root), self.proof, inputs="now", **options)

    def released(self, **options: Any) -> Path:
        """Release, which must work; the folder."""
        report = self.release(**options)
        assert report.ok, report.summary
        return self.path(report.data["folder"])

    def refusals(self, **options: Any) -> list[Finding]:
        """The errors of a release that must be refused."""
        before = snapshot(self.path("dist"))
        report = self.release(**options)
        assert not report.ok
        assert not report.data["is_new"]
        assert snapshot(self.path("dist")) == before
        return errors_of(report)

    def rebuild(self) -> None:
        """Recipes as they would be for the files as they are now."""
        bases, _ = parse_manifest(self.path("bases/manifest").read_text(encoding="utf-8"))
        for base in bases:
            made = self._base_recipe(base)
            self.recipes[made.image] = made
        for task in open_dataset(self.root).tasks:
            made = self._task_recipe(task)
            self.recipes[made.image] = made

    def _base_recipe(self, base: Base) -> Recipe:
        # As the real recipes: only what the Dockerfile copies counts, never the notes.
        seen = [f for f in scan_tree(self.path(base.context)) if f.path != "notes.md"]
        above = () if base.repo == "debian" else ("kotlin-bench/debian:slim",)
        parts = [digest.of_tree(seen), *(self.recipes[a].digest for a in above)]
        return Recipe(
            image=f"kotlin-bench/{base.name}",
            subject=base.name,
            digest=digest.of_json(parts),
            files=(),
            inputs=(),
            stands_on=above,
        )

    def _task_recipe(self, task: str) -> Recipe:
        text = self.path(f"tasks/{task}/environment/Dockerfile").read_text(encoding="utf-8")
        image = text.split()[1]
        tree = digest.of_tree(scan_tree(self.path(f"tasks/{task}/environment")))
        return Recipe(
            image=f"kotlin-bench/task:{task}",
            subject=task,
            digest=digest.of_json([tree, self.recipes[image].digest]),
            files=(),
            inputs=(),
            stands_on=(image,),
        )

    def add_task(self, task: str, repo: str, tag: str) -> None:
        values = {
            "id": task,
            "repo": repo,
            "tag": tag,
            "commit": digest.of_text(task)[:40],
            "license": "MIT" if repo == "text" else "Apache-2.0",
        }
        self.write(f"tasks/{task}/task.toml", TOML.format(**values))
        for name, text in TASK_FILES.items():
            self.write(f"tasks/{task}/{name}", text.format(**values))
        self.rebuild()
        self.prove(task)

    def remove_task(self, task: str) -> None:
        shutil.rmtree(self.path(f"tasks/{task}"))
        self.recipes.pop(f"kotlin-bench/task:{task}")
        for step in STEPS:
            self.reports[step].pop(task)
            self.expected[step].pop(task)

    def prove(self, subject: str, steps: tuple[str, ...] = STEPS) -> None:
        for step in steps:
            self.expected.setdefault(step, {})[subject] = f"{step} {subject}"
            self.reports.setdefault(step, {})[subject] = report(step, subject)

    def change_report(self, step: str, subject: str, **values: Any) -> None:
        self.reports[step][subject] = replace(self.reports[step][subject], **values)


def report(step: str, subject: str, **values: Any) -> Report:
    data: dict[str, Any] = {"step": step}
    if step == "seal":
        data = {"proof": {"objects": 3, "refs": ["HEAD"], "names": ["HEAD", "objects"]}}
    if step == "selfcheck":
        data = {
            "runs": 1,
            "results": [{"kind": "nop", "reward": 0}, {"kind": "oracle", "reward": 1}],
        }
    given = {"inputs": f"{step} {subject}", "ok": True, "summary": "fine", "seconds": 1.5}
    return Report(step=step, subject=subject, **{**given, "data": data, **values})


def make_kit(root: Path) -> Kit:
    """The dataset: debian under adder and text, one task on each."""
    kit = Kit(root=root, reports={}, expected={}, recipes={})
    for name, text in FILES.items():
        kit.write(name, text)
    kit.configure()
    kit.path("tasks").mkdir(parents=True)
    kit.rebuild()
    kit.add_task(ADDER, "adder", "jdk17")
    kit.add_task(TEXT, "text", "k19")
    run_bit = kit.path(f"tasks/{TEXT}/tests/test.sh")
    run_bit.chmod(0o755)
    kit.path(f"tasks/{TEXT}/tests/latest.json").symlink_to("expected_tests.json")
    kit.prove("@dataset", ("validate",))
    return kit


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder, with its mode and digest."""
    if not folder.exists():
        return {}
    return {
        str(p.relative_to(folder)): (p.stat().st_mode, digest.of_bytes(p.read_bytes()))
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def errors_of(found: Report) -> list[Finding]:
    every = [findings.from_json(value) for value in found.data["findings"]]
    return [f for f in every if f.severity == "error"]


def rules_of(found: list[Finding]) -> set[str]:
    return {f.rule for f in found}


def verify(folder: Path, **options: Any) -> Report:
    return verify_step.verify(folder, **options)


def read_lock(folder: Path) -> Lock:
    return parse_lock((folder / "lock.json").read_bytes())


def rewrite(path: Path, data: bytes) -> None:
    """Change a file of a release, which is read-only."""
    mode = path.stat().st_mode
    write_whole(path, data, mode & 0o777)


if __name__ == "__main__":
    # Makes the release of a new kit in the given folder and prints the tarball's path: for tests
    # that vary what surrounds the process. Further arguments: threads, and the order of creation.
    target, threads, order = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.umask(int(sys.argv[4], 8))
    made = make_kit(target)
    if order == "backwards":
        files = sorted((p for p in target.rglob("*") if p.is_file()), reverse=True)
        contents = [(p, p.read_bytes(), p.stat().st_mode, p.is_symlink()) for p in files]
        for path, content, mode, is_link in contents:
            if not is_link:
                path.unlink()
                path.write_bytes(content)
                path.chmod(mode)
    release_folder = made.released(threads=threads)
    print(next(release_folder.glob("*.tar.zst")))
