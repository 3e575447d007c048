"""Tests in quarantine run and decide nothing; nobody but the task's data can put one there."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rules.quarantine import quarantined
from kbench_build.runtime import junit_compare
from kbench_build.steps.sync import sync
from tests.verifier_box import EXPECTED, Box, copy_box, make_box, usable

UNSTEADY = "app.CalcTest.keeps"
TELLING = [EXPECTED[name] for name in ("f2p_tests", "s2p_tests", "n2p_tests")]


def entries(*ids: str) -> dict[str, Any]:
    fields = {"reason": "Two threads race.", "since": "2026-11-29", "ratio": "2/3"}
    return {"tests": [{"id": i, **fields} for i in ids]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Box:
    assert usable(), "these tests need root and unshare(1)"
    return make_box(tmp_path_factory.mktemp("quarantine") / "box")


@pytest.fixture
def box(template: Box, tmp_path: Path) -> Box:
    """A solved checkout in which the unsteady test fails."""
    copied = copy_box(template, tmp_path / "box")
    copied.solve()
    expected = {**EXPECTED, "p2p_tests": [*EXPECTED["p2p_tests"], "app.Unsteady.fails"]}
    (copied.tests / "expected_tests.json").write_text(json.dumps(expected))
    return copied


def grade(box: Box) -> dict[str, Any]:
    done = box.shell("bash /tests/test.sh")
    assert done.returncode == 0, done.stdout
    report: dict[str, Any] = json.loads((box.logs / "report.json").read_text())
    assert (box.logs / "reward.txt").read_text() == f"{report['reward']}\n"
    return report


def test_a_quarantined_test_doesnt_decide(box: Box) -> None:
    (box.tests / "quarantine.json").write_text(json.dumps(entries("app.Unsteady.fails")))
    box.edit_data(quarantine=True)
    report = grade(box)
    assert (report["reward"], report["outcome"]) == (1, "resolved")
    assert report["quarantined"] == ["app.Unsteady.fails"]


def test_a_quarantine_that_the_data_doesnt_ask_for_isnt_read(box: Box) -> None:
    # An agent that shares the container could leave one where a task has none.
    (box.tests / "quarantine.json").write_text(json.dumps(entries("app.Unsteady.fails")))
    report = grade(box)
    assert (report["reward"], report["quarantined"]) == (0, [])
    assert report["missing"] == ["app.Unsteady.fails"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "quarantine.json is missing"),
        ("{", "not JSON"),
        ('{"tests": ["a.b"]}', "not a list of objects"),
        ('{"tests": [{}]}', "has no id"),
        (json.dumps(entries(*(i for ids in TELLING for i in ids))), "outside the quarantine"),
    ],
)
def test_a_quarantine_that_cant_be_used_ends_with_0(
    box: Box, content: str | None, said: str
) -> None:
    (box.tests / "expected_tests.json").write_text(json.dumps(EXPECTED))
    if content is not None:
        (box.tests / "quarantine.json").write_text(content)
    box.edit_data(quarantine=True)
    report = grade(box)
    assert (report["reward"], report["outcome"]) == (0, "verifier-error")
    assert said in report["errors"][0]["message"]


def test_a_score_again_leaves_them_out() -> None:
    expected = json.dumps({"f2p_tests": ["a"], "p2p_tests": ["b"]}).encode()
    apart = junit_compare.quarantined_ids(json.dumps(entries("b")).encode())
    report = {"outcome": "unresolved", "errors": [], "tests": {"a": "passed", "b": "failed"}}
    assert junit_compare.rescore(report, junit_compare.expected_ids(expected)) == 0
    assert junit_compare.rescore(report, junit_compare.expected_ids(expected, apart)) == 1


def test_sync_asks_for_a_quarantine_where_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "t" / "tests"
    folder.mkdir(parents=True)
    data = folder / "verify.json"
    data.write_text('{\n  "version": 1,\n  "base_commit": "' + "0" * 40 + '"\n}\n')
    before = data.read_bytes()

    def changes(check: bool) -> bool:
        (done,) = sync(tmp_path, ["t"], check=check)
        return "tests/verify.json" in done.changed

    assert not changes(check=True)
    (folder / "quarantine.json").write_text(json.dumps(entries("a")))
    assert changes(check=True)
    assert changes(check=False)
    assert json.loads(data.read_bytes())["quarantine"] is True
    assert not changes(check=True)
    (folder / "quarantine.json").unlink()
    assert changes(check=False)
    assert data.read_bytes() == before


def test_ids_of_hostile_content_are_none() -> None:
    assert quarantined(entries("a", "b")) == {"a", "b"}
    hostile: tuple[Any, ...] = (None, [], {"tests": 1}, {"tests": [1, {"id": 2}, {}]})
    for value in hostile:
        assert quarantined(value) == frozenset()
