"""One change under two ids, ids that collide, and tasks whose network differs from the others'."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from kbench_build.model import Suppression
from kbench_build.plan import Plan
from kbench_build.rules import duplicates
from kbench_build.rules.traits import Traits, from_text, traits_of
from kbench_build.steps import validate
from kbench_build.steps.survey import survey
from tests.samples import TASK, Sample, patches, rules

FAMILIES = ("duplicate/", "network/")
FIX = patches()[0]
OTHER_FIX = FIX.replace(b"twice", b"thrice")


def add(sample: Sample, task: str, *edits: tuple[str, str], fix: bytes = OTHER_FIX) -> None:
    """Another task like the first one, with these texts of its task.toml replaced."""
    folder = sample.root / "tasks" / task
    (folder / "solution").mkdir(parents=True)
    text = (sample.task / "task.toml").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (folder / "task.toml").write_text(text, encoding="utf-8")
    (folder / "solution" / "fix.patch").write_bytes(fix)


def said(sample: Sample) -> list[tuple[str, str, str]]:
    found = validate.findings_of(sample.validate_dataset())
    return [(f.rule, f.file, f.message) for f in found if f.rule.startswith(FAMILIES)]


@pytest.mark.parametrize("fix", [FIX, OTHER_FIX], ids=["same fix", "other fix"])
def test_one_change_under_two_ids_is_found_once(tmp_path: Path, fix: bytes) -> None:
    sample = Sample(tmp_path)
    add(sample, "acme_adder-8", ('"acme"', '"Acme"'), fix=fix)
    assert said(sample) == [
        (
            "duplicate/change",
            "tasks/acme_adder-8",
            f"is the change acme/adder#7, as {TASK!r} is already",
        )
    ]


def test_the_same_lines_changed_elsewhere_are_a_backport(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    moved = FIX.replace(b"@@ -1,3 ", b"@@ -41,3 ").replace(b"\n }\n", b"\n     }\n")
    assert moved != FIX
    add(sample, "acme_adder-8", ('code_change_id = "7"', 'code_change_id = "8"'), fix=moved)
    ((rule, file, message),) = said(sample)
    assert (rule, file) == ("duplicate/fix", "tasks/acme_adder-8/solution/fix.patch")
    assert message.endswith("one of #7 and #8 may be a backport of the other")


def test_the_same_lines_in_another_repository_are_a_forks(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    add(sample, "emca_adder-7", ("acme", "emca"), fix=FIX)
    ((rule, _, message),) = said(sample)
    assert (rule, message) == (
        "duplicate/fix",
        f"changes the same lines as {TASK!r}: emca/adder may be a fork of acme/adder, "
        "or the other way round",
    )


def test_other_changes_of_a_repository_are_no_duplicates(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    add(sample, "acme_adder-8", ('code_change_id = "7"', 'code_change_id = "8"'))
    add(sample, "acme_other-7", ('name = "adder"', 'name = "other"'), fix=b"")
    add(sample, "acme_none-7", ("[metadata.source]", "[metadata.none]"), fix=b"")
    assert said(sample) == []


def test_ids_that_are_cut_to_one_tag_are_found() -> None:
    long = "a" * 130
    assert list(duplicates.same_tag([long + "-1", long.upper() + "-2", "A" * 127, "a" * 127])) == [
        (long.upper() + "-2", f"begins with the same 128 characters as {long + '-1'!r}")
    ]


def test_ids_that_mix_up_two_repositories_are_found(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    owner = ('repository_owner = "acme"', 'repository_owner = "acme_adder"')
    name = ('repository_name = "adder"', 'repository_name = "core"')
    change = ('code_change_id = "7"', 'code_change_id = "8"')
    add(sample, "acme_adder_core-8", owner, name, change)
    add(
        sample,
        "acme__adder_core-9",
        ('repository_name = "adder"', 'repository_name = "adder_core"'),
        ('code_change_id = "7"', 'code_change_id = "9"'),
        fix=b"",
    )
    ((rule, file, message),) = said(sample)
    assert (rule, file) == ("duplicate/owner", "tasks/acme_adder_core-8")
    assert "acme_adder/core" in message
    assert "acme/adder_core" in message


def many(sample: Sample, count: int, *edits: tuple[str, str]) -> None:
    for number in range(100, 100 + count):
        change = ('code_change_id = "7"', f'code_change_id = "{number}"')
        add(sample, f"acme_adder-{number}", change, *edits, fix=b"")


def test_a_task_whose_network_differs_from_nearly_all_others_is_found(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    many(sample, 8)
    add(sample, "acme_more-1", ('"adder"', '"more"'), ('"*.example.net"', '"x.org"'), fix=b"")
    add(sample, "acme_open-1", ('"adder"', '"open"'), ('"no-network"', '"public"'), fix=b"")
    found = validate.findings_of(sample.validate_dataset())
    mine = [f for f in found if f.rule.startswith(FAMILIES)]
    assert [(f.rule, f.file, f.where, f.message) for f in mine] == [
        (
            "network/deviation",
            "tasks/acme_more-1/task.toml",
            "agent.allowed_hosts",
            "are others than those that 9 of 11 tasks have",
        ),
        (
            "network/deviation",
            "tasks/acme_open-1/task.toml",
            "verifier.network_mode",
            "is 'public' where 9 of 11 tasks have 'no-network'",
        ),
    ]


def test_hosts_in_another_order_and_two_kinds_of_tasks_are_no_deviation(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "one")
    old = '["repo.example.org", "*.example.net"]'
    many(sample, 8, (old, '["*.example.net", "repo.example.org"]'))
    assert said(sample) == []
    mixed = Sample(tmp_path / "two")
    many(mixed, 4)
    for number in range(3):
        change = ('code_change_id = "7"', f'code_change_id = "{number}"')
        add(mixed, f"acme_adder-{number}", change, ('"no-network"', '"public"'), fix=b"")
    assert said(mixed) == []


@pytest.mark.parametrize("task", ["@dataset", "acme_adder-8", "*-8"])
def test_a_suppressed_duplicate_is_listed_with_its_reason(tmp_path: Path, task: str) -> None:
    sample = Sample(tmp_path)
    add(sample, "acme_adder-8")
    answer = Suppression(rule="duplicate/change", task=task, reason="both halves of it")
    sample.config = replace(sample.config, suppress=(answer,))
    report = sample.validate_dataset()
    assert "duplicate/change" not in rules(validate.findings_of(report))
    assert [s["reason"] for s in report.data["suppressed"]] == ["both halves of it"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": 3},
        {"metadata": {"source": {"repository_owner": 1, "code_change_id": []}}},
        {"agent": {"network_mode": "a\tb\nc", "allowed_hosts": [{"a": 1}, "x" * 100_000]}},
    ],
)
def test_traits_of_anything_are_one_line_and_read_back(document: dict[str, object]) -> None:
    found = traits_of(document, b"\xff\n+\xff\n")
    assert "\n" not in found.text
    assert from_text(found.text) == found
    assert len(found.text) < 200


def test_the_graph_goes_by_what_the_index_knows(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    add(sample, "acme_adder-8")
    plan = Plan(tmp_path)
    before = plan.steps["validate"].inputs("@dataset")
    report = plan.run("validate", "@dataset")
    assert "duplicate/change" in rules(validate.findings_of(report))
    sample.edit("task.toml", 'code_change_id = "7"', 'code_change_id = "9"')
    later = Plan(tmp_path)
    assert later.steps["validate"].inputs("@dataset") != before
    again = validate.findings_of(later.run("validate", "@dataset"))
    assert "duplicate/change" not in rules(again)
    assert survey(tmp_path).traits[TASK].startswith("acme/adder\t9\t")


def test_five_thousand_tasks_take_a_fraction_of_a_second() -> None:
    tasks = {
        f"acme_adder-{n}": Traits(
            repository="acme/adder", change=str(n), fix=f"{n:016x}", network="- public -"
        )
        for n in range(5_000)
    }
    began = time.monotonic()
    checks = (duplicates.same_change, duplicates.same_fix, duplicates.ambiguous)
    assert [each for check in checks for each in check(tasks)] == []
    assert list(duplicates.deviating(tasks)) == []
    assert list(duplicates.same_tag(tasks)) == []
    assert time.monotonic() - began < 1
