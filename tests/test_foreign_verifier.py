"""A task's own test.sh: shapes that reward what they shouldn't, and what only looks like them."""

import time
from pathlib import Path

import pytest

from kbench_build.rules.foreign_verifier import CHECKS
from kbench_build.steps import validate
from tests import foreign_kit
from tests.foreign_cases import DEFECTS, HEAD, PLAIN, SOUND
from tests.samples import DIGEST, TASK, Sample

MINE = {check.id for check in CHECKS}


def found(root: Path, form: str, script: str) -> list[tuple[str, str, str]]:
    """(rule, place, message) of what is found in a test.sh."""
    sample = Sample(root, form)
    sample.write("tests/test.sh", script)
    if form == "plain":
        sample.write("environment/Dockerfile", f"FROM ubuntu:24.04@{DIGEST}\nWORKDIR /app\n")
    report = validate.findings_of(sample.validate())
    assert all(f.file == f"tasks/{TASK}/tests/test.sh" for f in report if f.rule in MINE)
    return [(f.rule, f.where, f.message) for f in report if f.rule in MINE]


@pytest.mark.parametrize(("rule", "script", "where"), DEFECTS)
def test_an_unsound_shape_is_named_with_its_line(
    tmp_path: Path, rule: str, script: str, where: str
) -> None:
    said = found(tmp_path, "own", HEAD + script)
    assert (f"verifier/{rule}", where) in {s[:2] for s in said}, said


@pytest.mark.parametrize(("rule", "script", "where"), PLAIN)
def test_an_unsound_shape_of_a_plain_task_is_named_with_its_line(
    tmp_path: Path, rule: str, script: str, where: str
) -> None:
    said = found(tmp_path, "plain", script)
    assert (f"verifier/{rule}", where) in {s[:2] for s in said}, said


@pytest.mark.parametrize(("what", "script"), SOUND, ids=[s[0] for s in SOUND])
def test_a_sound_shape_is_silent(tmp_path: Path, what: str, script: str) -> None:
    del what
    assert found(tmp_path, "own", HEAD + script) == []


def test_each_check_is_shown() -> None:
    assert {f"verifier/{rule}" for rule, *_ in (*DEFECTS, *PLAIN)} == MINE


def test_the_shipped_verifier_is_not_asked(tmp_path: Path) -> None:
    assert found(tmp_path, "shipped", f"{HEAD}npm ci || true\n") == []


def test_a_tool_that_is_installed_is_not_missing(tmp_path: Path) -> None:
    sample = Sample(tmp_path, "plain")
    script = f"{HEAD}npx jest > log\njq .ok log && echo 1 > /logs/verifier/reward.txt\n"
    sample.write("tests/test.sh", script)
    image = f"FROM ubuntu:24.04@{DIGEST}\nRUN apt-get install -y jq git\nWORKDIR /app\n"
    sample.write("environment/Dockerfile", image)
    assert "verifier/missing-tool" not in {f.rule for f in validate.findings_of(sample.validate())}


def test_scripts_that_the_verifier_calls_are_read_too(tmp_path: Path) -> None:
    # The shape that is found in the wild: collector and comparer beside test.sh.
    root = foreign_kit.make(tmp_path).root
    report = validate.validate_task(
        root, foreign_kit.TASKS[0], config=Sample(tmp_path / "x").config, bases=(), inputs="-"
    )
    places = {
        (f.rule, f.file.rpartition("/")[2], f.where)
        for f in validate.findings_of(report)
        if f.rule in MINE
    }
    assert places == {
        ("verifier/unchecked-patch", "test.sh", "line 7"),
        ("verifier/path", "test.sh", "line 7"),
        ("verifier/exit-code", "test.sh", "line 10"),
        ("verifier/stale-reports", "kotlin_logs_collector.sh", "line 5"),
        ("verifier/no-default", "test.sh", "line 22"),
    }


@pytest.mark.parametrize(
    "line",
    [
        "cargo test x\n",
        "x=$?\n",
        "./gradlew test\ncp build/test-results/test/*.xml /tmp\n",
        "echo 1 > /logs/verifier/reward.txt\n",
        "a || true\nx=$?\n[ $y ]\n",
        "npx jest\n",
        "git apply /tests/test.patch\n",
        "if grep -q a b.js; then echo 1 > reward.txt; fi\n",
        "curl -o a https://h/a\nsha256sum -c b\n",
        "git clone https://h/x\n",
    ],
)
def test_a_script_without_end_takes_little_time(tmp_path: Path, line: str) -> None:
    sample = Sample(tmp_path, "plain")
    script = line * (400_000 // len(line))
    sample.write("tests/test.sh", script)
    sample.write("environment/prepare.sh", script)
    recipe = f"FROM ubuntu:24.04@{DIGEST}\nCOPY prepare.sh /\nRUN bash /prepare.sh\n"
    sample.write("environment/Dockerfile", recipe)
    began = time.process_time()
    found = validate.findings_of(sample.validate())
    assert time.process_time() - began < 20
    assert len(found) < 800
