"""What a run that is killed loses: nothing but the units in flight."""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

from benchmarks import rows
from benchmarks.ground import Ground
from benchmarks.processes import DOIT, environment, measure
from benchmarks.rows import Row
from kbench_build.rim.store import STATE

_PATIENCE_SEC = 60.0
_MOST_TASKS = 105
_DONE = re.compile(r"^ok +validate +(\S+)", re.MULTILINE)


def killed(ground: Ground, repeats: int) -> Iterator[Row]:
    """Validations killed at any moment: how many units with a report were done again."""
    if ground.tasks > _MOST_TASKS:
        return
    for processes in (1, 2):
        chance = random.Random(processes)
        redone = [_redone(ground, processes, chance.random()) for _ in range(2 * repeats)]
        what = "killed with -9: done again" + (f", -n {processes}" if processes > 1 else "")
        tries = f"{max(redone)} at most, in {len(redone)} kills"
        yield rows.at_most(what, ground.tasks, max(redone), processes, measured=tries)


def _redone(ground: Ground, processes: int, moment: float) -> int:
    ground.renew()
    command = [*DOIT, *(["-n", str(processes)] if processes > 1 else []), "validate"]
    _kill(ground, command, moment)
    kept = {path.stem for path in (ground.root / STATE / "validate").glob("[!.]*.json")}
    again = set(_DONE.findall(measure(command, ground.root).output))
    assert kept | again >= {path.name for path in (ground.root / "tasks").iterdir()}
    return len(kept & again)


def _kill(ground: Ground, command: list[str], moment: float) -> None:
    """Start a run and kill it when this part of its reports is there, at an odd instant."""
    run = subprocess.Popen(
        command,
        cwd=ground.root,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    folder = ground.root / STATE / "validate"
    wanted = round(moment * ground.tasks)
    deadline = time.monotonic() + _PATIENCE_SEC
    while run.poll() is None and time.monotonic() < deadline:
        if folder.is_dir() and sum(1 for _ in folder.iterdir()) > wanted:
            break
    run.kill()
    run.wait()
    # Workers end by themselves when their parent is gone.
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(run.pid, 0)
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
