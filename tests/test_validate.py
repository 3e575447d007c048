"""Every check fires on the task that shows its defect and is silent on its sound twin."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kbench_build.model import Finding, Suppression
from kbench_build.rules.catalogue import TASK_CHECKS
from kbench_build.rules.findings import MOST_SPOTS
from kbench_build.steps import validate
from tests.foreign_cases import DEFECTS as SCRIPTS
from tests.foreign_cases import PLAIN
from tests.provenance_cases import ORIGINS
from tests.recipe_cases import DEFECTS as RECIPES
from tests.samples import TASK, Sample, rules
from tests.statement_cases import STATEMENTS
from tests.test_defect_rows import ROWS
from tests.test_house import PACKAGE, WORDS, imports_of
from tests.validate_cases import DEFECTS, SOUND, Break


@pytest.mark.parametrize("form", ["shipped", "plain"])
def test_a_sound_task_is_silent(tmp_path: Path, form: str) -> None:
    report = Sample(tmp_path, form).validate()
    assert report.ok
    assert rules(validate.findings_of(report)) == ([] if form == "shipped" else ["task/older-keys"])


def test_a_sound_task_with_its_own_verifier_is_silent(tmp_path: Path) -> None:
    report = Sample(tmp_path, "own").validate()
    assert (report.ok, report.summary) == (True, "no findings")


def name_of(case: tuple[str, str, Break, str, str]) -> str:
    return f"{case[0]} {case[1]} {case[3]} {case[4]}".rstrip()


@pytest.mark.parametrize("case", DEFECTS, ids=name_of)
def test_a_defect_is_found_at_its_place(
    tmp_path: Path, case: tuple[str, str, Break, str, str]
) -> None:
    rule, form, break_it, file, where = case
    sample = Sample(tmp_path, form)
    break_it(sample)
    found = validate.findings_of(sample.validate())
    assert (f"tasks/{TASK}/{file}", where) in {(f.file, f.where) for f in found if f.rule == rule}
    assert all(f.message and f.mend for f in found)


def test_every_check_has_a_defect_that_shows_it() -> None:
    shown = {rule for rule, *_ in (*DEFECTS, *STATEMENTS, *ORIGINS)} | {row.rule for row in ROWS}
    shown |= {f"recipe/{rule}" for rule, *_ in RECIPES}
    shown |= {f"verifier/{rule}" for rule, *_ in (*SCRIPTS, *PLAIN)}
    assert {check.id for check in TASK_CHECKS} <= shown | {"layout/id"}


def test_a_check_says_why_and_how_to_mend() -> None:
    for check in TASK_CHECKS:
        assert check.why.endswith(".")
        assert check.mend.endswith(".")
    assert len({check.id for check in TASK_CHECKS}) == len(TASK_CHECKS)


@pytest.mark.parametrize("name", ["bad id", "-dash", "a=b", "x" * 129, "a..b"])
def test_an_id_must_serve_as_a_tag(tmp_path: Path, name: str) -> None:
    sample = Sample(tmp_path, "plain")
    sample.task.rename(tmp_path / "tasks" / name)
    report = validate.validate_task(tmp_path, name, config=sample.config, bases=(), inputs="-")
    assert "layout/id" in rules(validate.findings_of(report))


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case[0])
def test_what_only_looks_like_a_defect_is_silent(
    tmp_path: Path, case: tuple[str, str, Break]
) -> None:
    _, form, change = case
    sample = Sample(tmp_path, form)
    change(sample)
    found = [f for f in validate.findings_of(sample.validate()) if f.rule != "task/older-keys"]
    assert found == []


def test_everything_is_reported_at_once_and_the_worst_first(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.edit("task.toml", "cpus = 2", "cpu = 2")
    sample.edit("environment/Dockerfile", "jdk17", "jdk99")
    sample.change("tests/expected_tests.json", lambda v: v["p2p_tests"].append("AdderTest.zero"))
    sample.write("instruction.md", "")
    report = sample.validate()
    found = validate.findings_of(report)
    assert not report.ok
    assert rules(found) == [
        "document/unknown-key",
        "expected/duplicate",
        "layout/instruction",
        "recipe/from",
    ]
    assert [f.severity for f in found] == ["error", "error", "error", "warning"]
    assert report.summary == "3 errors, 1 warning"


def test_a_finding_reads_as_one_line(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.change("tests/expected_tests.json", lambda v: v["f2p_tests"].append("AdderTest.two"))
    (finding,) = validate.findings_of(sample.validate())
    assert str(finding) == (
        f"tasks/{TASK}/tests/expected_tests.json: f2p_tests[1]: "
        "stands at f2p_tests[0] already: 'AdderTest.two' [expected/duplicate]"
    )


def test_an_unknown_key_names_the_one_that_is_near(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.edit("task.toml", "memory_mb", "memory_md")
    (finding,) = validate.findings_of(sample.validate())
    assert finding.message == "is a key that nothing reads; is 'memory_mb' meant?"


def test_the_shipped_verifier_is_renewed_by_sync(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.write("tests/test.sh", b"exit 1\n")
    (finding,) = validate.findings_of(sample.validate())
    assert "kbench sync" in finding.mend


def test_a_report_holds_json_values_and_gives_findings_back(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.write("tests/a\nb", "")
    sample.write("instruction.md", "")
    report = sample.validate()
    again = replace(report, data=json.loads(json.dumps(report.data)))
    assert validate.findings_of(again) == validate.findings_of(report)
    assert all(isinstance(f, Finding) for f in validate.findings_of(again))


def test_what_cant_be_checked_is_said(tmp_path: Path) -> None:
    said = Sample(tmp_path / "plain", "plain").validate().data
    assert said["form"] == "plain"
    assert any("expected tests" in sentence for sentence in said["not_checked"])
    assert any("base commit" in sentence for sentence in said["not_checked"])
    shipped = Sample(tmp_path / "shipped").validate().data
    assert [s for s in shipped["not_checked"] if "upstream" in s] == shipped["not_checked"]
    own = Sample(tmp_path / "own", "own").validate().data
    assert [s for s in own["not_checked"] if "test.sh" in s or "upstream" in s] == own[
        "not_checked"
    ]


def test_a_suppressed_finding_is_listed_with_its_reason(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.edit("environment/Dockerfile", "jdk17", "jdk99")
    sample.write("solution/notes.txt", "")
    answered = Suppression(rule="recipe/from", task="acme_*", reason="built elsewhere")
    other = Suppression(rule="layout/*", task="other_task-1", reason="not this one")
    sample.config = replace(sample.config, suppress=(answered, other))
    report = sample.validate()
    assert report.ok
    assert rules(validate.findings_of(report)) == ["layout/leftover"]
    (suppressed,) = report.data["suppressed"]
    assert (suppressed["rule"], suppressed["reason"]) == ("recipe/from", "built elsewhere")
    assert report.summary == "1 warning, 1 suppressed"


def test_ten_thousand_findings_are_bounded(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    twice = [f"T.t{i}" for i in range(10_000)] * 2
    sample.change("tests/expected_tests.json", lambda v: v.update(f2p_tests=twice))
    began = time.monotonic()
    found = [f for f in validate.findings_of(sample.validate()) if f.rule == "expected/duplicate"]
    assert len(found) == MOST_SPOTS + 1
    assert [f.message for f in found if not f.where] == [
        f"has more of the kind: only the first {MOST_SPOTS} are listed"
    ]
    assert [f.where for f in found if f.where][:2] == ["f2p_tests[10000]", "f2p_tests[10001]"]
    assert time.monotonic() - began < 5


def test_misfits_of_thousands_of_ids_are_bounded(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    sample.change("tests/expected_tests.json", lambda v: v.update(f2p_tests=[1] * 5_000))
    began = time.monotonic()
    found = [f for f in validate.findings_of(sample.validate()) if f.rule == "document/schema"]
    assert 2 < len(found) < 50
    assert time.monotonic() - began < 5


def test_a_task_toml_of_a_hundred_megabytes_is_not_read(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    with (sample.task / "task.toml").open("wb") as file:
        file.truncate(100 << 20)
    began = time.monotonic()
    report = sample.validate()
    assert time.monotonic() - began < 1
    (finding,) = [f for f in validate.findings_of(report) if f.rule == "layout/unreadable"]
    assert "104,857,600 bytes" in finding.message


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.change("tests/expected_tests.json", lambda v: v.update(f2p_tests="x" * 1_000_000))
    assert all(len(f.message) < 1_000 for f in validate.findings_of(sample.validate()))


def test_a_pipe_in_the_place_of_a_file_blocks_nothing(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    sample.remove("instruction.md")
    os.mkfifo(sample.task / "instruction.md")
    found = validate.findings_of(sample.validate())
    assert "layout/unreadable" in rules(found)


def test_a_folder_in_the_place_of_a_file_is_a_missing_file(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    sample.remove("task.toml")
    (sample.task / "task.toml").mkdir()
    assert "layout/required" in rules(validate.findings_of(sample.validate()))


def test_a_file_without_permission_is_named() -> None:
    with TemporaryDirectory() as folder:
        sample = Sample(Path(folder), "plain")
        sample.validate()  # loads all that this needs before rights are given up
        Path(folder).chmod(0o755)
        (sample.task / "instruction.md").chmod(0)
        with without_privileges():
            found = validate.findings_of(sample.validate())
    (finding,) = [f for f in found if f.rule == "layout/unreadable"]
    assert (finding.file, finding.message) == (
        f"tasks/{TASK}/instruction.md",
        "can't be read: Permission denied",
    )


@contextmanager
def without_privileges() -> Iterator[None]:
    """As nobody, when the tests run as root, who reads everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("path", ["task.toml", "tests/expected_tests.json", "tests/test.patch"])
