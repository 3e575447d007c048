"""What trying a mined change takes beside the three runs of its tests."""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import images, rows
from benchmarks.processes import apart
from benchmarks.rows import Row

_STATES = 3


def trial(repeats: int) -> Iterator[Row]:
    """A small change, tried under the shipped verifier, against containers that do nothing."""
    if not images.engine_answers():
        sys.stderr.write("trial: not measured: no container engine answers\n")
        return
    added, empty = apart(_times, repeats)
    yield rows.at_most(
        "trying a change: added to its three runs",
        0,
        added - empty,
        2.0,
        unit="s",
        measured=f"{added:.2f} s beside what its containers run",
        yardstick=f"three containers that do nothing: {empty:.2f} s",
    )


def _times(repeats: int) -> tuple[float, float]:
    """Medians: seconds beside what the containers ran, and those of as many empty ones."""
    from kbench_build.rim.mine_config import load_mine_config  # noqa: PLC0415 - see apart()
    from kbench_build.steps.try_candidates import Wish, try_candidates  # noqa: PLC0415
    from tests import engine_box, trial_kit  # noqa: PLC0415

    added, empty = [], []
    with tempfile.TemporaryDirectory() as name, trial_kit.image(Path(name)) as image:
        project, root = trial_kit.slow_project(Path(name), seconds=0)
        trial_kit.kbench(root, str(project.upstream.root))
        folder = root / "mined" / "acme_text"
        for _ in range(repeats):
            began = time.monotonic()
            ran = sum(engine_box.run(image, ":").seconds for _ in range(_STATES))
            empty.append(time.monotonic() - began - ran)
            (tried,) = try_candidates(
                root,
                project.upstream.root,
                folder,
                load_mine_config(root).environments,
                engine=engine_box.engine,
                wish=Wish(only=("#1",)),
                began=lambda _: None,
                done=lambda _: None,
            )
            assert tried.trial.outcome == "valid", tried
            added.append(tried.added)
            (folder / "1" / "trial.json").unlink()
    return statistics.median(added), statistics.median(empty)
