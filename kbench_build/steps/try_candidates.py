"""Run the tests of merged changes: before them, with their tests alone, and with their fix.

Promises: each candidate is tried in the environment that serves its base, under the shipped
verifier, every state in a fresh container without a network, as often as asked for; what came of
it is in its `trial.json`, whole, as soon as it is known, and stands until something that decided it
changes. An interrupted or killed run leaves no container and no image for longer than until the
next one. Nothing of a change is run on this machine itself. Leaves to `rules/trials.py` what the
runs show, to others which changes are candidates.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kbench_build import digest
from kbench_build.errors import EngineError, KbenchError
from kbench_build.model.jobs import Job, JobResult, Upload
from kbench_build.rim import trial_jobs
from kbench_build.rim.config import CONFIG, load_config
from kbench_build.rim.engines import ContainerEngine
from kbench_build.rim.history import History
from kbench_build.rim.mine_environments import Environment, read_copies
from kbench_build.rim.mined import TRIAL, MinedChange, read_candidates
from kbench_build.rim.process import ProcessError
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import write_whole
from kbench_build.rim.trial_archives import changes_of, checkout_of
from kbench_build.rules import verifier_data
from kbench_build.rules.images import normal_reference
from kbench_build.rules.last_words import last_words
from kbench_build.rules.manifest import MANIFEST, parse_manifest
from kbench_build.rules.outcomes import REPORT, REWARD_TEXT
from kbench_build.rules.pins import Pin, pin, pinned
from kbench_build.rules.records import FormatError, from_json, to_json
from kbench_build.rules.shipped import SHIPPED
from kbench_build.rules.trial_commands import unknown_places
from kbench_build.rules.trial_data import EXPECTED, Plan, Upstream, crlf_paths, plan, unplaceable
from kbench_build.rules.trial_results import state_run, unprepared, unusable
from kbench_build.rules.trials import STATES, Judgement, State, StateRun, Trial, judge
from kbench_build.rules.verifier_data import Change

LOG = "trial.log"
_LOGS = "/logs/verifier"
_TESTS = {place: name for place, name in SHIPPED.items() if place.startswith("tests/")}
# A new number makes every candidate be tried again.
_VERSION = 1
# Which others an environment serves, and how tasks are made of it, decide no trial.
_NOT_DECIDING = ("start", "end", "repository", "clone", "history")
# More than this isn't sent to every container: an image that holds it costs less.
_SENT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A candidate and what came of it. `kept`: by an earlier run.

    `seconds` is what this run took for it, `added` what of that its containers didn't run.
    """

    id: str
    trial: Trial
    kept: bool = False
    seconds: float = 0.0
    added: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How to try: `runs` of each state, `jobs` candidates at once, `only` these ids (or all)."""

    branch: str = ""
    runs: int = 1
    jobs: int = 1
    only: tuple[str, ...] = ()


class _StoppedError(Exception):
    """The whole run ends; what was under way is left as it was before."""


def try_candidates(
    root: Path,
    clone: Path,
    folder: Path,
    environments: Sequence[Environment],
    *,
    engine: ContainerEngine,
    wish: Wish,
    began: Callable[[int], None],
    done: Callable[[Tried], None],
) -> tuple[Tried, ...]:
    """Try the candidates below `folder` that aren't up to date; all of them, in their order.

    `root` is the dataset's. `began` hears how many there are, `done` of each as it ends. Raises
    `KbenchError` for what a person must set right first: an environment that can't be used.
    """
    chosen = _chosen(read_candidates(folder), wish.only, folder)
    _check(environments)
    with TemporaryDirectory(prefix="kbench-try-") as scratch:
        history = History(clone, Path(scratch) / "store")
        served = _served(history, chosen, environments, wish.branch)
        images = _images(root, engine, [e for e in environments if e in served.values()])
        copies = {each.name: read_copies(root, each) for each in environments}
        trier = _Trier(
            history, engine, images=images, copies=copies, runs=wish.runs, scratch=Path(scratch)
        )
        work = []
        for change in chosen:
            environment = served.get(change.id)
            work.append((change, environment, trier.kept(change, environment)))
        _probe(engine, images, [e for _, e, kept in work if e and kept is None])
        began(len(chosen))
        return _all(trier, work, wish.jobs, done)


def _chosen(
    found: Sequence[MinedChange], only: Collection[str], folder: Path
) -> tuple[MinedChange, ...]:
    wanted = {name.removeprefix("#") for name in only}
    known = {change.id.removeprefix("#") for change in found}
    for name in sorted(wanted - known):
        raise KbenchError(f"{name}: is no candidate in {folder}")
    return tuple(c for c in found if not wanted or c.id.removeprefix("#") in wanted)


def _check(environments: Sequence[Environment]) -> None:
    if not environments:
        raise KbenchError(f"{CONFIG}: mine.environment: is missing: say in which image tests run")
    for each in environments:
        for name in unknown_places(each.command):
            raise KbenchError(
                f"{_place(each)}: command: {{{name}}} means nothing; "
                "known are {files}, {names}, {folders}, and each without the s"
            )


def _place(environment: Environment) -> str:
    return f"{CONFIG}: mine.environment ({environment.name})"


def _served(
    history: History,
    changes: Sequence[MinedChange],
    environments: Sequence[Environment],
    branch: str,
) -> Mapping[str, Environment]:
    """The environment of each candidate, by where its base stands in the branch."""
    line = history.line(history.tip(branch))
    by_name = {each.name: each for each in environments}
    pins = [_pin(history, each, line) for each in environments]
    places = {commit.id: place for place, commit in enumerate(line)}
    found = {c.id: pinned(places[c.base], pins) for c in changes if c.base in places}
    return {change: by_name[name] for change, name in found.items() if name}


def _pin(history: History, environment: Environment, line: Sequence[Any]) -> Pin:
    def first_with(name: str) -> int:
        try:
            return history.first_with(name, line)
        except KbenchError as error:
            raise KbenchError(f"{_place(environment)}: {error}") from error

    start, end = environment.start, environment.end
    return pin(environment.name, start=start, end=end, line=line, first_with=first_with)


def _images(
    root: Path, engine: ContainerEngine, environments: Sequence[Environment]
) -> Mapping[str, str]:
    """The id of each environment's image. Raises `KbenchError` where the engine has none."""
    if not environments:
        return {}
    bases = _bases(root)
    held = {normal_reference(tag): image.id for tag, image in engine.images().items()}
    found = {}
    for each in environments:
        name = normal_reference(bases.get(each.image, each.image))
        if name not in held:
            how = f"doit build_bases:{each.image}" if each.image in bases else f"docker pull {name}"
            raise KbenchError(f"{_place(each)}: the engine has no image {name}: {how}")
        found[each.name] = held[name]
    return found


