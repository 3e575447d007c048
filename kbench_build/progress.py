"""What people see while the graph runs: one line a subtask as it ends, a bar on a terminal.

On a terminal the running subtasks and a bar stand below the lines; elsewhere (CI, a file) only
plain lines are written. `NO_COLOR` is honoured. Up-to-date subtasks are counted, not listed.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

FAILED, UNUSABLE = 1, 2  # exit codes

Summary = Callable[[str, str], str]
Details = Callable[[str, str], Iterable[str]]


class Progress:
    """A doit reporter (see doit's documentation of custom reporters for the calls)."""

    desc = "one line a subtask, and a bar on a terminal"
    # doit makes the instance itself; the graph's door sets these on a subclass.
    summary: Summary
    details: Details
    begin: Callable[[], None]
    end: Callable[[], None]

    def __init__(self, outstream: TextIO, options: Mapping[str, Any]) -> None:
        """Doit's own signature; the options are doit's and none concerns this reporter."""
        del options
        self._out = outstream
        self._started = time.monotonic()
        self._since: dict[str, float] = {}
        self._counts = {"done": 0, "up to date": 0, "ignored": 0, "failed": 0, "not run": 0}
        self._failures: set[int] = set()
        self._aborted: list[str] = []
        self._screen: _Lines | None = None
        self._total = 0

    def initialize(self, tasks: Mapping[str, Any], selected: list[str]) -> None:
        """Before the first task: take the dataset's lock and count what may run."""
        type(self).begin()
        self._total = _count(tasks, selected)

    def get_status(self, task: Any) -> None:
        """A task is looked at."""

    def execute_task(self, task: Any) -> None:
        """A task starts."""
        if task.actions:
            self._since[task.name] = time.monotonic()
            self._show().start(task.name)

    def add_success(self, task: Any) -> None:
        """A task ended well."""
        if task.actions:
            self._counts["done"] += 1
            self._line("ok", task, self.summary(*_split(task.name)))
            for line in self.details(*_split(task.name)):
                self._show().detail(line)

    def add_failure(self, task: Any, fail: Any) -> None:
        """A task failed, couldn't run, or waited for one that failed."""
        if fail.get_name() == "UnmetDependency":
            self._counts["not run"] += bool(task.actions)
            return
        self._counts["failed"] += 1
        failed = fail.get_name() == "TaskFailed"
        self._failures.add(FAILED if failed else UNUSABLE)
        first, _, rest = fail.get_msg().strip().partition("\n")
        self._line("failed" if failed else "error", task, first)
        for line in rest.splitlines():
            self._show().detail(line)

    def skip_uptodate(self, task: Any) -> None:
        """A task was up to date. Asking it for its actions would make them."""
        if not task.has_subtask:
            self._counts["up to date"] += 1
            if self._screen:
                self._screen.advance()

    def skip_ignore(self, task: Any) -> None:
        """A task is ignored, by the user's `doit ignore`."""
        self._counts["ignored"] += bool(task.actions)

    def teardown_task(self, task: Any) -> None:
        """A task's teardown starts."""

    def cleanup_error(self, exception: Any) -> None:
        """A task's teardown failed."""
        self._show().detail(exception.get_msg())

    def runtime_error(self, msg: str) -> None:
        """The graph itself is wrong."""
        self._aborted.append(msg)

    def complete_run(self) -> None:
        """After the last task: the totals, in one line."""
        if self._screen:
            self._screen.close()
        for message in self._aborted:
            self._out.write(f"error: {message}\n")
        counted = ", ".join(f"{n} {what}" for what, n in self._counts.items() if n)
        seconds = time.monotonic() - self._started
        self._out.write(f"{counted or 'nothing to do'} in {_duration(seconds)}\n")
        type(self).end()
        # doit counts a group whose subtask failed as an error of its own; the exit code says
        # whether a check failed or something couldn't be done. An interruption goes its own way.
        if self._failures and sys.exc_info()[0] is None:
            sys.exit(max(self._failures))

    def _line(self, mark: str, task: Any, text: str) -> None:
        now = time.monotonic()
        seconds = now - self._since.pop(task.name, now)
        self._show().stop(task.name, mark, text, seconds)

    def _show(self) -> "_Lines":
        if self._screen is None:
            colourful = self._out.isatty() or os.environ.get("FORCE_COLOR")
            made = _Screen if colourful else _Lines
            self._screen = made(self._out, self._total, self._counts["up to date"])
        return self._screen


class _Lines:
    """Plain lines, for CI and files: rich isn't even imported."""

    def __init__(self, out: TextIO, total: int, completed: int) -> None:
        del total, completed
        self._out = out

    def start(self, name: str) -> None:
        """A subtask starts."""

    def stop(self, name: str, mark: str, text: str, seconds: float) -> None:
        self._write("".join(part for part, _ in _parts(mark, name, text, seconds)))

    def advance(self) -> None:
        """One more is up to date."""

    def detail(self, line: str) -> None:
        from kbench_build.rules.findings import escaped  # noqa: PLC0415

        self._write(f"         {escaped(line)}")

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()

    def close(self) -> None:
        """No more lines come."""


class _Screen(_Lines):
    """The lines in colour, with what runs and a bar below them."""

    def __init__(self, out: TextIO, total: int, completed: int) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        super().__init__(out, total, completed)
        self._console = Console(file=out, highlight=False, soft_wrap=True)
        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            disable=not out.isatty(),
        )
        self._running: list[str] = []
        self._bar = self._progress.add_task("", total=total, completed=completed)
        self._progress.start()

    def start(self, name: str) -> None:
        self._running.append(name)
        self._progress.update(self._bar, description=" ".join(self._running))

    def stop(self, name: str, mark: str, text: str, seconds: float) -> None:
        from rich.text import Text  # noqa: PLC0415

        if name in self._running:
            self._running.remove(name)
        description = " ".join(self._running)
        self._progress.update(self._bar, advance=1, description=description)
        self._console.print(Text.assemble(*_parts(mark, name, text, seconds)))

    def advance(self) -> None:
        self._progress.advance(self._bar)

    def _write(self, line: str) -> None:
        self._console.print(line, markup=False, emoji=False)

    def close(self) -> None:
        self._progress.stop()


def _parts(mark: str, name: str, text: str, seconds: float) -> Sequence[tuple[str, str]]:
    """The pieces of a line, each with its style."""
    from kbench_build.rules.findings import escaped, printable  # noqa: PLC0415

    step, subject = (printable(part) for part in _split(name))
    colour = {"ok": "green", "failed": "red", "error": "red bold"}[mark]
    return (
        (f"{mark:<8}", colour),
        (f"{step:<13}", "bold"),
        (f"{subject:<24}  " if subject else "", ""),
        (f"{escaped(text)}  ", "" if mark == "ok" else colour),
        (_duration(seconds), "dim"),
    )


def _split(name: str) -> tuple[str, str]:
    """A doit task's name as step and subject."""
    step, _, subject = name.partition(":")
    return step, subject


def _count(tasks: Mapping[str, Any], selected: list[str]) -> int:
    """How many tasks are selected or stand below a selected one, less those that are groups."""
    pending, seen = list(selected), set(selected)
    while pending:
        task = tasks.get(pending.pop())
        for name in task.task_dep if task else ():
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return sum(1 for name in seen if name in tasks and not tasks[name].has_subtask)


def _duration(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `42 s`, `3 min 05 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
