"""What an instruction may say: links, ids, names and lines of the fix and of the hidden tests."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from kbench_build.rules import content, findings, statement
from kbench_build.steps import validate
from tests.defects import statement as statement_rows
from tests.defects.kit import BEFORE, UPSTREAM, git, small
from tests.defects.kit import findings as found_in
from tests.defects.patches import at_hand
from tests.samples import SPEC, TASK, Sample
from tests.statement_cases import (
    CODE,
    FAIR,
    FIX,
    STATEMENTS,
    TEST,
    USES,
    Break,
    change,
    patch,
    told,
)


def said(sample: Sample) -> list[tuple[str, str, str]]:
    found = validate.findings_of(sample.validate())
    return [(f.rule, f.file, f.where) for f in found if f.rule.startswith("statement/")]


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: f"{case[0]} {case[1]}")
def test_a_defect_of_the_statement_is_found_at_its_place(
    tmp_path: Path, case: tuple[str, str, Break, str, str]
) -> None:
    rule, form, break_it, file, where = case
    sample = Sample(tmp_path, form)
    break_it(sample)
    assert (rule, f"tasks/{TASK}/{file}", where) in said(sample)


@pytest.mark.parametrize("case", FAIR, ids=lambda case: case[0])
def test_a_fair_statement_is_let_be(tmp_path: Path, case: tuple[str, str, Break]) -> None:
    _, form, change_it = case
    sample = Sample(tmp_path, form)
    change_it(sample)
    assert said(sample) == []


def read(sample: Sample) -> content.Content:
    around = content.Around(namespace="kotlin-bench", bases=(), shipped=validate.shipped())
    return validate.read_task(sample.root, TASK, around)


def rules_of(task: content.Content) -> set[str]:
    return {f.rule for f in findings.run_checks(statement.CHECKS, task, "")}


def test_a_name_at_the_base_is_no_name_of_the_fix_alone(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    change(FIX, TEST)(sample)
    task = read(sample)
    assert "statement/unknown-name" in rules_of(task)
    assert "statement/unknown-name" in rules_of(replace(task, at_base=frozenset()))
    assert "statement/unknown-name" not in rules_of(replace(task, at_base=frozenset({b"sumOf"})))


def test_a_plain_word_counts_once_the_base_is_known(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    change(FIX.replace(b"sumOf", b"total"), TEST.replace(b"sumOf", b"total"))(sample)
    task = read(sample)
    assert "statement/unknown-name" not in rules_of(task)
    assert "statement/unknown-name" in rules_of(replace(task, at_base=frozenset()))


HOSTILE = ["#" * 1_000_000, "`" * 1_000_001, "a/" * 500_000, "fix " * 250_000]
HOSTILE += ["a" * 1_000_000, "a." * 500_000, "a-" * 500_000, "> " * 500_000, "1." * 500_000]
HOSTILE += ["# " + "a " * 500_000 + "b", "**" + "* " * 500_000, "0a" * 500_000, "\n" * 1_000_000]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
def test_a_hostile_instruction_takes_bounded_time(tmp_path: Path, text: str) -> None:
    sample = Sample(tmp_path, "own")
    told(text)(sample)
    began = time.monotonic()
    sample.validate()
    assert time.monotonic() - began < 5


def test_hostile_patches_take_bounded_time(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    lines = [f"    fun <{'A' * 90}>{'x.' * 60}v{i}({'(' * 200} {{\n" for i in range(3_000)]
    head = f"@@ -1 +1,{len(lines)} @@\n".encode()
    body = "".join(f"+{line}" for line in lines).encode()
    fix = FIX.split(b"@@")[0] + head + body
    change(fix, fix.replace(b"main", b"test"), CODE)(sample)
    began = time.monotonic()
    sample.validate()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 400,
        '\\"' * 450,
        "\\'" * 450,
        "`" * 901,
        '"""',
        "'" * 901,
        "",
        "# ",
        "class public " * 70,
    ],
    ids=repr,
)
def test_hostile_tests_take_bounded_time(tmp_path: Path, text: str) -> None:
    sample = Sample(tmp_path, "own")
    change(FIX, patch(SPEC, USES, *[f"{text}\n"] * 3_000))(sample)
    began = time.monotonic()
    assert ("statement/unknown-name", f"tasks/{TASK}/tests/test.patch", "") in said(sample)
    assert time.monotonic() - began < 5


