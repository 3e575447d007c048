"""The shipped benchmark holds what it promises: its upstreams, its tasks, and each trait of them.

Everything is read from the data: histories are built from their text, and a task's patches are held
against the pull request that they were cut from. Nothing here needs an engine.
"""

import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rules.base_inputs import heads_digest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "history.py"
UPSTREAMS = sorted(p.parent.parent.name for p in (ROOT / "bases").glob("*/history/series"))
TASKS = sorted(p.parent.name for p in (ROOT / "tasks").glob("*/task.toml"))
LISTS = ("f2p_tests", "p2p_tests", "s2p_tests", "n2p_tests")


def output(*command: str | Path, stdin: bytes | None = None, index: Path | None = None) -> bytes:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"}
    if index:
        env["GIT_INDEX_FILE"] = str(index)
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        env=env,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """One upstream's repository, built from its text."""

    name: str
    path: Path

    def git(self, *words: str, stdin: bytes | None = None, index: Path | None = None) -> str:
        return self.raw(*words, stdin=stdin, index=index).decode().strip()

    def raw(self, *words: str, stdin: bytes | None = None, index: Path | None = None) -> bytes:
        command = ("git", f"--git-dir={self.path}", "-c", "core.quotePath=false", *words)
        return output(*command, stdin=stdin, index=index)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task's folder, and what its files say."""

    id: str

    @property
    def folder(self) -> Path:
        return ROOT / "tasks" / self.id

    def data(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def text(self, name: str) -> str:
        return self.data(name).decode()

    @functools.cached_property
    def toml(self) -> dict[str, Any]:
        return tomllib.loads(self.text("task.toml"))

    @property
    def source(self) -> dict[str, Any]:
        source: dict[str, Any] = self.toml["metadata"]["source"]
        return source

    @property
    def base(self) -> str:
        return str(self.source["base_commit"])

    @functools.cached_property
    def expected(self) -> dict[str, list[str]]:
        found = json.loads(self.text("tests/expected_tests.json"))
        return {name: found[name] for name in LISTS}

    @property
    def ids(self) -> list[str]:
        """The tests that the fix decides."""
        return [i for name in LISTS if name != "p2p_tests" for i in self.expected[name]]

    def files(self, patch: str) -> list[str]:
        """The files that a patch touches."""
        names = re.findall(r"^diff --git a/(.+) b/\1$", self.data(patch).decode("latin-1"), re.M)
        return [name.encode("latin-1").decode() for name in names]


ALL = [Task(id=task) for task in TASKS]


@pytest.fixture(scope="module")
def upstreams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Upstream]:
    folder = tmp_path_factory.mktemp("upstreams")
    built = {}
    for name in UPSTREAMS:
        series = ROOT / "bases" / name / "history"
        output(sys.executable, SCRIPT, "build", "--bare", series, folder / name)
        built[name] = Upstream(name=name, path=folder / name)
    return built


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest, upstreams: dict[str, Upstream]) -> Upstream:
    return upstreams[request.param]


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return Task(id=request.param)


def merge_of(task: Task, upstream: Upstream) -> str:
    """The merge of the task's pull request into the main branch."""
    title = f"^Merge pull request #{task.source['code_change_id']} "
    merges = upstream.git("log", "main", "--first-parent", "--format=%H", "--grep", title).split()
    assert len(merges) == 1
    return merges[0]


# --- the upstreams ---------------------------------------------------------------------------


def test_there_are_two_upstreams_eight_tasks_and_three_bases() -> None:
    assert len(UPSTREAMS) >= 2
    assert len(TASKS) >= 8
    toolchains = {
        re.findall(r"^FROM (\S+)$", t.text("environment/Dockerfile"), re.M)[-1] for t in ALL
    }
    assert len(toolchains) >= 3
    assert {t.source["repository_name"] for t in ALL} == set(UPSTREAMS)


def test_a_history_is_long_enough_and_believable(upstream: Upstream) -> None:
    assert int(upstream.git("rev-list", "--count", "main")) >= 25
    merges = upstream.git("log", "main", "--merges", "--format=%s").splitlines()
    assert len([m for m in merges if re.match(r"Merge pull request #\d+ from ", m)]) >= 5
    assert len(upstream.git("tag").split()) >= 3
    branches = upstream.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split()
    releases = [branch for branch in branches if branch.startswith("release")]
    assert releases
    for branch in releases:
        assert int(upstream.git("rev-list", "--count", f"main..{branch}")) >= 1


def test_a_history_goes_forward_and_names_roles_only(upstream: Upstream) -> None:
    for line in upstream.git("log", "main", "--first-parent", "--format=%ct %ce %ae").splitlines():
        _, *addresses = line.split()
        assert all(address.endswith(".invalid") for address in addresses)
    times = upstream.git("log", "main", "--first-parent", "--reverse", "--format=%ct").split()
    assert times == sorted(times, key=int)


