"""`kbench validate`: the checks of the doit step without doit, in four forms, for any folder."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbench_build.cli import cli
from kbench_build.errors import KbenchError
from kbench_build.model import DATASET
from kbench_build.rim import schemas
from kbench_build.rim.store import Store
from kbench_build.steps.validate import findings_of
from tests import foreign_kit
from tests.graph_kit import doit, environment, make_dataset, make_task, write
from tests.samples import TASK, Sample
from tests.sarif_schema import check_sarif
from tests.verifier_box import git


def run(*words: str | Path, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["validate", *map(str, words)])
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def as_json(*words: str | Path, code: int = 0) -> Any:
    value = json.loads(run(*words, "--format", "json", code=code).stdout)
    assert schemas.problems("findings", value) == ()
    return value


def of_subjects(value: Any) -> Mapping[str, Any]:
    return {subject["subject"]: subject for subject in value["subjects"]}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Three plain tasks: an error in the second one, warnings in all."""
    root = make_dataset(tmp_path / "small", tasks=3)
    write(root / "tasks/acme__tool-2/task.toml", "version = '1.0'\n\n[environment]\ncpus = = 2\n")
    return root


# The same as doit says.


def test_it_finds_what_the_doit_step_finds(broken: Path) -> None:
    write(
        broken / "kbench.toml",
        (broken / "kbench.toml").read_text()
        + '[[suppress]]\nrule = "task/*"\ntask = "acme__tool-1"\nreason = "as upstream has it"\n',
    )
    doit(broken, "validate", code=1)
    said = of_subjects(as_json(broken, code=1))
    store = Store(broken)
    assert set(said) == {DATASET, *(f"acme__tool-{n}" for n in (1, 2, 3))}
    for subject, value in said.items():
        report = store.read("validate", subject)
        assert report
        assert {key: value[key] for key in report.data} == dict(report.data)
        assert (value["ok"], value["summary"]) == (report.ok, report.summary)
    assert any(findings_of(report) for s in said if (report := store.read("validate", s)))
    assert said["acme__tool-1"]["suppressed"][0]["reason"] == "as upstream has it"


def test_nothing_is_written(broken: Path) -> None:
    before = sorted(broken.rglob("*"))
    run(broken, code=1)
    assert sorted(broken.rglob("*")) == before


def test_a_foreign_dataset_without_settings_is_checked(tmp_path: Path) -> None:
    root = foreign_kit.make(tmp_path).root
    said = of_subjects(as_json(root, "--fail-on", "never"))
    assert said[foreign_kit.TASKS[0]]["form"] == "own"
    assert said[foreign_kit.TASKS[0]]["findings"]
    assert not (root / "kbench.toml").exists()


# What is checked.