def test_words_in_strings_of_several_lines_are_no_uses(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    for quote in ('"""', "`"):
        change(FIX, patch(SPEC, f"    run({quote}\n", "call sumOf here\n", f"    {quote})\n"))(
            sample
        )
        assert said(sample) == []


def test_a_plain_tasks_tests_are_read_up_to_a_limit(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    change(FIX, TEST)(sample)
    assert "statement/unknown-name" in {rule for rule, *_ in said(sample)}
    sample.write("tests/adder.test.kt", (b"//" + b" " * 300_000 + b"\n") + TEST)
    assert said(sample) == []
    assert "layout/unreadable" not in {f.rule for f in validate.findings_of(sample.validate())}


def test_suppressed_findings_of_the_statement_are_listed_with_their_reason(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "dataset", "own")
    told("Done in PR #7.\n")(sample)
    (tmp_path / "dataset/kbench.toml").write_text(
        '[[suppress]]\nrule = "statement/fix-link"\ntask = "acme_*"\nreason = "it is the wish"\n',
        encoding="utf-8",
    )
    assert [f for f in found_in(tmp_path) if f.rule.startswith("statement/")] == []


def with_upstream(folder: Path, text: str) -> tuple[Sample, Path]:
    """The small dataset whose upstream is at hand, and the upstream's repository."""
    sample = at_hand(folder)
    told(text)(sample)
    return sample, folder / UPSTREAM / "acme" / "adder"


def test_commits_after_the_base_are_told_from_earlier_ones(tmp_path: Path) -> None:
    sample, upstream = with_upstream(tmp_path, "")
    fix, base = git(upstream, "rev-parse", "HEAD~1", "HEAD~2").decode().split()
    told(f"It broke in {base[:10]}.\nIt works in {fix[:10]}.\nBy {'c0ffee1' * 3} too.\n")(sample)
    found = [f for f in found_in(tmp_path) if f.rule == "statement/fix-id"]
    assert [(f.where, f.message) for f in found] == [
        ("line 3", f"holds {fix[:10]!r}, a commit that comes after the base")
    ]


def test_names_that_the_base_holds_elsewhere_are_known(tmp_path: Path) -> None:
    other = "src/main/kotlin/Other.kt"
    before = {**BEFORE, other: "interface Other {\n    fun sumOf(values: List<Int>): Int\n}\n"}
    for folder, files in ((tmp_path / "a", BEFORE), (tmp_path / "b", before)):
        folder.mkdir()
        small(folder, before=files, fixed=statement_rows.FIXED, tested=statement_rows.TESTED)
        config = folder / "dataset" / "kbench.toml"
        config.write_text(f'[upstream]\nmirrors = "../{UPSTREAM}"\n', encoding="utf-8")
    assert "statement/unknown-name" in {f.rule for f in found_in(tmp_path / "a")}
    assert "statement/unknown-name" not in {f.rule for f in found_in(tmp_path / "b")}


def test_what_cant_be_told_of_a_statement_is_said(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    said = sample.validate().data["not_checked"]
    assert [s for s in said if "hidden tests" in s]
    assert not [s for s in said if "number of a change" in s]
    sample.task.rename(sample.task.parent / "adder")
    report = validate.validate_task(tmp_path, "adder", config=sample.config, bases=(), inputs="-")
    assert [s for s in report.data["not_checked"] if "number of a change" in s]
    sound = Sample(tmp_path / "own", "own").validate().data["not_checked"]
    assert not [s for s in sound if "hidden tests" in s or "number of a change" in s]
