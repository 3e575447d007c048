"""Runs programs and says what they took, in turns, so that other load falls on all alike."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.datasets import PROJECT

PROGRAMS = Path(__file__).parent / "programs"
DOIT = (sys.executable, "-m", "doit")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one run took: seconds by the clock on the wall, MB (10⁶ bytes) at most, its output.

    `started_seconds` are those after the program was loaded, where it says so.
    """

    seconds: float
    started_seconds: float = 0.0
    peak_mb: float = 0.0
    output: str = ""


@dataclass(kw_only=True)
class Sample:
    """The repeats of one run."""

    runs: list[Usage] = field(default_factory=list)

    @property
    def started(self) -> "Sample":
        """The same repeats, less the time in which the program was loaded."""
        return Sample(runs=[Usage(seconds=run.started_seconds) for run in self.runs])

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def best(self) -> float:
        """Seconds."""
        return min(run.seconds for run in self.runs)

    @property
    def peak_mb(self) -> float:
        """The most that any of them held."""
        return max(run.peak_mb for run in self.runs)


def program(name: str, *arguments: object) -> list[str]:
    """The command line of one of the programs beside this file."""
    return [sys.executable, str(PROGRAMS / name), *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's, so that programs find the project and Python keeps compiled modules."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "NO_COLOR": "1", "PYTHONPATH": str(PROJECT)}


def measure(command: Sequence[str], cwd: Path, *, stdin: bytes = b"") -> Usage:
    """Run a program to its end. One that fails ends the benchmarks."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
        given.write(stdin)
        given.seek(0)
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env=environment(), stdin=given, stdout=out, stderr=out
        )
        # The only way to learn of one process's memory; Popen mustn't wait for it again.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    if process.returncode:
        sys.exit(f"{' '.join(command)[:500]}: exit code {process.returncode}\n{output[-2000:]}")
    return Usage(seconds=seconds, peak_mb=usage.ru_maxrss * 1024 / 1e6, output=output)


def peak_of_all(command: Sequence[str], cwd: Path) -> float:
    """The MB that a program and the processes it started held at most, at one time together."""
    peak = 0
    with subprocess.Popen(command, cwd=cwd, env=environment(), stdout=subprocess.DEVNULL) as run:
        while run.poll() is None:
            peak = max(peak, sum(_held_by(process) for process in (run.pid, *_started_by(run.pid))))
            time.sleep(0.02)
    return peak / 1e6


def _started_by(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _held_by(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def pipeline(first: Sequence[str], second: Sequence[str], cwd: Path) -> Usage:
    """Run two programs, the output of the first being the input of the second."""
    began = time.perf_counter()
    with subprocess.Popen(first, cwd=cwd, stdout=subprocess.PIPE) as source:
        subprocess.run(second, cwd=cwd, stdin=source.stdout, check=True)
    return Usage(seconds=time.perf_counter() - began)


def interleaved(repeats: int, *runs: Callable[[], Usage]) -> list[Sample]:
    """A sample of each run, made in turns after one round that doesn't count."""
    samples = [Sample() for _ in runs]
    for number in range(repeats + 1):
        for sample, run in zip(samples, runs, strict=True):
            usage = run()
            if number:
                sample.runs.append(usage)
    return samples


def apart(work: Callable[_P, _T], *arguments: _P.args, **more: _P.kwargs) -> _T:
    """Call a function in a process of its own.

    A process's greatest memory counts that of the one that started it, so this one stays small.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **more).result()
