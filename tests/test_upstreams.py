"""The upstream repositories that are kept as text, and what the shipped tasks take from them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rules.base_inputs import heads_digest

ROOT = Path(__file__).parent.parent
UPSTREAMS = sorted(folder.parent.name for folder in (ROOT / "bases").glob("*/history"))
TASKS = sorted(path.parent.name for path in (ROOT / "tasks").glob("*/task.toml"))
LICENCES = {"Apache-2.0": "Apache License", "MIT": "MIT License"}


def git(folder: Path, *words: str, data: bytes = b"", index: Path | None = None) -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
    if index:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, input=data, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, (words, done.stderr.decode())
    return done.stdout.decode()


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bare clone of each upstream, by its repository name."""
    made = {}
    for repo in UPSTREAMS:
        folder = tmp_path_factory.mktemp(repo)
        bundle, script = folder / "bundle", ROOT / "scripts" / "history.py"
        command = [sys.executable, str(script), "build", "history", str(bundle)]
        subprocess.run(command, cwd=ROOT / "bases" / repo, check=True)
        git(folder, "clone", "--quiet", "--mirror", str(bundle), "clone")
        made[repo] = folder / "clone"
    return made


def source_of(task: str) -> Any:
    text = (ROOT / "tasks" / task / "task.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["metadata"]["source"]


def patch_of(task: str, name: str) -> bytes:
    return (ROOT / "tasks" / task / name).read_bytes()


def fix_of(task: str, clone: Path, tmp_path: Path) -> str:
    """The upstream's commit on the base that has what both patches make of it."""
    base, index = source_of(task)["base_commit"], tmp_path / "index"
    git(clone, "read-tree", base, index=index)
    for name in ("solution/fix.patch", "tests/test.patch"):
        options = ("--cached", "--whitespace=nowarn", "-")
        git(clone, "apply", *options, data=patch_of(task, name), index=index)
    tree = git(clone, "write-tree", index=index).strip()
    log = git(clone, "log", "--all", "--format=%H %T %P").splitlines()
    found = [c for c, t, *parents in map(str.split, log) if t == tree and parents[:1] == [base]]
    assert found, "no commit on the base is what the two patches make"
    return str(found[0])


def test_there_are_two_upstreams_and_eight_tasks() -> None:
    assert len(UPSTREAMS) >= 2
    assert len(TASKS) >= 8


@pytest.mark.parametrize("repo", UPSTREAMS)
def test_the_bundle_has_the_pinned_refs(repo: str, clones: dict[str, Path]) -> None:
    text = (ROOT / "bases" / repo / "inputs.toml").read_text(encoding="utf-8")
    (pin,) = [i["git_heads"] for i in tomllib.loads(text)["input"] if "git_heads" in i]
    heads = git(clones[repo].parent, "bundle", "list-heads", "bundle")
    assert heads_digest(heads) == pin


@pytest.mark.parametrize("repo", UPSTREAMS)
def test_a_history_looks_like_a_project(repo: str, clones: dict[str, Path]) -> None:
    clone = clones[repo]
    assert int(git(clone, "rev-list", "--count", "main")) >= 25
    assert len(git(clone, "log", "--merges", "--grep", "pull request", "--format=%H").split()) >= 3
    assert len(git(clone, "tag", "--list").split()) >= 2
    assert "release" in git(clone, "branch", "--list")


@pytest.mark.parametrize("repo", UPSTREAMS)
def test_nobody_is_invented(repo: str, clones: dict[str, Path]) -> None:
    people = git(clones[repo], "log", "--all", "--format=%an <%ae>%n%cn <%ce>").splitlines()
    assert all(person.endswith(".invalid>") for person in people)


@pytest.mark.parametrize("task", TASKS)
def test_the_patches_are_the_upstreams_own_change(
    task: str, clones: dict[str, Path], tmp_path: Path
) -> None:
    clone = clones[source_of(task)["repository_name"]]
    fix = fix_of(task, clone, tmp_path)
    subject = git(clone, "log", "-1", "--format=%s", fix)
    assert f"#{source_of(task)['code_change_id']}" in subject
    assert int(git(clone, "rev-list", "--count", f"{fix}..main")) >= 1, "nothing came after"


@pytest.mark.parametrize("task", TASKS)
def test_the_licence_is_in_the_base(task: str, clones: dict[str, Path]) -> None:
    source = source_of(task)
    text = git(clones[source["repository_name"]], "show", f"{source['base_commit']}:LICENSE")
    assert LICENCES[source["license"]] in text


def test_both_licences_occur() -> None:
    assert {source_of(task)["license"] for task in TASKS} == set(LICENCES)
