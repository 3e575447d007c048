"""The upstreams of the shipped benchmark, and what people and forges say of them, for mining them.

The issues' words are the instructions', what `tests/data/remined/` says of environments is what the
tasks do.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data" / "remined"
UPSTREAMS = {"kalends": "meridian/kalends", "tabula": "larkspur/tabula"}
SHIPPED = sorted(path.name for path in (ROOT / "tasks").iterdir() if path.is_dir())


def kbench(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    main = "import sys; from kbench_build.cli import main; sys.exit(main())"
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-c", main, "mine", *argv]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def source_of(task: str) -> dict[str, Any]:
    text = (ROOT / "tasks" / task / "task.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["metadata"]["source"])


def tasks_of(repository: str) -> list[str]:
    return [task for task in SHIPPED if task.startswith(repository.replace("/", "_"))]


def pull(task: str) -> dict[str, Any]:
    """What a forge says of a shipped task's pull request, as its API writes it."""
    source = source_of(task)
    text = (ROOT / "tasks" / task / "task.toml").read_text(encoding="utf-8")
    issues = (url.rpartition("/")[2] for url in source["issue_urls"])
    return {
        "number": int(source["code_change_id"]),
        "title": tomllib.loads(text)["task"]["description"],
        "body": "\n".join(f"Fixes #{number}." for number in issues),
        "user": {"login": "maintainer"},
        "merged_at": "2024-06-01T00:00:00Z",
        "html_url": source["code_change_url"],
    }


def issue(task: str) -> dict[str, Any]:
    """What the forge says of the issue: the instruction is its title, and its text below that."""
    (url,) = source_of(task)["issue_urls"]
    title, _, body = instruction(task).partition("\n\n")
    number = int(url.rpartition("/")[2])
    return {"number": number, "title": title.removeprefix("# "), "body": body, "html_url": url}


def instruction(task: str) -> str:
    return (ROOT / "tasks" / task / "instruction.md").read_text(encoding="utf-8")


def trial(task: str, environment: str) -> dict[str, Any]:
    """What the runs showed, as `--run` keeps it."""
    expected = (ROOT / "tasks" / task / "tests" / "expected_tests.json").read_bytes()
    return {
        "version": 1,
        "key": "",
        "environment": environment,
        "merged": 0,
        "outcome": "valid",
        "reason": "",
        "runs": 1,
        "seconds": {},
        "expected": json.loads(expected),
        "unsteady": {},
    }


def cloned(folder: Path, name: str) -> Path:
    """A clone of an upstream, made from the series of patches that the repository holds."""
    bundle, series = folder / f"{name}.bundle", ROOT / "bases" / name / "history"
    script = ROOT / "scripts" / "history.py"
    subprocess.run([sys.executable, script, "build", series, bundle], check=True)
    clone = folder / name
    subprocess.run(["git", "clone", "--quiet", bundle, clone], check=True)
    url = f"https://git.{UPSTREAMS[name].partition('/')[0]}.invalid/{UPSTREAMS[name]}.git"
    subprocess.run(["git", "-C", clone, "remote", "set-url", "origin", url], check=True)
    return clone


def dataset(folder: Path, name: str) -> Path:
    """A dataset without tasks: the shipped bases, and what people say of this upstream."""
    root = folder / f"dataset-{name}"
    root.mkdir()
    shutil.copytree(ROOT / "bases", root / "bases")
    shutil.copy(DATA / f"{name}.toml", root / "kbench.toml")
    for flaky in (ROOT / "tasks").glob(f"*_{name}-*/environment/exclude-flaky-tests.*"):
        shutil.copy(flaky, root)
    return root


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def environments(clone: Path, root: Path, bases: set[str]) -> dict[str, str]:
    """The environment that serves each base, as `--run` finds it."""
    from kbench_build.rim.history import History
    from kbench_build.rim.mine_config import load_mine_config
    from kbench_build.rules.pins import pin, pinned

    history = History(clone, root / ".store")
    line = list(history.commits(history.tip()))
    pins = [
        pin(
            each.name,
            start=each.start,
            end=each.end,
            line=line,
            first_with=lambda name: history.first_with(name, line),
        )
        for each in load_mine_config(root).environments
    ]
    return {c.id: pinned(place, pins) for place, c in enumerate(line) if c.id in bases}


def asked_of(clone: Path, tasks: list[str], folder: Path) -> list[str]:
    """The words of `kbench mine` for a clone and what its forge says of these tasks."""
    words = [str(clone)]
    for option, record in (("--pulls", pull), ("--issues", issue)):
        file = folder / f"{option[2:]}.jsonl"
        file.write_text("".join(f"{json.dumps(record(t))}\n" for t in tasks), encoding="utf-8")
        words += [option, str(file)]
    return words


def by_hand(task: str, place: Path) -> None:
    """A maintainer took the mark of the issue's heading away, where the shipped task has none."""
    if not instruction(task).startswith("# "):
        shutil.copy(ROOT / "tasks" / task / "instruction.md", place)


def differing(task: str, root: Path) -> list[str]:
    """The files in which a task of a dataset and the shipped one aren't the same."""
    made, shipped = files_of(root / "tasks" / task), files_of(ROOT / "tasks" / task)
    places = sorted(made.keys() | shipped.keys())
    return [place for place in places if made.get(place) != shipped.get(place)]
