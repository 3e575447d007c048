"""`kbench affected`: which subtasks a change in a real repository touches."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbench_build.cli import cli
from kbench_build.errors import KbenchError
from kbench_build.rim import schemas
from tests.graph_kit import counts, doit, environment, make_dataset, make_task, write
from tests.verifier_box import git

ONE, TWO = "acme__tool-1", "acme__tool-2"
ALL = ("validate", "build_images", "seal", "selfcheck")


def run(root: Path, *words: str, base: str = "start") -> list[str]:
    call = ["affected", "--root", str(root), "--base", base, *words]
    done = CliRunner().invoke(cli, call)
    if done.exception:
        raise done.exception
    return done.stdout.splitlines()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def tell(root: Path, task: str) -> None:
    """Change what people are told of a task: its validation alone reads that."""
    edit(root / "tasks" / task / "task.toml", 'difficulty = "easy"', 'difficulty = "hard"')


def commit(root: Path, message: str = "change") -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset in a folder of a repository, committed and marked `start`.

    Base `tool:b` stands on `tool:a`, task one on `b`, task two on `a`; task one has a base commit.
    A third base takes a generated file that counts by what it is made from.
    """
    root = tmp_path / "data" / "set"
    bases = {
        "a": "FROM scratch\nCOPY a.txt /\n",
        "b": "FROM kbench-test/tool:a\n",
        "c": "FROM scratch\nADD made.tar /\n",
    }
    make_dataset(root, tasks=0, bases=bases)
    make_task(root, ONE, "kbench-test/tool:b")
    make_task(root, TWO, "kbench-test/tool:a")
    (root / "tasks" / TWO / "solution/solve.sh").chmod(0o755)
    write(root / "bases/tool/a.txt", "a\n")
    write(root / "bases/tool/unused.txt", "u\n")
    write(root / "bases/tool/make.sh", "tar c /etc/hostname\n")
    write(
        root / "bases/tool/inputs.toml",
        '[[input]]\nfile = "made.tar"\nbases = ["c"]\nunpinned = "varies"\n'
        'command = ["sh", "make.sh"]\nsources = ["make.sh"]\n',
    )
    source = f'[metadata.source]\nbase_commit = "{"a" * 40}"\n\n[verifier]'
    edit(root / "tasks" / ONE / "task.toml", "[verifier]", source)
    write(root / "README.md", "read me\n")
    write(root / ".gitignore", ".kbench/\n*.log\n")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "start")
    git(tmp_path, "tag", "start")
    return root


def of(task: str, *steps: str) -> set[str]:
    return {f"{step}:{task}" for step in steps}


def task_file(name: str) -> Callable[[Path], None]:
    return lambda root: write(root / "tasks" / TWO / name, "changed\n")


def toml(old: str, new: str) -> Callable[[Path], None]:
    return lambda root: edit(root / "tasks" / TWO / "task.toml", old, new)


