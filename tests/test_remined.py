"""The shipped benchmark is mined anew from its upstream histories, byte for byte.

What runs showed is taken from the tasks themselves; `test_quickstart` asks an engine for one.
"""

import json
from pathlib import Path

import pytest

from tests.remine_kit import (
    UPSTREAMS,
    asked_of,
    by_hand,
    cloned,
    dataset,
    differing,
    environments,
    kbench,
    source_of,
    tasks_of,
    trial,
)


@pytest.mark.parametrize("name", UPSTREAMS)
def test_the_shipped_tasks_are_mined_byte_for_byte(name: str, tmp_path: Path) -> None:
    repository = UPSTREAMS[name]
    clone, root = cloned(tmp_path, name), dataset(tmp_path, name)
    tasks = tasks_of(repository)
    assert tasks
    asked = asked_of(clone, tasks, tmp_path)
    listed = kbench(*asked, "--format", "json", cwd=root)
    assert listed.returncode == 0, listed.stderr
    numbers = {source_of(task)["code_change_id"]: task for task in tasks}
    assert {f"#{number}" for number in numbers} <= set(json.loads(listed.stdout)["candidates"])

    mined = root / "mined" / repository.replace("/", "_")
    served = environments(clone, root, {source_of(task)["base_commit"] for task in tasks})
    for number, task in numbers.items():
        found = trial(task, served[source_of(task)["base_commit"]])
        (mined / number / "trial.json").write_text(json.dumps(found), encoding="utf-8")
        by_hand(task, mined / number)
    only = [word for number in numbers for word in ("--only", number)]
    done = kbench(*asked, *only, "--statements", "--emit", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(tasks)} written" in done.stdout, done.stdout
    assert sorted(path.name for path in (root / "tasks").iterdir()) == tasks
    assert {task: differing(task, root) for task in tasks} == {task: [] for task in tasks}
