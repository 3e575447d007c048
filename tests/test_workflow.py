"""The workflow that dataset repositories copy: valid YAML, pinned actions, commands that exist."""

import re
from pathlib import Path
from typing import Any

import yaml

from kbench_build.cli import cli
from kbench_build.graph import Graph

WORKFLOW = Path(__file__).parent.parent / ".github/workflows/integrity.yml"


def steps() -> list[dict[str, Any]]:
    document = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return [step for job in document["jobs"].values() for step in job["steps"]]


def test_actions_are_pinned_to_a_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", action) for action in used)


def test_it_can_only_read() -> None:
    document = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert document["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in WORKFLOW.read_text(encoding="utf-8")


def test_its_commands_exist() -> None:
    lines = [line.split() for step in steps() for line in step.get("run", "").splitlines()]
    called = {word for line in lines if line[:1] == ["doit"] for word in line[1:]}
    assert {"validate", "build_images", "seal", "selfcheck"} <= called
    assert all(hasattr(Graph, f"task_{word}") for word in called)
    assert {line[1] for line in lines if line[:1] == ["kbench"]} <= set(cli.commands)
