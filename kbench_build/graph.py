"""The doit graph of a dataset, and the only importer of doit.

The reports under `.kbench/` decide what is up to date; each is written as its unit of work ends, so
a killed run loses at most the unit in flight. doit's own database only says what the user made it
forget (`doit forget`), and a journal carries into it what a killed run couldn't save. The order of
work lives in the `task_dep`s below and nowhere else; `_WAITS` says which steps they reach.
"""

import atexit
import contextlib
import ctypes
import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from doit import get_var, task_params
from doit.dependency import Dependency, SqliteDB
from doit.exceptions import TaskError, TaskFailed
from doit.task import Task

from kbench_build.errors import KbenchError
from kbench_build.model import DATASET, Report
from kbench_build.plan import MOST_PARTS, Plan
from kbench_build.progress import Progress
from kbench_build.rim.store import STATE, dataset_lock
from kbench_build.selection import asked_of, reached, subjects

Definition = dict[str, Any]

# The steps that plain `doit` does; a release is made when it is asked for.
_DEFAULT = ["validate", "build_bases", "build_images", "seal", "selfcheck"]
# Which steps a step's subtasks may wait for: what nobody asked for isn't made (see `_reached`).
_WAITS = {
    "base_inputs": ["validate"],
    "build_bases": ["base_inputs", "validate"],
    "validate": [],
    "build_images": ["build_bases", "validate"],
    "seal": ["build_images"],
    "selfcheck": ["build_images"],
    "release": ["validate", "seal", "selfcheck"],
    "verify": [],
    "probe": ["selfcheck"],
    "sabotage": ["build_images"],
    "drift": [],
}
_PATIENCE_SEC = 30.0
_BUILDS = ("build_bases", "build_images")
# Steps that are one task of doit's, and those whose findings are told when all is well, too.
_WHOLE = ("release", "drift")
_TELLING = ("drift", "selfcheck", "probe", "sabotage")
_REBUILD = {
    "name": "rebuild",
    "long": "rebuild",
    "type": bool,
    "default": False,
    "help": "build again without the engine's cache, up to date or not",
}
_DEEP = {
    "name": "deep",
    "long": "deep",
    "type": bool,
    "default": False,
    "help": "make the generated inputs again",
}
_RUNS = {
    "name": "runs",
    "long": "runs",
    "type": int,
    "default": 0,
    "help": "repeats of each selfcheck (default: selfcheck.runs in kbench.toml, or 1)",
}
_HUNKS = {
    "name": "hunks",
    "long": "hunks",
    "type": int,
    "default": 0,
    "help": f"try at most so many parts of each gold patch (default: {MOST_PARTS})",
}


def load(namespace: dict[str, Any]) -> None:
    """Define in `dodo.py` (its `globals()`) doit's configuration and a creator for each step."""
    # Tens of thousands of small objects that all live to the end: collecting them is a third of
    # the time of a run with nothing to do.
    gc.disable()
    # Nor are they looked through once more when Python ends.
    atexit.register(gc.freeze)
    try:
        graph = Graph(Path(namespace["__file__"]).resolve().parent, namespace)
    except KbenchError as error:
        _leave(error)
    creators = {f"task_{step}": getattr(graph, f"task_{step}") for step in _WAITS}
    namespace.update({"DOIT_CONFIG": graph.doit_config(), **creators})


