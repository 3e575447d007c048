"""What belongs to no single task: ids, strays, the manifest, bases and their recipes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbench_build.model import DATASET, Suppression
from kbench_build.rim.config import Config
from kbench_build.rules.dataset_checks import DATASET_CHECKS
from kbench_build.steps import validate
from tests.recipe_cases import DEFECTS as RECIPES
from tests.samples import MANIFEST, TASK, Sample, rules

Break = Callable[[Path], object]
PIN = 'unpinned = "made from the archive of the day"\n'
INPUT = f'[[input]]\nfile = "rootfs.tar"\ncommand = ["sh", "make.sh"]\n{PIN}'


def write(path: str, text: str) -> Break:
    def apply(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")

    return apply


def both(*breaks: Break) -> Break:
    def apply(root: Path) -> None:
        for break_it in breaks:
            break_it(root)

    return apply


def suppressed(**fields: str) -> tuple[Suppression, ...]:
    return (Suppression(**{"rule": "layout/link", "task": TASK, "reason": "why", **fields}),)


# (rule, how to break it, file, place)
DEFECTS: list[tuple[str, Break, str, str]] = [
    ("dataset/stray", write("tasks/skip_list.txt", ""), "tasks/skip_list.txt", ""),
    (
        "dataset/case",
        write("tasks/Acme_adder-7/task.toml", ""),
        f"tasks/{TASK}",
        "",
    ),
    ("manifest/line", write("bases/manifest", "adder jdk17\n"), "bases/manifest", "line 1"),
    (
        "manifest/line",
        write("bases/manifest", MANIFEST + "adder jdk17 Dockerfile.jdk17\n"),
        "bases/manifest",
        "line 3",
    ),
    (
        "manifest/unterminated",
        write("bases/manifest", MANIFEST.rstrip("\n")),
        "bases/manifest",
        "line 2",
    ),
    (
        "bases/dockerfile",
        write("bases/manifest", MANIFEST + "adder jdk21 Dockerfile.jdk21\n"),
        "bases/manifest",
        "line 3",
    ),
    (
        "bases/dockerfile",
        write("bases/manifest", MANIFEST + "nobody jdk21 Dockerfile\n"),
        "bases/manifest",
        "line 3",
    ),
    (
        "bases/from",
        write("bases/adder/Dockerfile.jdk17", "\nFROM kotlin-bench/debian:jdk17\n"),
        "bases/adder/Dockerfile.jdk17",
        "line 2",
    ),
    (
        "bases/circle",
        write("bases/adder/Dockerfile.jdk17", "FROM kotlin-bench/adder:history\n"),
        "bases/manifest",
        "line 2",
    ),
    (
        "bases/copy",
        write("bases/adder/Dockerfile.jdk17", "FROM scratch\nADD rootfs.tar /\n"),
        "bases/adder/Dockerfile.jdk17",
        "line 2",
    ),
    (
        "bases/copy",
        both(
            write("bases/adder/Dockerfile.jdk17", "FROM scratch\nADD rootfs.tar /\n"),
            write("bases/adder/inputs.toml", INPUT + 'bases = ["history"]\n'),
        ),
        "bases/adder/Dockerfile.jdk17",
        "line 2",
    ),
    (
        "bases/inputs",
        write("bases/adder/inputs.toml", INPUT.replace(PIN, "")),
        "bases/adder/inputs.toml",
        "input[0]",
    ),
    (
        "bases/input-tag",
        write("bases/adder/inputs.toml", INPUT + 'bases = ["jdk99"]\n'),
        "bases/adder/inputs.toml",
        "",
    ),
    (
        "bases/input-kept",
        both(
            write("bases/adder/inputs.toml", INPUT),
            write("bases/adder/rootfs.tar", "old"),
        ),
        "bases/adder/rootfs.tar",
        "",
    ),
]


@pytest.mark.parametrize("case", DEFECTS, ids=lambda case: f"{case[0]} {case[2]} {case[3]}")
def test_a_defect_is_found_at_its_place(tmp_path: Path, case: tuple[str, Break, str, str]) -> None:
    rule, break_it, file, where = case
    sample = Sample(tmp_path)
    break_it(tmp_path)
    found = validate.findings_of(sample.validate_dataset())
    assert (file, where) in {(f.file, f.where) for f in found if f.rule == rule}
    assert all(f.message and f.mend for f in found)


def test_every_check_has_a_defect_that_shows_it() -> None:
    shown = {rule for rule, *_ in DEFECTS} | {"dataset/empty", "suppress/unknown"}
    # Those that need several tasks are in test_duplicates.
    shown |= {f"duplicate/{what}" for what in ("change", "fix", "tag", "owner")}
    shown |= {"network/deviation", *(f"bases/{rule}" for rule, *_ in RECIPES)}
    assert {check.id for check in DATASET_CHECKS} <= shown


@pytest.mark.parametrize("form", ["shipped", "plain"])
def test_a_sound_dataset_is_silent(tmp_path: Path, form: str) -> None:
    report = Sample(tmp_path, form).validate_dataset()
    assert (report.subject, report.ok, report.summary) == (DATASET, True, "no findings")


@pytest.mark.parametrize(
    "change",
    [
        both(
            write("bases/adder/Dockerfile.jdk17", "FROM scratch\nADD rootfs.tar /\n"),
            write("bases/adder/inputs.toml", INPUT + 'bases = ["jdk17"]\n'),
        ),
        both(
            write("bases/adder/Dockerfile.jdk17", "FROM scratch\nCOPY scripts/*.sh /opt/\n"),
            write("bases/adder/scripts/a.sh", ""),
        ),
        write("tasks/__pycache__/x.pyc", ""),
        write("tasks/.DS_Store", ""),
    ],
    ids=["a generated file", "a pattern", "a cache", "a desktop's file"],
)
def test_what_only_looks_like_a_defect_is_silent(tmp_path: Path, change: Break) -> None:
    sample = Sample(tmp_path)
    change(tmp_path)
    assert validate.findings_of(sample.validate_dataset()) == ()


def test_a_dataset_without_tasks_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    report = validate.validate_dataset(
        tmp_path, tasks=(), manifest="", config=Config(name="sample"), inputs="-"
    )
    assert (rules(validate.findings_of(report)), report.ok) == (["dataset/empty"], True)


@pytest.mark.parametrize(
    ("fields", "where"),
    [({"rule": "layout/lnik"}, "suppress[0].rule"), ({"task": "acme_adder-8"}, "suppress[0].task")],
)
def test_a_suppression_of_nothing_is_named(
    tmp_path: Path, fields: dict[str, str], where: str
) -> None:
    sample = Sample(tmp_path)
    sample.config = replace(sample.config, suppress=suppressed(**fields))
    (finding,) = validate.findings_of(sample.validate_dataset())
    assert (finding.rule, finding.where) == ("suppress/unknown", where)


@pytest.mark.parametrize(
    "fields", [{}, {"rule": "layout/*"}, {"task": "acme_*"}, {"task": DATASET}]
)
def test_a_suppression_of_something_is_silent(tmp_path: Path, fields: dict[str, str]) -> None:
    sample = Sample(tmp_path)
    sample.config = replace(sample.config, suppress=suppressed(**fields))
    assert validate.findings_of(sample.validate_dataset()) == ()


def test_findings_about_the_dataset_can_be_suppressed(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    write("tasks/skip_list.txt", "")(tmp_path)
    sample.config = replace(sample.config, suppress=suppressed(rule="dataset/stray", task=DATASET))
    assert sample.validate_dataset().summary == "1 suppressed"
