"""Findings that a maintainer answers for: listed in every report, and named once they are idle."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbench_build.cli import cli
from kbench_build.model import Finding, Report, Suppression
from kbench_build.rim.config import load_config
from kbench_build.rules.findings import still_answered, to_json
from kbench_build.steps import validate
from tests.samples import TASK, Sample

WISH = "the number is what the wish is about"


def answered(root: Path, *entries: tuple[str, str], reason: str = WISH) -> Sample:
    """A dataset whose statement names the change, and these (rule, task) in its kbench.toml."""
    sample = Sample(root, "own")
    sample.write("instruction.md", "Adding 1 and 1 gives 0, see PR #7.\n")
    text = (
        f"[[suppress]]\nrule = {rule!r}\ntask = {task!r}\nreason = {reason!r}\n"
        for rule, task in entries
    )
    (root / "kbench.toml").write_text("\n".join(text), encoding="utf-8")
    sample.config = load_config(root)
    return sample


def idle(report: Report) -> list[Finding]:
    return [f for f in validate.findings_of(report) if f.rule == "suppress/unused"]


def shown(root: Path, style: str, *words: str) -> str:
    said = CliRunner().invoke(cli, ["validate", str(root), *words, "--format", style])
    assert said.exception is None or isinstance(said.exception, SystemExit)
    return said.output


def test_a_report_lists_what_was_answered_for(tmp_path: Path) -> None:
    report = answered(tmp_path, ("statement/fix-link", TASK)).validate()
    (entry,) = report.data["suppressed"]
    assert (entry["rule"], entry["reason"]) == ("statement/fix-link", WISH)
    assert "1 suppressed" in report.summary


@pytest.mark.parametrize("style", ["text", "json", "sarif", "github"])
def test_every_format_lists_what_was_answered_for(tmp_path: Path, style: str) -> None:
    answered(tmp_path, ("statement/fix-link", "acme_*"))
    said = shown(tmp_path, style)
    assert "statement/fix-link" in said
    assert WISH in said
    if style == "sarif":
        results = json.loads(said)["runs"][0]["results"]
        (result,) = [r for r in results if r["ruleId"] == "statement/fix-link"]
        assert [s["justification"] for s in result["suppressions"]] == [WISH]


def test_a_suppression_that_answers_for_nothing_is_a_finding(tmp_path: Path) -> None:
    sample = answered(tmp_path, ("statement/fix-link", TASK), ("statement/fix-id", TASK))
    (finding,) = idle(sample.validate())
    assert (finding.rule, finding.file, finding.where) == (
        "suppress/unused",
        "kbench.toml",
        "suppress[1]",
    )
    assert "statement/fix-id finds nothing in acme_adder-7" in finding.message


@pytest.mark.parametrize(
    ("rule", "task"),
    [
        ("statement/*", TASK),
        ("statement/fix-link", "acme_*"),
        # Rules of other steps, of the dataset, and of an upstream that isn't at hand weren't asked.
        ("tests/unstable", TASK),
        ("patch/order", TASK),
        ("duplicate/change", TASK),
        ("*", TASK),
    ],
)
def test_what_may_answer_for_something_is_let_be(tmp_path: Path, rule: str, task: str) -> None:
    sample = answered(tmp_path, ("statement/fix-link", TASK), (rule, task))
    assert idle(sample.validate()) == []
    assert idle(sample.validate_dataset()) == []


def test_one_of_the_dataset_that_is_idle_is_a_finding(tmp_path: Path) -> None:
    sample = answered(tmp_path, ("duplicate/change", "@dataset"), ("statement/fix-link", TASK))
    assert len(idle(sample.validate_dataset())) == 1


def test_one_for_several_tasks_is_idle_once_all_were_asked(tmp_path: Path) -> None:
    answered(tmp_path, ("statement/fix-link", "*"), ("statement/fix-id", "acme_*"))
    said = shown(tmp_path, "text")
    assert "suppress[1]" in said
    assert "statement/fix-id finds nothing in acme_*" in said
    assert "suppress[0]" not in said
    assert "suppress/unused" not in shown(tmp_path, "text", TASK)


def test_a_report_holds_as_long_as_somebody_answers_for_what_it_let_be() -> None:
    found = Finding(
        rule="probe/unguarded", severity="warning", file="tasks/a/x", message="m", mend="n"
    )
    held = [{**to_json(found), "reason": "r"}]
    answer = Suppression(rule="probe/*", task="a", reason="r")
    assert still_answered([], "a", [])
    assert still_answered(held, "a", [answer])
    assert not still_answered(held, "a", [])
    assert not still_answered(held, "a", [replace(answer, task="b")])
    assert not still_answered(held, "a", [replace(answer, reason="another")])