class Graph:
    """The steps of a plan as doit tasks: what each waits for, and when it is up to date."""

    def __init__(self, root: Path, namespace: Mapping[str, Any]) -> None:
        """Survey the dataset at `root`, and tell doit what a killed run left done.

        `namespace` is that of `dodo.py`, which may come to hold more than the graph.
        """
        self.plan = Plan(root)
        self._namespace = namespace
        self._state = root / STATE
        self._journal = self._state / "journal"
        self._lock = contextlib.ExitStack()
        self._forced: set[str] = set()
        self._room_checked = False
        self._deep = False
        self._state.mkdir(exist_ok=True)
        self._catch_up()

    def doit_config(self) -> Definition:
        """doit's configuration, for `DOIT_CONFIG`."""
        members = {
            "summary": staticmethod(self._summary),
            "details": staticmethod(self._shown),
            "begin": staticmethod(self._begin),
            "end": staticmethod(self._end),
        }
        return {
            "default_tasks": _DEFAULT,
            "reporter": type("DatasetProgress", (Progress,), members),
            "dep_file": str(self._state / "doit.db"),
            "backend": "sqlite3",
            "continue": True,
            "verbosity": 0,
        }

    # The creators, one a step, in the order of the design's table.

    def task_base_inputs(self) -> Iterator[Definition]:
        """Make the generated files of the bases' build contexts, and check their pins."""
        return self._each("base_inputs", lambda _: ["validate:" + DATASET])

    @task_params([_REBUILD])
    def task_build_bases(self, rebuild: bool) -> Iterator[Definition]:
        """Build the bases of the manifest. --rebuild: without the engine's cache."""
        if self._reached and "build_bases" in self._reached:
            self.plan.ask_early()
        self._force("build_bases", rebuild)
        return self._each("build_bases", self._base_waits)

    def task_validate(self) -> Iterator[Definition]:
        """Check every task, and the dataset around them, without running anything."""
        return self._each("validate", self._validate_waits)

    @task_params([_REBUILD])
    def task_build_images(self, rebuild: bool) -> Iterator[Definition]:
        """Build the tasks' images on their bases. --rebuild: without the engine's cache."""
        self._force("build_images", rebuild)
        return self._each("build_images", self._image_waits)

    def task_seal(self) -> Iterator[Definition]:
        """Prove from outside that an image's repository holds the base commit and nothing else."""
        return self._each("seal", lambda task: [f"build_images:{task}"])

    @task_params([_RUNS])
    def task_selfcheck(self, runs: int) -> Iterator[Definition]:
        """Run the verifier without the fix (must give 0) and with it (must give 1). --runs N."""
        wanted = runs or int(get_var("runs", 0))
        if wanted < 0:
            _leave(KbenchError(f"--runs must be a number from 1 up, not {wanted}"))
        self.plan.runs = wanted or self.plan.runs
        return self._each("selfcheck", lambda task: [f"build_images:{task}"])

    @task_params([_HUNKS])
    def task_probe(self, hunks: int) -> Iterator[Definition]:
        """Leave out one hunk of the gold patch at a time: do the tests notice? --hunks N."""
        wanted = hunks or int(get_var("hunks", 0))
        if wanted < 0:
            _leave(KbenchError(f"--hunks must be a number from 1 up, not {wanted}"))
        self.plan.most_parts = wanted or self.plan.most_parts
        return self._each("probe", lambda task: [f"selfcheck:{task}"])

    def task_sabotage(self) -> Iterator[Definition]:
        """Try on tasks' own verifiers what none may reward: each sabotage must give no reward."""
        return self._each("sabotage", lambda task: [f"build_images:{task}"])

    def task_release(self) -> Definition:
        """Make dist/<name>-<version>/ from what is checked, or say all that stands against it."""
        required = dict.fromkeys(["validate", *self.plan.config.require])
        return self._one("release", DATASET, list(required))

    def task_verify(self) -> Iterator[Definition]:
        """Check the releases in dist/ against themselves."""
        return self._each("verify", lambda _: [])

    @task_params([_DEEP])
    def task_drift(self, deep: bool) -> Definition:
        """Say what a rebuild would change. --deep: make the generated inputs again, and compare."""
        self._deep = deep
        # It is about this moment, so what an earlier run said doesn't count.
        return {**self._one("drift", DATASET, []), "uptodate": [False]}

    @cached_property
    def _reached(self) -> frozenset[str] | None:
        """The steps that this run can reach; None for other calls, and where it can't be told."""
        asked = asked_of(sys.argv)
        creators = {name for name in self._namespace if name.startswith("task_")}
        if asked is None or creators != {f"task_{step}" for step in _WAITS}:
            return None
        return reached(asked, self._namespace["DOIT_CONFIG"]["default_tasks"], _WAITS)

    def _each(self, step: str, waits: Callable[[str], list[str]]) -> Iterator[Definition]:
        if self._reached is not None and step not in self._reached:
            return
        for subject in self.plan.steps[step].subjects():
            # doit takes `a=b` for a variable; validation says that no id may be like that.
            if "=" not in subject:
                yield {"name": subject, **self._one(step, subject, waits(subject))}

    def _one(self, step: str, subject: str, waits: list[str]) -> Definition:
        return {
            "actions": [(self._act, [step, subject])],
            "uptodate": [_Holds(self, step, subject)],
            "targets": [self.plan.store.place(step, subject)],
            "task_dep": waits,
            "clean": [(self._clean, [step, subject])],
        }

    def _validate_waits(self, task: str) -> list[str]:
        """The upstream's history, in a run that makes it: else the next run would check again."""
        if task == DATASET or not self._reached or "base_inputs" not in self._reached:
            return []
        return [f"base_inputs:{name}" for name in self.plan.history_inputs(task)]

    def _base_waits(self, base: str) -> list[str]:
        plan = self.plan
        found = next(b for b in plan.survey.bases if b.name == base)
        inputs = [f"base_inputs:{item.name}" for item in plan.serving(found)]
        parents = [self._makers[image] for image in plan.recipes[base].stands_on]
        return [f"validate:{DATASET}", *inputs, *parents]

    def _image_waits(self, task: str) -> list[str]:
        stands_on = self.plan.recipe(task).stands_on
        parents = [self._makers[image] for image in stands_on if image in self._makers]
        return [f"validate:{task}", *parents]

    @cached_property
    def _makers(self) -> Mapping[str, str]:
        """The subtask that makes each base's image."""
        recipes = self.plan.recipes.values()
        return {recipe.image: f"build_bases:{recipe.subject}" for recipe in recipes}

    def _force(self, step: str, forced: bool) -> None:
        if forced:
            self._forced.add(step)
            self.plan.rebuild = True

    # What doit calls back.

    def holds(self, step: str, subject: str, *, known: bool) -> bool:
        """Whether a subtask is up to date. `known`: doit knows that it once ended well.

        Leaves the program where a build is due and no engine answers, or its disk is too full:
        once, not once a subtask.
        """
        try:
            if step in _BUILDS:
                self.plan.ask()
            held = known and step not in self._forced and self.plan.holds(step, subject)
            if step in _BUILDS and not held:
                self._check_room()
            return held
        except KbenchError as error:
            _end_workers()
            _leave(error)

    def _check_room(self) -> None:
        """Before the first build of a run: whether all that are due fit on the engine's disk."""
        if not self._room_checked:
            from kbench_build.upkeep import check_room  # noqa: PLC0415 - only before a build

            self._room_checked = True
            check_room(self.plan, self._reached, subjects(asked_of(sys.argv) or (), _WAITS))

    def _act(self, step: str, subject: str) -> Definition | TaskError | TaskFailed:
        try:
            report = self._drift() if step == "drift" else self.plan.run(step, subject)
        except KbenchError as error:
            return TaskError(str(error))
        if not report.ok:
            return TaskFailed("\n".join([report.summary, *_details(report)]))
        with self._journal.open("a", encoding="utf-8", errors="surrogateescape") as journal:
            journal.write(f"{_task_name(step, subject)}\n")
        return {"inputs": report.inputs}

    def _drift(self) -> Report:
        from kbench_build.upkeep import report_drift  # noqa: PLC0415 - only when asked for

        report = report_drift(self.plan, deep=self._deep)
        self.plan.store.write(report)
        return report

    def _clean(self, step: str, subject: str, dryrun: bool) -> None:
        """Remove the report, and the image where the step made one; never a release."""
        path = self.plan.store.path(step, subject)
        print(f"{_task_name(step, subject)} - removing {path}")  # noqa: T201 - doit's own way
        if not dryrun:
            path.unlink(missing_ok=True)

    def _summary(self, step: str, subject: str) -> str:
        head = self.plan.store.head(step, subject or DATASET)
        return head.summary if head else ""

    def _shown(self, step: str, subject: str) -> Iterable[str]:
        """The lines that a step which ended well has to show beside its summary."""
        report = self.plan.store.read(step, subject or DATASET) if step in _TELLING else None
        return _details(report) if report else ()

    def _begin(self) -> None:
        """Before the first task: hold the dataset, and end in an orderly way on a signal."""
        try:
            self._lock.enter_context(dataset_lock(self.plan.root))
        except KbenchError as error:
            _leave(error)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        # Held back while a worker is made, a signal can't find it with the handlers of the run.
        os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals)
        end_with_me = partial(_die_with_parent, os.getpid())
        os.register_at_fork(before=self.plan.stop_asking, after_in_child=end_with_me)
        sys.excepthook = _say_if_interrupted

    def _end(self) -> None:
        """After the last task: doit has saved its database, so the journal is done.

        Not when the run was interrupted: workers may have finished what doit never heard of.
        """
        if sys.exc_info()[0] is None:
            self._journal.unlink(missing_ok=True)
        self._lock.close()

    def _catch_up(self) -> None:
        """Enter in doit's database the successes that a killed run had no time to save."""
        try:
            text = self._journal.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return
        database = Dependency(SqliteDB, str(self._state / "doit.db"))
        for name in dict.fromkeys(text.splitlines()):
            task = Task(name, None)
            task.values = {"inputs": "journal"}
            database.save_success(task)
        database.close()
        self._journal.unlink(missing_ok=True)