def _bases(root: Path) -> Mapping[str, str]:
    """The image of each base of the manifest, by `repo:base-tag`."""
    try:
        text = (root / MANIFEST).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    namespace = load_config(root).namespace
    return {base.name: f"{namespace}/{base.name}" for base in parse_manifest(text)[0]}


def _probe(
    engine: ContainerEngine, images: Mapping[str, str], environments: Sequence[Environment]
) -> None:
    """Make sure that the verifier finds its tools in every image that is needed."""
    for each in {e.name: e for e in environments}.values():
        result = engine(trial_jobs.look_job(each, images[each.name]))
        if result.exit_code != 0:
            raise KbenchError(f"{_place(each)}: image {each.image}: {unusable(result)}")


# Each with what an earlier run found, where that stands.
_Work = Sequence[tuple[MinedChange, Environment | None, Trial | None]]


def _all(
    trier: "_Trier", work: _Work, jobs: int, done: Callable[[Tried], None]
) -> tuple[Tried, ...]:
    found: dict[str, Tried] = {}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(trier, *each) for each in work}
        try:
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for each in ended:
                    tried = each.result()
                    found[tried.id] = tried
                    done(tried)
        except BaseException:
            _stop(trier, waiting)
            raise
    return tuple(found[change.id] for change, *_ in work)


def _stop(trier: "_Trier", waiting: "Collection[Future[Tried]]") -> None:
    """End what is under way; a container that was just being made is ended too."""
    trier.stopped.set()
    for each in waiting:
        each.cancel()
    while wait(waiting, timeout=0.2).not_done:
        trier.engine.abort()