def test_a_history_is_the_one_that_is_pinned(upstream: Upstream, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    output(sys.executable, SCRIPT, "build", ROOT / "bases" / upstream.name / "history", bundle)
    heads = output("git", "bundle", "list-heads", bundle).decode()
    inputs = tomllib.loads((ROOT / "bases" / upstream.name / "inputs.toml").read_text())["input"]
    assert [i["git_heads"] for i in inputs if "git_heads" in i] == [heads_digest(heads)]


def test_a_history_is_exported_as_it_stands(upstream: Upstream, tmp_path: Path) -> None:
    output(sys.executable, SCRIPT, "export", upstream.path, tmp_path / "series")
    kept = ROOT / "bases" / upstream.name / "history"
    assert {p.name: p.read_bytes() for p in (tmp_path / "series").iterdir()} == {
        p.name: p.read_bytes() for p in kept.iterdir()
    }


# --- the tasks ---------------------------------------------------------------------------------


def test_a_task_is_cut_from_its_pull_request(task: Task, upstreams: dict[str, Upstream]) -> None:
    upstream = upstreams[task.source["repository_name"]]
    merge = merge_of(task, upstream)
    assert upstream.git("rev-parse", f"{merge}^1") == task.base
    assert len(upstream.git("rev-list", f"{merge}..main").split()) >= 1, (
        "nothing comes after the fix"
    )
    for patch in ("solution/fix.patch", "tests/test.patch"):
        cut = ("diff", "--full-index", "--binary", "--no-renames", task.base, merge, "--")
        assert upstream.raw(*cut, *task.files(patch)) == task.data(patch)
    changed = upstream.git("diff", "--name-only", "--no-renames", task.base, merge).splitlines()
    assert sorted(task.files("solution/fix.patch") + task.files("tests/test.patch")) == sorted(
        changed
    )


def test_a_patch_holds_either_source_or_tests(task: Task) -> None:
    assert all("src/test/" in name for name in task.files("tests/test.patch"))
    fixed = task.files("solution/fix.patch")
    assert not [name for name in fixed if "src/test/" in name or name.endswith(".md")]


def test_both_patches_make_the_fixed_tree(
    task: Task, upstreams: dict[str, Upstream], tmp_path: Path
) -> None:
    upstream = upstreams[task.source["repository_name"]]
    index = tmp_path / "index"
    upstream.git("read-tree", task.base, index=index)
    for patch in ("tests/test.patch", "solution/fix.patch"):
        upstream.git("apply", "--cached", stdin=task.data(patch), index=index)
    fixed = upstream.git("rev-parse", f"{merge_of(task, upstream)}^{{tree}}")
    assert upstream.git("write-tree", index=index) == fixed


def test_a_task_holds_what_such_tasks_hold(task: Task) -> None:
    held = {str(p.relative_to(task.folder)) for p in task.folder.rglob("*") if p.is_file()}
    assert {
        "task.toml",
        "instruction.md",
        "environment/Dockerfile",
        "environment/prepare.sh",
        "environment/check_git_changes.sh",
        "environment/seal_git_history.sh",
        "solution/fix.patch",
        "solution/solve.sh",
        "tests/test.patch",
        "tests/test.sh",
        "tests/expected_tests.json",
        "tests/kotlin_logs_collector.sh",
        "tests/junit_compare.py",
    } <= held


def test_a_task_says_where_it_is_from_and_what_an_agent_may_reach(task: Task) -> None:
    source = task.source
    assert re.fullmatch(r"[0-9a-f]{40}", task.base)
    assert source["license"] in {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause"}
    assert source["code_change_type"] == "pull_request"
    assert source["issue_urls"]
    assert source["code_change_url"].startswith(source["repository_url"])
    assert task.id.endswith(f"-{source['code_change_id']}")
    assert task.toml["agent"]["network_mode"] == "allowlist"
    assert len(task.toml["agent"]["allowed_hosts"]) == 10
    assert task.toml["verifier"]["network_mode"] == "no-network"


def test_the_base_is_the_same_wherever_it_stands(task: Task) -> None:
    assert json.loads(task.text("tests/verify.json"))["base_commit"] == task.base
    for file in ("environment/Dockerfile", "environment/prepare.sh"):
        assert set(re.findall(r"\b[0-9a-f]{40}\b", task.text(file))) == {task.base}


def test_no_layer_of_a_task_image_holds_history_past_its_base(task: Task) -> None:
    stages = re.split(r"^FROM ", task.text("environment/Dockerfile"), flags=re.M)[1:]
    assert stages[0].splitlines()[0].endswith(":history AS sealed")
    assert "seal_git_history.sh" in stages[0]
    assert ":history" not in stages[-1]
    assert "COPY --from=sealed" in stages[-1]
    toolchain = ROOT / "bases" / task.source["repository_name"]
    tag = re.match(r"\S+:(\S+)", stages[-1])
    assert tag
    assert ".bundle" not in (toolchain / f"Dockerfile.{tag[1]}").read_text()


def test_a_checkout_is_checked_clean_before_and_after_the_warm_up(task: Task) -> None:
    lines = task.text("environment/prepare.sh").splitlines()
    checks = [
        n
        for n, line in enumerate(lines)
        if line.startswith("bash /opt/kbench/check_git_changes.sh")
    ]
    assert len(checks) == 2
    assert checks[1] - checks[0] > 1


def test_instructions_read_like_issues(task: Task) -> None:
    text = task.text("instruction.md")
    title, *rest = text.splitlines()
    assert 10 <= len(title) <= 120
    assert rest[0] == ""
    assert len(text.split()) >= 60
    assert not re.search(r"hidden test|src/test|test\.patch|fix\.patch|benchmark", text)


# --- what the tasks cover between them -----------------------------------------------------------


def modules(task: Task) -> set[str]:
    """The modules whose sources the fix changes; the root of a repository is one of its own."""
    return {
        name.partition("src/main/")[0]
        for name in task.files("solution/fix.patch")
        if "src/main/" in name
    }


def build_calls_git(task: Task) -> bool:
    """Whether a build script of the base runs git; read from the text of the history."""
    kept = ROOT / "bases" / task.source["repository_name"] / "history"
    for patch in sorted(kept.glob("*.patch")):
        for part in patch.read_text(errors="replace").split("diff --git ")[1:]:
            name = part.split(" b/")[0]
            if "/src/" not in name and re.search(r"^\+.*\bgit\b.*(rev-parse|describe)", part, re.M):
                return True
    return False


TRAITS: dict[str, Callable[[Task], bool]] = {
    "f2p": lambda t: bool(t.expected["f2p_tests"]),
    "f2p alone": lambda t: t.ids == t.expected["f2p_tests"] != [],
    "n2p only": lambda t: t.ids == t.expected["n2p_tests"] != [],
    "s2p": lambda t: bool(t.expected["s2p_tests"]),
    "several modules": lambda t: len(modules(t)) >= 2,
    "a fix over several files": lambda t: len(t.files("solution/fix.patch")) >= 3,
    "parameterised tests": lambda t: any(re.search(r"\[\d+\]$", i) for i in t.ids),
    "nested classes": lambda t: any("$" in i for i in t.ids),
    "spaces in names": lambda t: any(" " in i for i in t.ids),
    "quotes in names": lambda t: any('"' in i or "'" in i for i in t.ids),
    "non-ASCII in names": lambda t: any(not i.isascii() for i in t.ids),
    "a flaky test excluded": lambda t: any(
        (t.folder / "environment").glob("exclude-flaky-tests.*")
    ),
    "a build that calls git": build_calls_git,
    "a binary file in a patch": lambda t: any(
        b"\nGIT binary patch\n" in t.data(p) for p in ("solution/fix.patch", "tests/test.patch")
    ),
    "a mode change in a patch": lambda t: (
        b"\nold mode 100644\nnew mode 100755\n" in t.data("solution/fix.patch")
    ),
}


@pytest.mark.parametrize("trait", TRAITS)
def test_the_tasks_cover(trait: str) -> None:
    assert [t.id for t in ALL if TRAITS[trait](t)], f"no task has: {trait}"


def reports() -> Iterator[str]:
    for task in ALL:
        yield from json.loads(task.text("tests/verify.json"))["reports"]


def test_some_builds_write_one_report_a_module_and_some_one_a_class() -> None:
    assert len(set(reports())) >= 2


LICENCES = {"Apache-2.0": "Apache License", "MIT": "MIT License"}


def test_the_licence_is_in_the_base(task: Task, upstreams: dict[str, Upstream]) -> None:
    upstream = upstreams[task.source["repository_name"]]
    text = upstream.git("show", f"{task.base}:LICENSE")
    assert LICENCES[task.source["license"]] in text


def test_there_are_upstreams_of_more_than_one_licence() -> None:
    assert len({task.source["license"] for task in ALL}) > 1


def test_some_patch_has_other_line_ends() -> None:
    assert any(b"\r\n" in task.data("tests/test.patch") for task in ALL)


def test_where_hidden_tests_do_not_compile_the_old_ones_still_guard() -> None:
    new = [t for t in ALL if not t.expected["f2p_tests"] and not t.expected["s2p_tests"]]
    assert new
    assert all(task.expected["p2p_tests"] for task in new)


EXCLUDING = [t.id for t in ALL if any((t.folder / "environment").glob("exclude-flaky-tests.*"))]


@pytest.mark.parametrize("name", EXCLUDING)
def test_an_exclusion_file_is_used_and_keeps_its_tests_out(name: str) -> None:
    task = Task(id=name)
    (file,) = (task.folder / "environment").glob("exclude-flaky-tests.*")
    copied = re.findall(r"^COPY (.*) /opt/kbench/$", task.text("environment/Dockerfile"), re.M)
    assert any(file.name in line.split() for line in copied)
    assert f"/opt/kbench/{file.name}" in " ".join(
        json.loads(task.text("tests/verify.json"))["command"]
    )
    excluded = re.findall(r"\b[A-Z]\w*Test\b", file.read_text())
    assert excluded
    every = [i for ids in task.expected.values() for i in ids]
    assert not [i for i in every for test in excluded if f".{test}." in i]
