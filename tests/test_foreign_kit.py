"""The dataset in the older shape is what its kit says: patches fit, and validation reads it."""

import json
import subprocess
from pathlib import Path

from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import open_dataset
from kbench_build.rules.manifest import parse_manifest
from kbench_build.steps import validate
from tests.foreign_kit import TASKS, make
from tests.verifier_box import git


def test_both_patches_apply_to_each_base_and_give_what_upstream_has(tmp_path: Path) -> None:
    made = make(tmp_path)
    for task in TASKS:
        git(made.upstream, "checkout", "--quiet", made.bases[task])
        for place in ("solution/fix.patch", "tests/test.patch"):
            git(made.upstream, "apply", "--index", str(made.task(task) / place))
        assert git(made.upstream, "diff", made.fixes[task]) == b""
        git(made.upstream, "checkout", "--quiet", "--force", "main")


def test_the_build_reports_what_the_expected_tests_say(tmp_path: Path) -> None:
    made = make(tmp_path)
    seen = {}
    for commit in (*made.bases.values(), made.fixes[TASKS[1]]):
        git(made.upstream, "checkout", "--quiet", commit)
        subprocess.run(["sh", "gradlew", "clean", "test"], cwd=made.upstream, check=False)
        report = made.upstream / "app/build/test-results/test/TEST-acme.AdderTest.xml"
        seen[commit] = (report.read_text().count("<testcase"), report.read_text().count("<failure"))
    assert list(seen.values()) == [(2, 0), (3, 0), (4, 0)]
    expected = json.loads((made.task(TASKS[0]) / "tests/expected_tests.json").read_text())
    assert expected["p2p_tests"] == expected["test_patch_result"]["passed_tests"]


def test_it_is_the_older_shape(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert sorted(p.name for p in made.root.iterdir()) == ["bases", "tasks"]
    found = open_dataset(made.root)
    bases, problems = parse_manifest(found.manifest)
    assert (found.tasks, [b.name for b in bases], problems) == (TASKS, ["adder:jdk17"], ())
    for task in TASKS:
        report = validate.validate_task(
            made.root, task, config=load_config(made.root), bases=bases, inputs="-"
        )
        assert report.data["form"] == "own"
        errors = {f["rule"] for f in report.data["findings"] if f["severity"] == "error"}
        assert all(rule.startswith("verifier/") for rule in errors), errors
