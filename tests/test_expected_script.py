"""Expected tests come from what three states of a checkout did, and only when repeats agree."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model.jobs import Job, JobResult
from kbench_build.rim.engines import tars

FILE = Path(__file__).parent.parent / "scripts" / "expected_tests.py"
TASK_TOML = '[verifier]\ntimeout_sec = 60.0\n[environment]\nnetwork_mode = "no-network"\n'
VERIFY = {
    "base_commit": "0" * 40,
    "hidden": {"a": {"base": "100644 aa", "after": "100644 bb"}, "n": {"base": None, "after": "x"}},
    "protected": {"globs": ["test/**"], "files": {"p": "100644 cc"}},
}


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("expected_tests_script", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def task(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task whose engine answers with what `reports` (by state) says, one by one."""
    monkeypatch.setattr(script, "ROOT", tmp_path)
    folder = tmp_path / "tasks" / "t"
    for name, content in {
        "task.toml": TASK_TOML,
        "tests/verify.json": json.dumps(VERIFY),
        "tests/test.sh": "",
        "solution/fix.patch": "",
        "solution/solve.sh": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")

    def make(**reports: list[dict[str, str] | str]) -> Any:
        def engine(job: Job) -> JobResult:
            found = reports[job.name.split("/")[1]].pop(0)
            if isinstance(found, str):
                report = {"outcome": found, "errors": ["why"], "tests": {}}
            else:
                report = {"outcome": "unresolved", "errors": [], "tests": found}
            archive = tars.pack({"report.json": json.dumps(report).encode()})
            return JobResult(status="exited", exit_code=0, outputs={job.outputs[0]: archive})

        return script.Task(id="t", image="i", engine=engine)

    return make


def test_each_transition_has_its_list(script: ModuleType, task: Any, tmp_path: Path) -> None:
    tests = {"f": "failed", "p": "passed", "s": "skipped"}
    fix = {"f": "passed", "p": "passed", "s": "passed", "n": "passed"}
    made = task(base=[{"p": "passed"}], tests=[tests], fix=[fix])
    assert script.work(made, repeats=1, check=False)
    value = json.loads((tmp_path / "tasks/t/tests/expected_tests.json").read_text())
    lists = {name: value[name] for name in ("f2p_tests", "p2p_tests", "s2p_tests", "n2p_tests")}
    assert lists == {
        "f2p_tests": ["f"],
        "p2p_tests": ["p"],
        "s2p_tests": ["s"],
        "n2p_tests": ["n"],
    }
    assert value["run_result"]["passed_tests"] == ["p"]
    assert value["test_patch_result"]["failed_tests"] == ["f"]


def test_where_nothing_compiles_the_base_says_what_passed(script: ModuleType) -> None:
    value = script.expected({"p": "passed"}, {}, {"p": "passed", "n": "passed"})
    assert value["p2p_tests"] == ["p"]
    assert value["n2p_tests"] == ["n"]


def test_a_module_that_does_not_compile_keeps_what_it_was_at_the_base(script: ModuleType) -> None:
    base, fix = {"a": "passed", "b": "passed"}, {"a": "passed", "b": "passed", "n": "passed"}
    value = script.expected(base, {"a": "passed"}, fix)
    assert value["p2p_tests"] == ["a", "b"]
    assert value["n2p_tests"] == ["n"]


def test_what_fails_or_is_skipped_with_the_fix_is_in_no_list(script: ModuleType) -> None:
    value = script.expected({}, {"a": "passed", "b": "failed"}, {"a": "failed", "b": "skipped"})
    assert not any(value[f"{kind}_tests"] for kind in ("f2p", "p2p", "s2p", "n2p"))


def test_a_test_that_the_fix_breaks_or_loses_is_named(script: ModuleType) -> None:
    said = list(script.complaints({}, {"a": "passed", "b": "passed"}, {"a": "failed"}))
    assert said == ["a: failed with the fix", "b: passed before the fix, isn't run after it"]


def test_repeats_that_differ_name_the_flaky_test(script: ModuleType, task: Any) -> None:
    made = task(base=[{"a": "passed", "b": "passed"}, {"a": "failed", "b": "passed"}])
    with pytest.raises(KbenchError, match=r"t: base: repeats differ: a$"):
        script.work(made, repeats=2, check=False)


def test_a_verifier_that_could_not_work_is_no_result(script: ModuleType, task: Any) -> None:
    with pytest.raises(KbenchError, match="t: base: verifier-error"):
        script.work(task(base=["verifier-error"]), repeats=1, check=False)


def test_check_compares_and_writes_nothing(script: ModuleType, task: Any, tmp_path: Path) -> None:
    def made() -> Any:
        return task(base=[{}], tests=[{"a": "failed"}], fix=[{"a": "passed"}])

    assert not script.work(made(), repeats=1, check=True)
    assert not (tmp_path / "tasks/t/tests/expected_tests.json").exists()
    script.work(made(), repeats=1, check=False)
    assert script.work(made(), repeats=1, check=True)


def test_the_base_keeps_the_files_that_the_hidden_patch_would_change(script: ModuleType) -> None:
    verify = script.unhidden(VERIFY)
    assert verify["hidden"] == {}
    assert verify["protected"]["files"] == {"p": "100644 cc", "a": "100644 aa"}