class _Trier:
    """Tries one candidate; called in several threads."""

    def __init__(
        self,
        history: History,
        engine: ContainerEngine,
        *,
        images: Mapping[str, str],
        copies: Mapping[str, Mapping[str, bytes]],
        runs: int,
        scratch: Path,
    ) -> None:
        self.engine = engine
        self.stopped = threading.Event()
        self._history, self._images, self._runs, self._scratch = history, images, runs, scratch
        self._copies = copies
        # The store behind the history has one index for all.
        self._git = threading.Lock()
        self._shipped = {place: shipped_file(name) for place, name in _TESTS.items()}

    def __call__(
        self, change: MinedChange, environment: Environment | None, kept: Trial | None
    ) -> Tried:
        if self.stopped.is_set():
            raise _StoppedError
        if kept:
            return Tried(id=change.id, trial=kept, kept=True)
        began = time.monotonic()
        told = _Told()
        trial = self._trial(change, environment, told)
        if self.stopped.is_set():
            raise _StoppedError
        _write(change.folder, trial, told.log)
        seconds = time.monotonic() - began
        return Tried(id=change.id, trial=trial, seconds=seconds, added=seconds - told.seconds)

    def kept(self, change: MinedChange, environment: Environment | None) -> Trial | None:
        """What an earlier run found, where nothing that decided it has changed."""
        try:
            value = json.loads((change.folder / TRIAL).read_bytes())
            trial = from_json(Trial, value)
        except (OSError, ValueError, RecursionError, FormatError):
            return None
        same = trial.key == self._key(change, environment) and trial.outcome != "error"
        return trial if same else None

    def _key(self, change: MinedChange, environment: Environment | None) -> str:
        """The digest of everything that decides a trial."""
        patches = {
            name: digest.of_bytes(change.patch(name)) for name in ("fix.patch", "test.patch")
        }
        kit = {place: digest.of_bytes(content) for place, content in self._shipped.items()}
        where = asdict(environment) if environment else {}
        copies = self._copies[environment.name] if environment else {}
        value = {
            "version": _VERSION,
            "base": change.base,
            "patches": patches,
            "environment": {k: v for k, v in where.items() if k not in _NOT_DECIDING},
            "image": self._images.get(environment.name) if environment else None,
            "runs": self._runs,
            "kit": {**kit, trial_jobs.PUT: digest.of_bytes(shipped_file(trial_jobs.PUT))},
            "copies": {name: digest.of_bytes(content) for name, content in copies.items()},
        }
        return digest.of_json(value)

    def _trial(self, change: MinedChange, environment: Environment | None, told: "_Told") -> Trial:
        if environment is None:
            reason = "no environment of kbench.toml serves its base"
            found = Judgement(outcome="no-environment", reason=reason)
        else:
            found = self._found(change, environment, told)
        return Trial(
            key=self._key(change, environment),
            environment=environment.name if environment else "",
            merged=change.merged,
            outcome=found.outcome,
            reason=found.reason,
            runs=len(told.runs["fix"]),
            seconds={s: tuple(round(r.seconds, 3) for r in each) for s, each in told.runs.items()},
            expected=found.expected,
            unsteady=found.unsteady,
            command=told.command,
        )

    def _found(self, change: MinedChange, environment: Environment, told: "_Told") -> Judgement:
        with TemporaryDirectory(dir=self._scratch) as scratch:
            ready = self._ready(change, environment, Path(scratch))
        if isinstance(ready, Judgement):
            return ready
        told.command = tuple(ready.plan.verify["fix"]["command"])
        image = self._images[environment.name]
        if not environment.prepare and ready.size * len(STATES) * self._runs <= _SENT_BYTES:
            uploads = ready.put.pop()(("exec bash /tests/test.sh",))
            place = trial_jobs.unprepared_place(environment, image, uploads)
            return self._rounds(ready, place, told)
        prepared = self._run(ready.prepare_job(image), told)
        if not prepared.image:
            return unprepared(prepared)
        try:
            return self._rounds(ready, trial_jobs.Place(image=prepared.image), told)
        finally:
            self.engine.discard(prepared.image)

    def _ready(
        self, change: MinedChange, environment: Environment, scratch: Path
    ) -> "_Ready | Judgement":
        """Everything that the containers get, made while no other thread uses git."""
        with self._git:
            try:
                found = _upstream(self._history, change, environment)
            except ProcessError as error:
                said = last_words(error.stderr.decode("utf-8", "replace"))
                return Judgement(outcome="patch-fails", reason=said or "a patch doesn't apply")
            odd = unplaceable([*found.hidden, *found.fix])
            if odd:
                reason = f"{odd}: is a submodule, which no patch can put in place"
                return Judgement(outcome="patch-fails", reason=reason)
            planned = plan(_data(change, environment), found.upstream, environment.files)
            if "fix" not in planned.verify:
                return Judgement(outcome="no-signal", reason="it changes no test that can be run")
            try:
                checkout = checkout_of(self._history, change.base, scratch / "checkout")
                fix = changes_of(
                    self._history,
                    found.fix_tree,
                    written=[each.path for each in found.fix if each.after],
                    deleted=[each.path for each in found.fix if not each.after],
                    folder=scratch / "fix",
                )
            except ProcessError as error:
                said = last_words(error.stderr.decode("utf-8", "replace"))
                return Judgement(outcome="error", reason=f"the clone lacks objects: {said}")
        return _Ready(
            environment=environment,
            plan=planned,
            name=f"mine/{change.id}",
            size=len(checkout),
            put=[partial(trial_jobs.uploads_of, checkout, self._copies[environment.name])],
            tests=self._shipped,
            patch=change.patch("test.patch"),
            fix=fix,
        )

    def _rounds(self, ready: "_Ready", place: trial_jobs.Place, told: "_Told") -> Judgement:
        """Run every state as often as asked for, but no more than it takes to refuse it."""
        files, ran_before = ready.plan.files, ready.plan.ran_before
        while True:
            for state in ready.plan.verify:
                told.runs[state].append(_state_run(self._run(ready.job(state, place), told)))
                if told.runs[state][-1].stopped:
                    break
            found = judge(told.runs, files=files, ran_before=ran_before)
            if found.outcome != "valid" or len(told.runs["fix"]) == self._runs:
                return found
            told.output.clear()

    def _run(self, job: Job, told: "_Told") -> JobResult:
        if self.stopped.is_set():
            raise _StoppedError
        result = self.engine(job)
        if self.stopped.is_set():
            if result.image:
                self.engine.discard(result.image)
            raise _StoppedError
        told.output.append(f"== {job.name}: {result.status} {result.error}\n{result.output}")
        told.seconds += result.seconds
        return result


