"""What a selfcheck adds to the verifier's own time: containers, files in and out, the verdict."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import images, rows
from benchmarks.processes import apart
from benchmarks.rows import Row

_TASK = "acme_up-1"
_TOML = '[environment]\nnetwork_mode = "no-network"\ncpus = 1\nmemory_mb = 1024\n'


def selfcheck(repeats: int) -> Iterator[Row]:
    """Runs of a small task with the shipped verifier, each in fresh containers."""
    if not images.engine_answers():
        sys.stderr.write("selfcheck: not measured: no container engine answers\n")
        return
    times = apart(_runs, repeats)
    for kind, containers in (("nop", "one container"), ("oracle", "two containers")):
        added, verifier = (
            sorted(values)[repeats // 2] for values in zip(*times[kind], strict=True)
        )
        yield rows.at_most(
            f"selfcheck, {kind}: added to a run",
            0,
            added,
            1.5,
            unit="s",
            measured=f"{added + verifier:.2f} s, {containers}",
            yardstick=f"in the containers: {verifier:.2f} s",
        )


def _runs(repeats: int) -> dict[str, list[tuple[float, float]]]:
    """By kind, for each run: the seconds it adds, and those in which the task's commands ran."""
    from kbench_build.steps.selfcheck import selfcheck as check  # noqa: PLC0415 - see apart()
    from tests import engine_box, verifier_image  # noqa: PLC0415
    from tests.verifier_box import make_box  # noqa: PLC0415

    times: dict[str, list[tuple[float, float]]] = {"nop": [], "oracle": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        box = make_box(folder / "box")
        task = folder / "set" / "tasks" / _TASK
        for part in ("tests", "solution"):
            shutil.copytree(box.root / part, task / part)
        (task / "task.toml").write_text(_TOML)
        with verifier_image.built(box, folder) as image:
            report = check(
                folder / "set",
                _TASK,
                engine=engine_box.engine,
                image=image,
                runs=repeats,
                inputs="",
            )
    assert report.ok, report
    for run in report.data["results"]:
        added = run["overhead_seconds"]
        times[run["kind"]].append((added, run["seconds"] - added))
    return times