def test_a_link_out_of_the_task_is_never_read(tmp_path: Path, path: str) -> None:
    sample = Sample(tmp_path)
    (tmp_path / "secret").write_text("secret content", encoding="utf-8")
    sample.remove(path)
    (sample.task / path).symlink_to(tmp_path / "secret")
    found = validate.findings_of(sample.validate())
    assert "layout/link" in rules(found)
    assert not any("secret content" in f.message for f in found)


def test_a_link_in_a_tasks_place_is_named_and_not_followed(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "dataset", "plain")
    sample.task.rename(tmp_path / "elsewhere")
    sample.task.symlink_to(tmp_path / "elsewhere")
    found = validate.findings_of(sample.validate())
    assert f"tasks/{TASK}" in [f.file for f in found if f.rule == "layout/unreadable"]
    assert "task/older-keys" not in rules(found)


def test_inputs_move_with_what_is_read_and_with_nothing_else(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    around = validate.surroundings(bases=sample.bases(), config=sample.config)
    same = validate.surroundings(bases=reversed(sample.bases()), config=sample.config)
    answered = (Suppression(rule="a", task="*", reason="b"),)
    other = validate.surroundings(
        bases=sample.bases(), config=replace(sample.config, suppress=answered)
    )
    assert around == same
    assert around != other
    assert around != validate.surroundings(bases=(), config=sample.config)
    assert validate.inputs(tree="1", surroundings=around) != validate.inputs(
        tree="2", surroundings=around
    )


def test_the_rules_version_covers_all_that_the_checks_import() -> None:
    imported = {"steps.validate"}
    pending = ["steps.validate"]
    while pending:
        source = PACKAGE / f"{pending.pop().replace('.', '/')}.py"
        new = (imports_of(source) if source.is_file() else set()) - imported
        imported |= new
        pending += new
    # What reads a dataset for every step, and the words, don't decide what is found.
    shared = {"rim.config", "rim.dataset", "rim.store", "rim.toml", "rim.tree"}
    told = {m for m in imported - shared if m.partition(".")[0] not in WORDS}
    needed = {m for m in told if (PACKAGE / f"{m.replace('.', '/')}.py").is_file()}
    listed = {source.removesuffix(".py").replace("/", ".") for source in validate.SOURCES}
    assert listed == {m for m in needed if not m.startswith("runtime")}
