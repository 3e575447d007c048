"""The benchmark that this repository ships is sound: every check is silent on it."""

from pathlib import Path

from kbench_build.model import Finding
from kbench_build.rim.dataset import open_dataset
from kbench_build.rules.manifest import parse_manifest
from kbench_build.steps import validate

ROOT = Path(__file__).parent.parent


def test_no_check_fires_on_the_shipped_tasks() -> None:
    found: list[Finding] = []
    dataset = open_dataset(ROOT)
    bases, _ = parse_manifest(dataset.manifest)
    for task in dataset.tasks:
        report = validate.validate_task(ROOT, task, config=dataset.config, bases=bases, inputs="-")
        found += validate.findings_of(report)
    assert [str(finding) for finding in found] == []


def test_no_check_fires_on_the_shipped_dataset() -> None:
    dataset = open_dataset(ROOT)
    report = validate.validate_dataset(
        ROOT, tasks=dataset.tasks, manifest=dataset.manifest, config=dataset.config, inputs="-"
    )
    assert [str(f) for f in validate.findings_of(report)] == []
