"""The workflow that dataset repositories copy: valid YAML, pinned actions, commands that work."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from kbench_build.cli import cli
from kbench_build.graph import Graph
from tests.graph_kit import counts, environment, make_dataset, write
from tests.verifier_box import git

WORKFLOW = Path(__file__).parent.parent / ".github/workflows/integrity.yml"
ACTION = re.compile(r"(?:actions/[a-z-]+|github/codeql-action/upload-sarif)@v\d+\.\d+\.\d+")


def document() -> Any:
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for job in document()["jobs"].values() for step in job["steps"]]


def called(program: str) -> list[list[str]]:
    """The words of each call of a program; what stands behind a pipe is a call too."""
    lines = [line for step in steps() for line in step.get("run", "").splitlines()]
    calls = [part.replace("xargs -r ", "").split() for line in lines for part in line.split("|")]
    return [words[1:] for words in calls if words[:1] == [program]]


def step(words: str) -> dict[str, Any]:
    return next(step for step in steps() if words in step.get("run", ""))


def test_actions_are_pinned_to_a_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert all(ACTION.fullmatch(action) for action in used)


def test_only_the_job_of_alerts_can_write_and_nothing_but_alerts() -> None:
    found = document()
    assert found["permissions"] == {"contents": "read"}
    allowed = {
        name: job["permissions"] for name, job in found["jobs"].items() if "permissions" in job
    }
    assert allowed == {"code-scanning": {"contents": "read", "security-events": "write"}}
    assert "pull_request_target" not in WORKFLOW.read_text(encoding="utf-8")


def test_alerts_are_for_those_who_ask_and_for_changes_of_the_repository_itself() -> None:
    condition = document()["jobs"]["code-scanning"]["if"]
    assert "vars.KBENCH_CODE_SCANNING == 'true' &&" in condition
    assert "head.repo.full_name == github.repository" in condition


def test_its_commands_exist() -> None:
    reached = {word for words in called("doit") for word in words}
    assert {"build_images", "seal", "selfcheck"} <= reached
    assert all(hasattr(Graph, f"task_{word}") for word in reached)
    used = {words[0] for words in called("kbench")}
    context = Context(cli)
    assert {"validate", "affected", "sync"} <= used <= set(cli.list_commands(context))
    for words in called("kbench"):
        command = cli.get_command(context, words[0])
        assert command is not None
        known = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_a_pull_request_runs_what_it_touches_and_knows_its_history() -> None:
    jobs = document()["jobs"]
    checkout = jobs["images"]["steps"][0]
    assert checkout["with"]["fetch-depth"] == 0
    assert step("kbench affected")["if"] == "github.event_name == 'pull_request'"
    everything = [s for s in steps() if s.get("run", "").startswith("doit ")]
    assert all(s["if"] == "github.event_name != 'pull_request'" for s in everything)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone, as CI has it, of a repository whose branch changes what is told of one task."""
    made = make_dataset(tmp_path / "upstream", tasks=2)
    write(made / ".gitignore", ".kbench/\n__pycache__/\n")
    git(made, "init", "-q", "-b", "main")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "start")
    git(made, "checkout", "-q", "-b", "change")
    document = made / "tasks/acme__tool-2/task.toml"
    write(document, document.read_text().replace('"easy"', '"hard"'))
    git(made, "commit", "-qam", "change")
    git(tmp_path, "clone", "-q", f"file://{made}", "clone")
    return tmp_path / "clone"


def sh(folder: Path, command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a step's command as GitHub does with the shell that the workflow names."""
    assert document()["defaults"] == {"run": {"shell": "bash"}}
    bin_folder = folder.parent / "bin"
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    for name, call in (("kbench", f"-c '{main}'"), ("doit", "-m doit")):
        write(bin_folder / name, f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        (bin_folder / name).chmod(0o755)
    env = environment(PATH=f"{bin_folder}:{os.environ['PATH']}", **changes)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_step_for_pull_requests_does_what_the_change_asks_for(clone: Path) -> None:
    command = step("kbench affected")["run"]
    done = sh(clone, command, BASE="main")
    assert done.returncode == 0, done.stderr
    assert counts(done.stdout) == {"done": 1}
    git(clone, "checkout", "-q", "main")
    assert sh(clone, command, BASE="main").stdout == ""


def test_the_step_for_pull_requests_fails_where_nothing_can_be_compared(clone: Path) -> None:
    done = sh(clone, step("kbench affected")["run"], BASE="gone")
    assert done.returncode != 0
    assert "no such commit here" in done.stderr


def test_the_step_that_annotates_fails_for_an_error(clone: Path) -> None:
    command = step("--format github")["run"]
    assert sh(clone, command).returncode == 0
    (clone / "tasks/acme__tool-2/tests/test.sh").unlink()
    done = sh(clone, command)
    assert done.returncode == 1
    assert "::error file=tasks/acme__tool-2/tests/test.sh," in done.stdout
    listed = sh(clone, step("--fail-on never")["run"])
    assert listed.returncode == 0