def test_names_patterns_and_paths_choose_tasks(
    broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(*words: str, code: int = 0) -> list[str]:
        return list(of_subjects(as_json(*words, code=code)))

    monkeypatch.chdir(broken)
    assert chosen("acme__tool-1", "acme__tool-3") == ["acme__tool-1", "acme__tool-3"]
    assert chosen("*-[23]", code=1) == ["acme__tool-2", "acme__tool-3"]
    assert chosen("tasks/acme__tool-3/") == ["acme__tool-3"]
    assert chosen("tasks/acme__tool-3", "tasks/acme__tool-1") == ["acme__tool-3", "acme__tool-1"]
    assert chosen(DATASET) == [DATASET]
    assert len(chosen("tasks", code=1)) == 4
    monkeypatch.chdir(broken / "tasks")
    assert chosen("acme__tool-1") == ["acme__tool-1"]
    assert chosen(str(broken), "*-1") == ["acme__tool-1"]


@pytest.mark.parametrize("words", [["nope"], ["*nope*"], ["acme__tool-1", "nope"]])
def test_an_unknown_task_is_a_wrong_call(
    broken: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(broken)
    with pytest.raises(KbenchError, match=r"nope.*: no such task"):
        run(*words)


@pytest.mark.parametrize("place", ["tasks/nope", "/nowhere/nope", "./nope"])
def test_a_folder_that_is_not_there_is_no_task(place: str) -> None:
    with pytest.raises(KbenchError, match=f"{place}: no such folder"):
        run(place)


def test_a_folder_without_tasks_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="no folder tasks/ here"):
        run(tmp_path)


def test_a_folder_that_holds_tasks_itself_is_checked(tmp_path: Path) -> None:
    make_task(tmp_path / "elsewhere", "acme__tool-1", "ubuntu:24.04")
    (tmp_path / "elsewhere" / "tasks").rename(tmp_path / "set")
    write(tmp_path / "set" / "README.md", "not a task\n")
    said = of_subjects(as_json(tmp_path / "set"))
    files = {f["file"] for subject in said.values() for f in subject["findings"]}
    assert "acme__tool-1/task.toml" in files
    assert all(file.startswith("acme__tool-1/") for file in files)
    assert list(of_subjects(as_json(tmp_path / "set" / "acme__tool-1"))) == ["acme__tool-1"]


# Exit codes.


def test_exit_codes_go_by_severity(broken: Path) -> None:
    run(broken, "acme__tool-1")
    run(broken, "acme__tool-1", "--fail-on", "note", code=1)
    run(broken, code=1)
    run(broken, "--fail-on", "never")
    assert CliRunner().invoke(cli, ["validate", "--format", "xml"]).exit_code == 2


def test_severity_leaves_out_what_matters_less(broken: Path) -> None:
    for style in ("text", "json", "github", "sarif"):
        said = run(broken, "--severity", "error", "--format", style, code=1).stdout
        assert "task/older-keys" not in said.replace('"id": "task/older-keys"', "")
        assert "document/syntax" in said


# Text.


def test_text_is_grouped_by_file_with_a_summary(broken: Path) -> None:
    lines = run(broken, code=1).stdout.splitlines()
    start = lines.index("tasks/acme__tool-2/task.toml")
    assert lines[start + 1].startswith("  error    line 4, column 8: ")
    assert lines[start + 1].endswith("[document/syntax]")
    assert lines[start + 2].startswith("           ")
    assert re.fullmatch(r"1 error, (\d+ warnings?, )?\d+ notes in 3 tasks", lines[-1])
    assert any(line.startswith("not checked in 3 tasks: ") for line in lines)


def test_text_lists_what_was_answered_for(broken: Path) -> None:
    toml = '[[suppress]]\nrule = "task/*"\nreason = "as\\nupstream has it"\n'
    write(broken / "kbench.toml", (broken / "kbench.toml").read_text() + toml)
    said = run(broken, code=1).stdout
    assert "answered for: 2 findings [task/older-keys]: as\\nupstream has it\n" in said


def test_colours_are_for_terminals(broken: Path) -> None:
    def shown(*words: str, **changes: str) -> bytes:
        ours, theirs = pty.openpty()
        code = "import sys; from kbench_build.cli import main; sys.exit(main())"
        env = {k: v for k, v in environment().items() if k != "NO_COLOR"} | changes
        command = [sys.executable, "-c", code, "validate", str(broken), *words]
        subprocess.run(command, env=env, stdout=theirs, stderr=theirs, check=False)
        os.close(theirs)
        said = os.read(ours, 1 << 16)
        os.close(ours)
        return said

    assert b"\x1b[31m" in shown()
    assert b"\x1b[" not in shown("--no-color")
    assert b"\x1b[" not in shown(NO_COLOR="1")
    assert "\x1b[" not in run(broken, code=1).stdout
    assert "\x1b[" in run(broken, "--color", code=1).stdout


# Places in a repository.


@pytest.fixture
def within(broken: Path) -> Path:
    """The same dataset, in a folder of a larger repository."""
    top = broken.parent
    git(top, "init", "-q")
    (top / "data sets").mkdir()
    return broken.rename(top / "data sets" / "a:b")


def test_paths_are_relative_to_the_repository(within: Path) -> None:
    value = json.loads(run(within, "--format", "sarif", code=1).stdout)
    check_sarif(value)
    result = next(r for r in value["runs"][0]["results"] if r["ruleId"] == "document/syntax")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == ("data%20sets/a%3Ab/tasks/acme__tool-2/task.toml")
    assert place["region"] == {"startLine": 4, "startColumn": 8}
    said = run(within, "--format", "github", code=1).stdout.splitlines()
    file = "data sets/a%3Ab/tasks/acme__tool-2/task.toml"
    assert said[0].startswith(f"::error file={file},line=4,col=8,title=document/syntax::")
    assert as_json(within, code=1)["folder"] == "data sets/a:b"


def test_a_worktree_whose_git_is_a_file_is_a_repository(broken: Path) -> None:
    write(broken.parent / ".git", "gitdir: elsewhere\n")
    assert as_json(broken, code=1)["folder"] == "small"


def test_outside_a_repository_paths_are_the_datasets_own(broken: Path) -> None:
    assert as_json(broken, code=1)["folder"] == ""
    assert "file=tasks/acme__tool-2/task.toml" in run(broken, "--format", "github", code=1).stdout


def test_a_key_is_found_in_its_file(tmp_path: Path) -> None:
    sample = Sample(tmp_path)
    sample.edit("task.toml", "cpus = 2", 'cpus = "2"')
    line = (sample.task / "task.toml").read_text().splitlines().index('cpus = "2"') + 1
    said = run(tmp_path, TASK, "--format", "github", "--fail-on", "never").stdout
    assert f"file=tasks/{TASK}/task.toml,line={line},title=document/" in said


# Hostile data.


def test_a_pipe_a_link_and_a_huge_document_are_findings(tmp_path: Path) -> None:
    root = make_dataset(tmp_path, tasks=3)
    os.mkfifo(root / "tasks/acme__tool-1/tests/pipe")
    (root / "tasks/acme__tool-1/tests/out").symlink_to("/etc/passwd")
    with (root / "tasks/acme__tool-2/task.toml").open("r+b") as file:
        file.truncate(100 << 20)
    said = of_subjects(as_json(root, code=1))
    found = {f["file"].rpartition("/")[2] for f in said["acme__tool-1"]["findings"]}
    assert {"pipe", "out"} <= found
    assert "layout/unreadable" in {f["rule"] for f in said["acme__tool-2"]["findings"]}


def test_ten_thousand_findings_and_odd_names_break_no_form(tmp_path: Path) -> None:
    root = make_dataset(tmp_path, tasks=1)
    git(tmp_path, "init", "-q")
    for number in range(210):
        make_task(root, f"odd\n::error::{number}", "ubuntu:24.04")
        for file in range(51):
            write(root / "tasks" / f"odd\n::error::{number}" / "tests" / f"\x1b[31m\n::{file}", "")
    value = as_json(root, code=1)
    assert sum(len(subject["findings"]) for subject in value["subjects"]) > 10_000
    log = json.loads(run(root, "--format", "sarif", code=1).stdout)
    check_sarif(log)
    assert len(log["runs"][0]["results"]) > 10_000
    said = run(root, "--format", "github", code=1).stdout.splitlines()
    assert len(said) <= 30
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in said)
    assert all(line.count("::") >= 2 and "\x1b" not in line for line in said)
    assert "aren't annotated" in said[-1]
    text = run(root, code=1).stdout
    assert "\x1b" not in text
    assert not any(line.startswith("::") for line in text.splitlines())
