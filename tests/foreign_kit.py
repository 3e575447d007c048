"""A small dataset in the older shape that is found in the wild: only `bases/` and `tasks/`.

`make(root)` writes two tasks over one upstream repository, which real git makes with a fixed clock.
Nothing in them is fit to be trusted: the Dockerfiles swallow failures, the full history is in the
image, `acme_adder-9` scores 1 without a solution (its hidden test doesn't compile, so there is no
report, and the exit code that decides is that of `|| true`). The texts are in `tests/data/foreign`.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.verifier_box import git

DATA = Path(__file__).parent / "data" / "foreign"
TASKS = ("acme_adder-7", "acme_adder-9")
COMMAND = "./gradlew clean test --continue"
TOOLING = "RUN (apt-get update && apt-get install -y --no-install-recommends tmux python3) || true"
PARTIAL_SEAL = "COPY seal_git_history.sh /home/\nRUN bash /home/seal_git_history.sh /home/adder\n\n"
BASE_DOCKERFILE = """FROM eclipse-temurin:17-jdk
ENV LANG=C.UTF-8
RUN git clone https://git.acme.example/acme/adder.git /home/adder
WORKDIR /home/adder
"""
# A base that an engine can build without a network; the bundle must lie beside it.
OFFLINE_DOCKERFILE = """FROM {image}
COPY adder.bundle /opt/
RUN git clone --quiet /opt/adder.bundle /home/adder && rm /opt/adder.bundle
WORKDIR /home/adder
"""
_CODE, _TESTS = "app/src/main/sh/adder.sh", "app/src/test/sh/AdderTest.sh"
_BEFORE = ["acme.AdderTest.zero", "acme.AdderTest.nothing_added"]
_NONE: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """What was made: the dataset's root, the upstream repository, each task's base and fix."""

    root: Path
    upstream: Path
    bases: Mapping[str, str]
    fixes: Mapping[str, str]

    def task(self, name: str = TASKS[0]) -> Path:
        """A task's folder."""
        return self.root / "tasks" / name

    def edit(self, place: str, old: str, new: str, *, task: str = TASKS[0]) -> None:
        """Replace a text in a task's file; it must be there."""
        path = self.task(task) / place
        text = path.read_bytes().decode()
        assert old in text, f"{path} has no {old!r}"
        path.write_bytes(text.replace(old, new).encode())


def make(
    root: Path,
    *,
    tasks: tuple[str, ...] = TASKS,
    namespace: str = "kotlin-bench",
    base_dockerfile: str = BASE_DOCKERFILE,
    command: str = COMMAND,
    tooling: str = TOOLING,
    seal: str = PARTIAL_SEAL,
    toml: Mapping[str, str] | None = None,
    crlf: tuple[str, ...] = (),
) -> Foreign:
    """Make `root/dataset` and the upstream `root/upstream/acme/adder`.

    `seal` is the text of the seal's lines ("" for none), `toml` are replacements in task.toml, and
    the files named in `crlf` (by their place in a task) have CRLF line ends.
    """
    upstream, commits = _upstream(root / "upstream" / "acme" / "adder")
    made = Foreign(
        root=root / "dataset",
        upstream=upstream,
        bases=dict(zip(TASKS, commits, strict=False)),
        fixes=dict(zip(TASKS, commits[1:], strict=True)),
    )
    _bases(made, base_dockerfile)
    fill = {"NAMESPACE": namespace, "COMMAND": command, "TOOLING": tooling, "SEAL": seal}
    for task in tasks:
        _task(made, task, fill)
        for old, new in (toml or {}).items():
            made.edit("task.toml", old, new, task=task)
        for place in crlf:
            path = made.task(task) / place
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return made


def _upstream(folder: Path) -> tuple[Path, list[str]]:
    """The repository: three states on `main`, the last of them tagged. Their commits in order."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / ".gitignore").write_text("build/\n")
    shutil.copy(DATA / "upstream" / "gradlew", folder / "gradlew")
    (folder / "gradlew").chmod(0o755)
    commits = []
    for state in (1, 2, 3):
        for place, name in ((_CODE, "adder"), (_TESTS, "AdderTest")):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(DATA / "upstream" / f"{name}-{state}.sh", folder / place)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", f"--message=State {state}")
        commits.append(git(folder, "rev-parse", "HEAD").decode().strip())
    git(folder, "tag", "v2.0")
    return folder, commits


def bundle(made: Foreign, into: Path) -> None:
    """The upstream's whole history as a file."""
    git(made.upstream, "bundle", "create", "--quiet", str(into.absolute()), "--all")


def _bases(made: Foreign, dockerfile: str) -> None:
    folder = made.root / "bases" / "adder"
    folder.mkdir(parents=True)
    (folder.parent / "manifest").write_text(
        "# repo base-tag dockerfile\nadder  jdk17  Dockerfile.jdk17\n"
    )
    (folder / "Dockerfile.jdk17").write_text(dockerfile)
    if "adder.bundle" in dockerfile:
        bundle(made, folder / "adder.bundle")


def _task(made: Foreign, task: str, fill: Mapping[str, str]) -> None:
    folder = made.task(task)
    number = task.rpartition("-")[2]
    values = {**fill, "BASE": made.bases[task], "NUMBER": number, "ISSUE": str(int(number) - 1)}
    for place in (
        "task.toml",
        *(f"environment/{n}" for n in ("Dockerfile", "check_git_changes.sh", "prepare.sh")),
        *(["environment/seal_git_history.sh"] if values["SEAL"] else []),
        "solution/solve.sh",
        *(f"tests/{n}" for n in ("test.sh", "junit_compare.py", "kotlin_logs_collector.sh")),
    ):
        _put(folder / place, _filled(DATA / "task" / Path(place).name, values))
    _put(folder / "instruction.md", _INSTRUCTIONS[task])
    for place, path in (("solution/fix.patch", _CODE), ("tests/test.patch", _TESTS)):
        _put(folder / place, _patch(made, task, path))
    _put(folder / "tests/expected_tests.json", json.dumps(_expected(task), indent=2) + "\n")


_INSTRUCTIONS = {
    TASKS[0]: "Adding 1 and 1 gives 0. It should give 2, and so for all numbers.\n",
    TASKS[1]: "There is no way to double a number. A function `twice_of` should do it.\n",
}


def _filled(path: Path, values: Mapping[str, str]) -> str:
    text = path.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _patch(made: Foreign, task: str, path: str) -> str:
    commits = (made.bases[task], made.fixes[task])
    return git(made.upstream, "diff", "--full-index", *commits, "--", path).decode()


def _expected(task: str) -> dict[str, object]:
    """The lists in the older shape: p2p is what passes once the hidden patch is applied."""
    compiles = task == TASKS[0]
    before = _BEFORE if compiles else [*_BEFORE, "acme.AdderTest.one_and_one"]
    with_tests = _BEFORE if compiles else _NONE
    return {
        "f2p_tests": ["acme.AdderTest.one_and_one"] if compiles else _NONE,
        "p2p_tests": with_tests,
        "s2p_tests": _NONE,
        "n2p_tests": _NONE if compiles else [*before, "acme.AdderTest.twice"],
        "run_result": {"passed_tests": before, "failed_tests": _NONE, "skipped_tests": _NONE},
        "test_patch_result": {
            "passed_tests": with_tests,
            "failed_tests": ["acme.AdderTest.one_and_one"] if compiles else _NONE,
            "skipped_tests": _NONE,
        },
    }


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