class _Holds:
    """doit's question whether a subtask is up to date, as an object that says what it is."""

    __slots__ = ("_graph", "_step", "_subject")
    # doit asks each object for its signature, which takes long to find out.
    __signature__ = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("task", "values")
        ]
    )

    def __init__(self, graph: Graph, step: str, subject: str) -> None:
        self._graph = graph
        self._step = step
        self._subject = subject

    def __call__(self, task: Task, values: Mapping[str, Any]) -> bool:
        # No values: the user made doit forget the task, or it never ended well.
        del task
        return self._graph.holds(self._step, self._subject, known=bool(values))

    def __repr__(self) -> str:
        return f"the report about {self._step} of {self._subject} holds"


def _task_name(step: str, subject: str) -> str:
    return step if step in _WHOLE else f"{step}:{subject}"


def _details(report: Report) -> Iterable[str]:
    """The lines below a report's summary: its findings with their mends, or (and) its details."""
    for value in report.data.get("findings", ()):
        spot = f"{value['file']}: {value['where']}" if value["where"] else value["file"]
        yield f"{value['severity']}: {spot}: {value['message']} [{value['rule']}]"
        yield f"    {value['mend']}"
    if report.step in _TELLING or not report.data.get("findings"):
        yield from report.data.get("details", ())


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Make a signal what Ctrl-C is: containers are removed, what was finished is kept."""
    del number, frame
    _ignore_signals()
    # Where it breaks into a library that isn't Python, something else may come out of there.
    sys.excepthook = _say_interrupted
    raise KeyboardInterrupt


def _end_quietly(number: int, frame: FrameType | None) -> NoReturn:
    """What `_interrupt` is to a worker, which would say more than the run that it belongs to."""
    del number, frame
    _ignore_signals()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    raise SystemExit(130)


def _ignore_signals() -> None:
    """Ignore further ones: a worker gets its own, one from the run, and one at the run's death.

    A second one would break off the clearing up.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _die_with_parent(parent: int) -> None:
    """In a worker: end when the run that started it is killed, instead of waiting for ever."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_quietly)
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(130)  # killed before it could be asked for that signal
    _let_signals()


def _hold_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def _end_workers() -> None:
    """End doit's workers, which else wait for work for ever; each removes its container first."""
    if "multiprocessing" in sys.modules:
        workers = sys.modules["multiprocessing"].active_children()
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(_PATIENCE_SEC)


def _say_if_interrupted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    say = _say_interrupted if issubclass(kind, KeyboardInterrupt) else sys.__excepthook__
    say(kind, error, trace)


def _say_interrupted(*_: Any) -> NoReturn:
    _end_workers()
    sys.stderr.write("interrupted: what was finished is kept; the same command goes on\n")
    sys.stderr.flush()
    os._exit(130)


def _leave(error: KbenchError) -> NoReturn:
    """End the program with one line for the person at the keyboard."""
    sys.stderr.write(f"error: {error}\n")
    raise SystemExit(2)
