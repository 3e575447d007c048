"""Which steps a command line may reach, and doit's meaning where steps are left out."""

from pathlib import Path

import pytest

from kbench_build.selection import asked_of, reached
from tests.graph_kit import doit, lines, make_dataset, write

WAITS = {"check": [], "build": ["check"], "prove": ["build"], "ship": ["prove"]}
DEFAULT = ["prove"]


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ([], "build check prove"),
        (["check"], "check"),
        (["check:some*"], "check"),
        (["-n", "4", "check"], "check"),
        (["-n4", "--continue", "check", "--runs", "3"], "check"),
        (["--verbosity=2"], "build check prove"),
        (["build:x", "check"], "build check"),
        (["ship"], "build check prove ship"),
        # What isn't known may mean anything.
        (["*eck"], None),
        (["-f", "check"], None),
        (["own", "check"], None),
        (["check", "--no-such-flag"], None),
    ],
)
def test_steps_that_are_named_and_those_they_wait_for(words: list[str], steps: str | None) -> None:
    wanted = None if steps is None else frozenset(steps.split())
    assert reached(words, DEFAULT, WAITS) == wanted


def test_without_a_default_everything_is_meant() -> None:
    assert reached([], [], WAITS) == frozenset(WAITS)
    assert reached([], ["own"], WAITS) is None


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (["/usr/bin/doit", "check"], ["check"]),
        (["/lib/doit/__main__.py", "run", "check"], ["check"]),
        (["doit"], []),
        (["doit", "list", "check"], ["list", "check"]),
        (["/opt/pytest", "check"], None),
        (["/opt/__main__.py", "check"], None),
        ([], None),
    ],
)
def test_only_a_call_of_doit_says_what_is_asked(call: list[str], asked: list[str] | None) -> None:
    assert asked_of(call) == asked


def test_a_graph_with_tasks_of_its_own_keeps_every_step(tmp_path: Path) -> None:
    root = make_dataset(tmp_path, tasks=1)
    own = (
        "\n\ndef task_own():\n"
        "    return {'actions': ['true'], 'task_dep': ['selfcheck:acme__tool-1', 'seal']}\n"
    )
    write(root / "dodo.py", (root / "dodo.py").read_text() + own)
    assert lines(doit(root, "validate").stdout, "validate") == ["@dataset", "acme__tool-1"]


def test_commands_that_run_nothing_see_every_step(tmp_path: Path) -> None:
    root = make_dataset(tmp_path, tasks=1)
    for words in (["list", "--all"], ["list", "--all", "selfcheck"]):
        assert "selfcheck:acme__tool-1" in doit(root, *words).stdout
    info = doit(root, "info", "selfcheck:acme__tool-1", code=1)
    assert "build_images:acme__tool-1" in info.stdout


def test_a_pattern_over_steps_reaches_them(tmp_path: Path) -> None:
    root = make_dataset(tmp_path, tasks=2)
    done = doit(root, "*ate:acme__tool-2")
    assert lines(done.stdout, "validate") == ["acme__tool-2"]
