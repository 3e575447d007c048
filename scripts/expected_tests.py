#!/usr/bin/env python3
"""Writes a task's tests/expected_tests.json from real runs in its image.

    expected_tests.py [--check] [--repeats N] TASK…

Three states of the checkout are run, each in a fresh container and through the shipped verifier:
the base, the base with the hidden tests, and that with the fix. What a test was before and what it
is after the fix decides its list. Repeats have to agree: a test that doesn't is named, and belongs
into the task's exclusion file. With --check the file is compared, not written.

The image must be built (`doit build_images:TASK`) and `tests/verify.json` filled in
(`kbench sync TASK`).
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from kbench_build import runtime
from kbench_build.errors import KbenchError
from kbench_build.model.jobs import Engine, Job, Upload
from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import read_task_toml
from kbench_build.rim.engines import connect, tars
from kbench_build.rim.store import write_whole
from kbench_build.rules.limits import limits
from kbench_build.rules.trials import (
    LISTS,
    STATES,
    Statuses,
    complaints,
    disagreeing,
    expected,
    unhidden,
)

ROOT = Path(__file__).resolve().parent.parent
LOGS = "/logs/verifier"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task's id, the image that it runs in, and the engine that runs it."""

    id: str
    image: str
    engine: Engine

    @property
    def folder(self) -> Path:
        """The task's folder."""
        return ROOT / "tasks" / self.id


def tests_of(task: Task, state: str) -> dict[str, bytes]:
    """The files of /tests: for the base, without the hidden patch; nothing is expected yet."""
    files = {p.name: p.read_bytes() for p in (task.folder / "tests").iterdir() if p.is_file()}
    files["expected_tests.json"] = b'{"f2p_tests": ["of no report"], "p2p_tests": []}'
    if state == "base":
        files["verify.json"] = json.dumps(unhidden(json.loads(files["verify.json"]))).encode()
    return files


def job(task: Task, state: str) -> Job:
    """The container run of one state."""
    found = limits(read_task_toml(ROOT, task.id))
    solve = ["/solution/solve.sh"] if state == "fix" else []
    solution = {n: (task.folder / "solution" / n).read_bytes() for n in ("fix.patch", "solve.sh")}
    runner = Path(runtime.__file__).with_name("run_scripts.sh").read_bytes()
    return Job(
        name=f"{task.id}/{state}",
        image=task.image,
        command=("sh", "/kbench/run_scripts.sh", *solve, "/tests/test.sh"),
        timeout_sec=found.verifier.timeout_sec,
        cpus=found.cpus,
        memory_mb=found.memory_mb,
        uploads=(
            Upload(into="/tests", archive=tars.pack(tests_of(task, state))),
            Upload(into="/solution", archive=tars.pack(solution)),
            Upload(into="/kbench", archive=tars.pack({"run_scripts.sh": runner})),
        ),
        outputs=(f"{LOGS}/report.json",),
    )


def run(task: Task, state: str) -> Statuses:
    """Every test's status in one state. Raises `KbenchError` where the verifier couldn't work."""
    result = task.engine(job(task, state))
    archive = result.outputs.get(f"{LOGS}/report.json")
    if archive is None:
        why = f"no report ({result.status} {result.error})"
        raise KbenchError(f"{task.id}: {state}: {why}\n{result.output}")
    report = json.loads(tars.unpack_one(archive))
    if report["outcome"] != "unresolved":
        why = f"{report['outcome']}: {report['errors']}"
        raise KbenchError(f"{task.id}: {state}: {why}\n{result.output}")
    statuses: Statuses = report["tests"]
    print(f"{task.id} {state}: {len(statuses)} tests, {result.seconds:.1f} s", file=sys.stderr)
    return statuses


def agreed(task: Task, state: str, repeats: int) -> Statuses:
    """The statuses that all repeats of one state have. Raises `KbenchError` naming flaky tests."""
    runs = [run(task, state) for _ in range(repeats)]
    flaky = disagreeing(runs)
    if flaky:
        raise KbenchError(f"{task.id}: {state}: repeats differ: {', '.join(flaky)}")
    return runs[0]


def work(task: Task, *, repeats: int, check: bool) -> bool:
    """Make one task's file; whether it is (or was) as it should be."""
    states = [agreed(task, state, repeats) for state in STATES]
    value = expected(*states)
    for complaint in complaints(*states):
        print(f"{task.id}: {complaint}", file=sys.stderr)
    print(task.id, {name: len(value[name]) for name in LISTS.values()})
    file = task.folder / "tests" / "expected_tests.json"
    wanted = (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
    if check:
        return file.is_file() and file.read_bytes() == wanted
    write_whole(file, wanted)
    return True


def main() -> int:
    """Carry out one call: 0 fine, 1 a file differs, 2 a set-up that can't be used."""
    parser = argparse.ArgumentParser(description="Write expected_tests.json from real runs.")
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each state (default: 2)")
    options = parser.parse_args()
    try:
        config = load_config(ROOT)
        engine = connect(config.engine)
        image = f"{config.namespace}/task:"
        tasks = [Task(id=i, image=image + i, engine=engine) for i in options.tasks]
        fine = [work(task, repeats=options.repeats, check=options.check) for task in tasks]
    except KbenchError as error:
        print(f"expected_tests.py: {error}", file=sys.stderr)
        return 2
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