@dataclass(kw_only=True)
class _Told:
    """What the containers of one candidate have told so far."""

    runs: dict[State, list[StateRun]] = field(default_factory=lambda: {s: [] for s in STATES})
    output: list[str] = field(default_factory=list)
    seconds: float = 0.0
    command: tuple[str, ...] = ()

    @property
    def log(self) -> str:
        return "\n".join(self.output)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What git says of a candidate."""

    upstream: Upstream
    fix: Sequence[Change]
    fix_tree: str

    @property
    def hidden(self) -> Sequence[Change]:
        return self.upstream.hidden


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A candidate whose containers can be started.

    `put` holds what makes the uploads of the checkout, of `size` bytes, and is taken out when that
    is done: nothing else then holds it.
    """

    name: str
    environment: Environment
    plan: Plan
    size: int
    put: list[Callable[[Sequence[str]], tuple[Upload, ...]]]
    tests: Mapping[str, bytes]
    patch: bytes
    fix: bytes

    def prepare_job(self, image: str) -> Job:
        """Makes the image that all states begin from."""
        uploads = self.put.pop()(self.environment.prepare)
        return trial_jobs.prepare_job(
            self.environment, name=self.name, image=image, uploads=uploads
        )

    def job(self, state: State, place: trial_jobs.Place) -> Job:
        """The verifier's run in one state."""
        return trial_jobs.state_job(
            self.environment,
            place,
            name=f"{self.name}/{state}",
            tests=self._tests_of(state),
            changes=self.fix if state == "fix" else b"",
            outputs=(f"{_LOGS}/{REPORT}", f"{_LOGS}/{REWARD_TEXT}"),
        )

    def _tests_of(self, state: State) -> Mapping[str, bytes]:
        return {
            **self.tests,
            "tests/verify.json": verifier_data.written(self.plan.verify[state]),
            "tests/expected_tests.json": EXPECTED,
            "tests/test.patch": self.patch,
        }


def _data(change: MinedChange, environment: Environment) -> dict[str, Any]:
    """verify.json as a person would write it, but for the command, which is still a template."""
    return {
        "version": 1,
        "workdir": environment.workdir,
        "base_commit": change.base,
        "command": list(environment.command),
        "environment": dict(environment.environment),
        "timeout_sec": environment.timeout_sec,
        "reports": list(environment.reports),
        "protected": {"globs": list(environment.protected)},
    }


def _upstream(history: History, change: MinedChange, environment: Environment) -> _Found:
    """Raises `ProcessError` where a patch doesn't apply."""
    base = change.base_tree
    tests, fix = (history.apply(base, [change.patch(n)]) for n in ("test.patch", "fix.patch"))
    hidden, fixed = (verifier_data.parse_raw(history.changes(base, t)) for t in (tests, fix))
    files = history.files(base) if environment.protected else {}
    asked = {*files, *(each.path for each in hidden)}
    crlf = crlf_paths(*history.line_ends(tests, asked))
    upstream = Upstream(files=files, hidden=hidden, crlf=crlf)
    return _Found(upstream=upstream, fix=fixed, fix_tree=fix)


def _state_run(result: JobResult) -> StateRun:
    try:
        return state_run(result, trial_jobs.outputs_of(result))
    except EngineError as error:
        return StateRun(stopped="error", why=str(error))


def _write(folder: Path, trial: Trial, log: str) -> None:
    value = json.dumps(to_json(trial), indent=1, sort_keys=True)
    if log and trial.outcome != "valid":
        write_whole(folder / LOG, log.encode("utf-8", "replace"))
    else:
        (folder / LOG).unlink(missing_ok=True)
    write_whole(folder / TRIAL, value.encode("ascii") + b"\n")
