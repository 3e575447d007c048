"""What a build takes on trust: images and clones that move, downloads, failures that are lost."""

from pathlib import Path

import pytest

from kbench_build.rules.recipe_trust import CHECKS, QUESTIONS
from kbench_build.steps import validate
from tests.recipe_cases import DEFECTS, PINNED, SOUND
from tests.samples import TASK, Sample

ASKED = {f"{kind}/{question.name}" for question in QUESTIONS for kind in ("recipe", "bases")}
MINE = ASKED | {check.id for check in CHECKS}


def of_task(root: Path, dockerfile: str, prepare: str) -> list[tuple[str, str, str, str]]:
    """(rule, file, place, message) of what is found in a plain task with this build."""
    sample = Sample(root, "plain")
    sample.write("environment/Dockerfile", dockerfile)
    if prepare:
        sample.write("environment/prepare.sh", prepare)
    found = validate.findings_of(sample.validate())
    return [(f.rule, f.file, f.where, f.message) for f in found if f.rule in MINE]


def of_base(root: Path, dockerfile: str, prepare: str) -> list[tuple[str, str, str, str]]:
    """The same of a base."""
    sample = Sample(root, "shipped")
    (root / "bases/adder/Dockerfile.jdk17").write_text(dockerfile)
    if prepare:
        (root / "bases/adder/prepare.sh").write_text(prepare)
    found = validate.findings_of(sample.validate_dataset())
    return [(f.rule, f.file, f.where, f.message) for f in found if f.rule in MINE]


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_a_task_takes_on_trust_is_named_with_its_line(
    tmp_path: Path, defect: tuple[str, str, str, str, str]
) -> None:
    rule, dockerfile, prepare, file, where = defect
    found = of_task(tmp_path, dockerfile, prepare)
    place = f"tasks/{TASK}/environment/{file}"
    assert (f"recipe/{rule}", place, where) in {f[:3] for f in found}, found


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_a_base_takes_on_trust_is_named_with_its_line(
    tmp_path: Path, defect: tuple[str, str, str, str, str]
) -> None:
    rule, dockerfile, prepare, file, where = defect
    found = of_base(tmp_path, dockerfile, prepare)
    place = f"bases/adder/{file.replace('Dockerfile', 'Dockerfile.jdk17')}"
    assert (f"bases/{rule}", place, where) in {f[:3] for f in found}, found


@pytest.mark.parametrize(("what", "dockerfile", "prepare"), SOUND, ids=[s[0] for s in SOUND])
def test_what_only_looks_like_it_is_silent(
    tmp_path: Path, what: str, dockerfile: str, prepare: str
) -> None:
    del what
    assert of_task(tmp_path / "task", dockerfile, prepare) == []
    assert of_base(tmp_path / "base", dockerfile, prepare) == []


def test_the_datasets_own_images_are_no_strangers(tmp_path: Path) -> None:
    assert of_base(tmp_path, "FROM kotlin-bench/adder:history\n", "") == []


INSTALL = "RUN apt-get update && apt-get install -y tmux python3{}\n"


@pytest.mark.parametrize("mark", [" || true", "; true", " || echo no python3"])
def test_a_tool_of_the_verifier_that_may_be_missing_is_named(tmp_path: Path, mark: str) -> None:
    sample = Sample(tmp_path, "own")
    sample.edit("environment/Dockerfile", "WORKDIR", INSTALL.format(mark) + "WORKDIR")
    sample.write("tests/test.sh", "cd /home/adder\npython3 /tests/compare.py\n")
    found = [f for f in validate.findings_of(sample.validate()) if f.rule == "recipe/optional-tool"]
    assert [(f.where, f.message[:36]) for f in found] == [
        ("line 8", "brings python3, which tests/test.sh ")
    ]


def test_a_tool_that_nobody_runs_may_be_missing(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "own")
    sample.edit("environment/Dockerfile", "WORKDIR", INSTALL.format(" || true") + "WORKDIR")
    sample.write("tests/test.sh", "cd /home/adder\n./gradlew test\n")
    found = validate.findings_of(sample.validate())
    assert "recipe/optional-tool" not in {f.rule for f in found}


def test_shell_of_every_kind_is_survived(tmp_path: Path) -> None:
    for text in ("RUN ((\n", "RUN [\n", 'RUN ["a\n', "RUN <<\n", "RUN \\\n", "SHELL x\nRUN y\n"):
        of_task(tmp_path, PINNED + text, "if")