def base_file(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: write(root / "bases/tool" / name, text)


IMAGE = ("build_images", "seal", "selfcheck")
BOTH = of(ONE, *IMAGE) | of(TWO, *IMAGE)
VALIDATE = {"validate:@dataset", f"validate:{ONE}", f"validate:{TWO}"}

CHANGES: list[tuple[str, Callable[[Path], object], set[str]]] = [
    ("nothing", lambda _: None, set()),
    ("a README", lambda root: write(root / "README.md", "other\n"), set()),
    ("outside", lambda root: write(root.parent.parent / "tasks" / "x", "other\n"), set()),
    (
        "the graph's file",
        lambda root: edit(root / "dodo.py", "load(globals())", "load(globals()) "),
        set(),
    ),
    ("what git ignores", lambda root: write(root / "tasks" / TWO / "tests" / "x.log", ""), set()),
    ("a statement", task_file("instruction.md"), of(TWO, "validate", "seal")),
    ("a solution", task_file("solution/solve.sh"), of(TWO, "validate", "seal", "selfcheck")),
    ("a new test", task_file("tests/new.txt"), of(TWO, "validate", "seal", "selfcheck")),
    ("an environment", task_file("environment/x.sh"), of(TWO, *ALL)),
    ("what a runner is told", toml("cpus = 1", "cpus = 2"), of(TWO, "validate", "selfcheck")),
    ("what people are told", toml('"easy"', '"hard"'), of(TWO, "validate")),
    (
        "a file that a base copies",
        base_file("a.txt", "other\n"),
        {"validate:@dataset", "build_bases:tool:a", "build_bases:tool:b"} | BOTH,
    ),
    ("a file that no base copies", base_file("unused.txt", "other\n"), {"validate:@dataset"}),
    (
        "the recipe of a base on another",
        base_file("Dockerfile.b", "FROM kbench-test/tool:a\nENV A=1\n"),
        {"validate:@dataset", "build_bases:tool:b"} | of(ONE, *IMAGE),
    ),
    (
        "what a generated file is made from",
        base_file("make.sh", "tar c /etc/passwd\n"),
        {"validate:@dataset", "base_inputs:tool/made.tar", "build_bases:tool:c"},
    ),
    (
        "a line of the manifest",
        base_file("../manifest", "tool a Dockerfile.a\ntool b Dockerfile.b\n"),
        VALIDATE,
    ),
    (
        "a comment in the manifest",
        lambda root: edit(root / "bases/manifest", "tool a", "# first\ntool a"),
        {"validate:@dataset"},
    ),
    (
        "a suppression",
        lambda root: write(
            root / "kbench.toml",
            (root / "kbench.toml").read_text() + '[[suppress]]\nrule = "a/b"\nreason = "c"\n',
        ),
        VALIDATE,
    ),
    (
        "the version of the dataset",
        lambda root: edit(root / "kbench.toml", '"1.0.0"', '"1.1.0"'),
        set(),
    ),
    (
        "a schema",
        lambda root: write(root / "schemas" / "task.schema.json", "{}"),
        VALIDATE,
    ),
    (
        "a task that is deleted",
        lambda root: shutil.rmtree(root / "tasks" / TWO),
        {"validate:@dataset"},
    ),
    (
        "a task that is renamed",
        lambda root: (root / "tasks" / TWO).rename(root / "tasks" / "acme__tool-3"),
        {"validate:@dataset", *of("acme__tool-3", *ALL)},
    ),
    (
        "a file that moves from one part to another",
        lambda root: (root / "tasks" / TWO / "tests/test.sh").rename(
            root / "tasks" / TWO / "environment/test.sh"
        ),
        of(TWO, *ALL),
    ),
    (
        "a run bit",
        lambda root: (root / "tasks" / TWO / "tests/test.sh").chmod(0o755),
        of(TWO, "validate", "seal", "selfcheck"),
    ),
    (
        "a run bit that goes",
        lambda root: (root / "tasks" / TWO / "solution/solve.sh").chmod(0o644),
        of(TWO, "validate", "seal", "selfcheck"),
    ),
    (
        "a test that leaves the tests",
        lambda root: (root / "tasks" / TWO / "tests/test.sh").rename(
            root / "tasks" / TWO / "was-test.sh"
        ),
        of(TWO, "validate", "seal", "selfcheck"),
    ),
    (
        "the namespace, which no task follows",
        lambda root: edit(root / "kbench.toml", "kbench-test", "other"),
        VALIDATE | {f"build_bases:tool:{tag}" for tag in "b"} | BOTH,
    ),
]


@pytest.mark.parametrize("committed", [False, True], ids=["now", "committed"])
@pytest.mark.parametrize(
    ("change", "touched"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES]
)
def test_a_change_touches_what_reads_it(
    root: Path, change: Callable[[Path], None], touched: set[str], committed: bool
) -> None:
    change(root)
    if committed and git(root, "status", "--porcelain"):
        commit(root.parent.parent)
    found = set(run(root))
    # What a base holds may decide what is right in the tasks on it.
    more = VALIDATE if any(name.startswith("build_bases") for name in touched) else set()
    assert touched <= found <= touched | more


def test_subtasks_come_in_the_order_of_work(root: Path) -> None:
    write(root / "bases/tool/a.txt", "other\n")
    steps = [name.partition(":")[0] for name in run(root)]
    order = ["validate", "build_bases", "build_images", "seal", "selfcheck"]
    assert list(dict.fromkeys(steps)) == order


def test_steps_can_be_chosen(root: Path) -> None:
    write(root / "tasks" / TWO / "environment/x.sh", "changed\n")
    assert run(root, "--step", "selfcheck") == [f"selfcheck:{TWO}"]
    assert run(root, "--step", "base_inputs") == []


def test_what_the_other_branch_did_since_is_no_part_of_the_change(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "mine")
    tell(root, TWO)
    commit(root)
    git(root, "checkout", "-q", "main")
    tell(root, ONE)
    commit(root)
    git(root, "checkout", "-q", "mine")
    assert run(root, base="main") == [f"validate:{TWO}"]
    assert set(run(root, "--exact", base="main")) == {f"validate:{ONE}", f"validate:{TWO}"}


def test_a_revision_that_was_no_dataset_touches_everything(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path / "README.md", "soon\n")
    commit(tmp_path)
    git(tmp_path, "tag", "start")
    root = make_dataset(tmp_path, tasks=1)
    assert set(run(root)) == {"validate:@dataset", *of(ONE, *ALL)}


def test_settings_that_couldnt_be_read_touch_everything(root: Path) -> None:
    good = (root / "kbench.toml").read_text()
    write(root / "kbench.toml", "= nonsense\n")
    commit(root)
    write(root / "kbench.toml", good)
    assert len(run(root, base="HEAD")) == 13


def test_the_words_are_names_that_doit_takes(root: Path) -> None:
    tell(root, TWO)
    done = doit(root, *run(root))
    assert counts(done.stdout) == {"done": 1}


def test_odd_names_are_one_word_that_means_them(root: Path) -> None:
    odd = ["a b", "a\tb'c", "new\nline", "star*[x]?", 'quo"te\\', "$(id)"]
    for name in odd:
        make_task(root, name, "ubuntu:24.04")
    words = run(root, "--step", "validate")
    assert len(words) == 1 + len(odd)
    listed = "import sys; print(len(sys.argv) - 1)"
    for shell in ("set -- $(cat); echo $#", f"xargs -r python3 -c '{listed}'"):
        text = "\n".join(words)
        done = subprocess.run(
            ["bash", "-c", shell], input=text, capture_output=True, text=True, check=True, cwd=root
        )
        assert done.stdout.split() == [str(len(words))]
    assert counts(doit(root, *words, code=None).stdout)["done"] >= 1


def test_a_name_that_doit_would_take_for_a_variable_is_left_out(root: Path) -> None:
    make_task(root, "a=b", "ubuntu:24.04")
    assert run(root, "--step", "validate") == ["validate:@dataset"]


def test_nothing_touched_needs_not_mean_everything(root: Path) -> None:
    assert run(root, "--never-empty") == ["validate:@dataset"]
    tell(root, TWO)
    assert run(root, "--never-empty") == [f"validate:{TWO}"]


def test_json_says_names_as_they_are(root: Path) -> None:
    make_task(root, "a b", "ubuntu:24.04")
    value: Any = json.loads("\n".join(run(root, "--format", "json", "--step", "validate")))
    assert schemas.problems("affected", value) == ()
    assert value["commit"] == git(root, "rev-parse", "start").decode().strip()
    assert "tasks/a b/task.toml" in value["changed"]
    assert value["subtasks"][-1] == {"name": "validate:a b", "step": "validate", "subject": "a b"}


def test_it_asks_no_engine_and_leaves_no_report(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{root}/nowhere.sock")
    write(root / "bases/tool/a.txt", "other\n")
    run(root)
    assert {path.name for path in (root / ".kbench").iterdir()} <= {"index"}


def test_an_upstream_at_hand_is_no_change_and_naming_another_is(root: Path, tmp_path: Path) -> None:
    upstream = tmp_path / "mirrors" / "acme" / "tool"
    write(upstream / "a", "a\n")
    git(upstream, "init", "-q")
    commit(upstream)
    held = git(upstream, "rev-parse", "HEAD").decode().strip()
    names = 'repository_owner = "acme"\nrepository_name = "tool"\n'
    edit(
        root / "tasks" / ONE / "task.toml",
        f'base_commit = "{"a" * 40}"\n',
        f'base_commit = "{held}"\n{names}',
    )
    settings = (root / "kbench.toml").read_text()
    write(root / "kbench.toml", f'{settings}[upstream]\nmirrors = "../../mirrors"\n')
    commit(root)
    assert doit(root, f"validate:{ONE}", code=None).stdout
    tell(root, TWO)
    assert run(root, base="HEAD") == [f"validate:{TWO}"]
    edit(root / "kbench.toml", "../../mirrors", "../mirrors")
    assert set(run(root, "--step", "validate", base="HEAD")) == VALIDATE


# What can't be compared is one line.


def refused(root: Path, base: str = "start") -> str:
    with pytest.raises(KbenchError) as error:
        run(root, base=base)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("base", ["nope", "--all", "HEAD:README.md", "", "a b", "start^{tree}"])
def test_a_revision_that_isnt_there(root: Path, base: str) -> None:
    assert f"{base!r}: no such commit here" in refused(root, base)


def test_no_repository(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "set", tasks=1)
    assert "not a git repository" in refused(root)


def test_a_repository_without_commits(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "set", tasks=1)
    git(root, "init", "-q")
    assert "no such commit here" in refused(root, "HEAD")


def test_histories_without_a_common_ancestor(root: Path) -> None:
    git(root, "checkout", "-q", "--orphan", "other")
    commit(root)
    assert "start and HEAD have no common ancestor here" in refused(root)


def test_a_shallow_clone_says_how_to_deepen_it(root: Path, tmp_path: Path) -> None:
    top = root.parent.parent
    git(top, "checkout", "-q", "-b", "mine")
    write(root / "README.md", "mine\n")
    commit(top)
    git(top, "checkout", "-q", "main")
    write(root / "README.md", "theirs\n")
    commit(top)
    shallow = tmp_path.parent / f"{tmp_path.name}-shallow"
    url = f"file://{top}"
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", "-b", "mine", url, str(shallow))
    assert "the clone is shallow: `git fetch --unshallow`" in refused(
        shallow / "data/set", "origin/main"
    )
    assert "the clone is shallow" in refused(shallow / "data/set", "HEAD~1")


def test_a_program_that_isnt_git_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert "git" in refused(root)


@pytest.mark.parametrize("ignored", ["", "tasks/*/tests\n"], ids=["seen", "ignored"])
def test_links_that_lead_out_are_never_written_through(
    root: Path, tmp_path: Path, ignored: str
) -> None:
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    victim.mkdir()
    write(root / ".gitignore", f".kbench/\n{ignored}")
    folder = root / "tasks" / TWO / "tests"
    shutil.rmtree(folder)
    folder.symlink_to(victim)
    assert set(run(root)) == of(TWO, "validate", "seal", "selfcheck")
    assert list(victim.iterdir()) == []


def test_the_command_of_the_documentation(root: Path) -> None:
    tell(root, TWO)
    python = shlex.quote(sys.executable)
    main = "import sys; from kbench_build.cli import main; main()"
    command = f"{python} -c '{main}' affected --base start | xargs -r {python} -m doit"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert counts(done.stdout) == {"done": 1}, done.stderr
