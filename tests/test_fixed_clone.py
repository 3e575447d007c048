"""Builds that take the fixed commit are told from those that take another one."""

from pathlib import Path

import pytest

from kbench_build.steps import validate
from tests.samples import BASE, Sample
from tests.validate_cases import reverse_fix

OTHER = "c0de" * 10


def said(sample: Sample) -> list[tuple[str, str]]:
    found = validate.findings_of(sample.validate())
    return [(f.where, f.message) for f in found if f.rule == "leak/fixed-clone"]


def run(sample: Sample, command: str) -> None:
    sample.edit("environment/Dockerfile", "WORKDIR", f"RUN {command}\nWORKDIR")


@pytest.mark.parametrize(
    "ref", ["pull/7/head", "+refs/pull/7/merge:refs/x", "origin/pull/7", "merge-requests/7/head"]
)
def test_the_changes_own_ref_is_the_fix(tmp_path: Path, ref: str) -> None:
    sample = Sample(tmp_path, "plain")
    run(sample, f"cd /app && git fetch origin {ref}")
    assert [message.split(",")[0] for _, message in said(sample)] == [f"takes {ref}"]


def test_a_commit_before_a_reversed_fix_is_the_fix(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    run(sample, f"git clone https://example.org/a/b /app && git -C /app checkout {OTHER}")
    assert said(sample) == []
    reverse_fix(sample)
    ((where, message),) = said(sample)
    assert where == "line 2"
    assert message == f"takes {OTHER}, where the fix is, for it is taken back afterwards"


def test_a_commit_that_task_toml_gives_as_merged_is_the_fix(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    sample.edit("task.toml", "base_commit", f'merge_commit = "{OTHER}"\nbase_commit')
    sample.write("environment/prepare.sh", f"git checkout {OTHER}\ngit checkout {BASE}\n")
    ((_, message),) = said(sample)
    assert "which task.toml gives beside the base commit" in message


@pytest.mark.parametrize(
    "command",
    [
        "git fetch origin pull/77/head",
        "git clone --branch v7 https://example.org/acme/adder",
        "git clone https://example.org/pull/adder",
        f"curl -O https://example.org/{OTHER}.tar",
        "git checkout main",
    ],
)
def test_what_is_not_known_to_be_the_fix_is_let_be(tmp_path: Path, command: str) -> None:
    sample = Sample(tmp_path, "plain")
    reverse_fix(sample)
    run(sample, command)
    assert said(sample) == []


def test_the_base_commit_is_let_be(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    reverse_fix(sample)
    assert said(sample) == []
