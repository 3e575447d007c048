"""Prove that a task's verifier tells the fix from its absence: nop runs score 0, oracle runs 1.

A task with the shipped verifier (`tests/verify.json`) is graded in a fresh container that takes
over only the files that the solution changed, seen from outside the container in which it ran.
Another task's own `test.sh` runs where its solution ran, as Harbor does it, and the evidence says
`shared`. From the second run on what must not matter is varied (see `rules.variation`).
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import Report, Suppression
from kbench_build.model.jobs import Changes, Engine, Job, JobResult, Upload
from kbench_build.rim.dataset import read_task_toml
from kbench_build.rim.engines import tars
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import STATE, write_whole
from kbench_build.rules import variation
from kbench_build.rules.findings import suppress, to_json
from kbench_build.rules.grading import Conclusion, conclude, instability, kinds_of
from kbench_build.rules.limits import Limits, limits
from kbench_build.rules.outcomes import REPORT, Verdict, solution_verdict, verdict
from kbench_build.rules.probing import Tried
from kbench_build.rules.quarantine import quarantined
from kbench_build.rules.runs import KINDS, Kind, Run, Unstable
from kbench_build.rules.statuses import NONE, shorten
from kbench_build.rules.step_inputs import SUPPRESSED
from kbench_build.rules.variation import PLAIN, Allowed, Variation

STEP = "selfcheck"
LOGS = "/logs/verifier"
EXIT_CODE = "/logs/agent/exit-code.txt"
SCRIPTS = "/kbench/run_scripts.sh"
_LOOK = "/kbench/what_can_vary.sh"
_LOOK_SEC = 60.0
# A script that takes a solution's place.
_SCRIPT_SEC = 120.0
_FAILED = "the solution ended with exit code"


def covers(data: Mapping[str, Any], runs: int) -> bool:
    """Whether a report holds at least so many repeats."""
    return isinstance(data.get("runs"), int) and data["runs"] >= runs


def gold_seconds(data: Mapping[str, Any]) -> float | None:
    """How long the verifier took with the gold patch, as a report has it; None where it hasn't."""
    found = (r.get("verifier_seconds") for r in data.get("results", ()) if r["kind"] == "oracle")
    return next((float(seconds) for seconds in found if seconds), None)


def selfcheck(
    root: Path,
    task: str,
    *,
    engine: Engine,
    image: str,
    runs: int,
    inputs: str,
    suppressions: Sequence[Suppression] = (),
) -> Report:
    """Run nop and oracle `runs` times each and say what they show."""
    began = time.monotonic()
    check = _open(root, task, engine, image)
    variations = _variations(check, runs)
    graded = [_graded(check, k, n, v) for n, v in enumerate(variations, start=1) for k in KINDS]
    conclusion = conclude([g.run for g in graded], check.kinds, check.quarantined)
    details = [*conclusion.details, *_kept_output(root, task, graded, conclusion)]
    found = instability(
        conclusion,
        task=task,
        kinds=check.kinds,
        quarantined=check.quarantined,
        today=datetime.now(UTC).date().isoformat(),
    )
    kept, answered = suppress(found, task, suppressions)
    said = conclusion.summary
    return Report(
        step=STEP,
        subject=task,
        inputs=inputs,
        ok=conclusion.ok or not (conclusion.details or any(f.severity == "error" for f in kept)),
        summary=f"{said}, {len(answered)}{SUPPRESSED}" if answered else said,
        seconds=time.monotonic() - began,
        data={
            "runs": runs,
            "isolation": "fresh" if check.shipped else "shared",
            "network": {
                "solution": check.solution_network,
                "verifier": check.limits.verifier.network,
            },
            "notes": list(check.limits.notes),
            "results": [_as_json(g, check) for g in graded],
            "not_varied": list(variation.not_varied(variations)),
            "unstable": [_unstable_json(one) for one in conclusion.unstable],
            "quarantined": sorted(check.quarantined),
            "findings": [to_json(finding) for finding in kept],
            "suppressed": [{**to_json(a.finding), "reason": a.reason} for a in answered],
            "details": details,
        },
    )


@dataclass(frozen=True, kw_only=True)
class _Check:
    """One task, ready to be run."""

    task: str
    engine: Engine
    image: str
    limits: Limits
    shipped: bool
    verify: Mapping[str, Any]
    solution: Upload
    tests: Upload
    kinds: Mapping[str, str]
    quarantined: frozenset[str]
    limit_sec: float | None = None

    @property
    def solution_network(self) -> str:
        """What network the solution gets: in one container both get the verifier's."""
        return (self.limits.solution if self.shipped else self.limits.verifier).network

    @property
    def workdir(self) -> str:
        """The checkout in the image."""
        found = self.verify.get("workdir")
        return found if isinstance(found, str) else "/"

    @property
    def given(self) -> Mapping[str, str]:
        """The variables that the task gives to its test command."""
        data: Mapping[str, str] = self.verify.get("environment") or {}
        return data if self.shipped else self.limits.verifier.environment

    @property
    def verifier_sec(self) -> float:
        """The verifier's time limit. The shipped one applies a narrower one itself."""
        own = self.limits.verifier.timeout_sec
        return own if self.shipped or self.limit_sec is None else min(own, self.limit_sec)

    def data(self, varied: Variation) -> Mapping[str, Any]:
        """The verifier's data for a run."""
        data = variation.varied_data(self.verify, varied)
        if self.limit_sec is None or data.get("timeout_sec", 0.0) <= self.limit_sec:
            return data
        return {**data, "timeout_sec": self.limit_sec}

    def job(self, name: str, command: tuple[str, ...], **more: Any) -> Job:
        """A job in the task's image, with its limits."""
        wishes = {"cpus": self.limits.cpus, **more}
        return Job(
            name=f"{self.task}/{name}",
            image=self.image,
            command=command,
            memory_mb=self.limits.memory_mb,
            workdir=self.limits.workdir,
            **wishes,
        )


@dataclass(frozen=True, kw_only=True)
class _Graded:
    """One run: its verdict, what the engine said, and the times."""

    run: Run
    variation: Variation
    results: tuple[JobResult, ...]
    report: bytes
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def solution_failed(self) -> bool:
        """Whether a solution that shared the verifier's container ended badly."""
        return any(note.startswith(_FAILED) for note in self.notes)

    @property
    def busy(self) -> float:
        """Seconds in which the task's own commands ran."""
        return sum(r.seconds for r in self.results)


def _open(root: Path, task: str, engine: Engine, image: str) -> _Check:
    folder = root / "tasks" / task
    return _Check(
        task=task,
        engine=engine,
        image=image,
        limits=limits(read_task_toml(root, task)),
        shipped=(folder / "tests" / "verify.json").is_file(),
        solution=Upload(into="/solution", archive=_packed(root, folder / "solution", "solve.sh")),
        tests=Upload(into="/tests", archive=_packed(root, folder / "tests", "test.sh")),
        verify=_object(root, folder / "tests" / "verify.json"),
        kinds=kinds_of(_json(root, folder / "tests" / "expected_tests.json")),
        quarantined=quarantined(_json(root, folder / "tests" / "quarantine.json")),
    )


def _object(root: Path, path: Path) -> Mapping[str, Any]:
    found = _json(root, path)
    return found if isinstance(found, Mapping) else {}


def _packed(root: Path, folder: Path, needed: str) -> bytes:
    if not (folder / needed).is_file():
        raise KbenchError(f"{(folder / needed).relative_to(root)}: is missing")
    return tars.pack_folder(folder)


def _json(root: Path, path: Path) -> Any:
    """What a JSON file holds; an empty object where there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise KbenchError(f"{path.relative_to(root)}: can't be read: {error}") from error


class Grader:
    """Grades a task with another patch in the place of the gold one."""

    def __init__(
        self, root: Path, task: str, *, engine: Engine, image: str, limit_sec: float | None = None
    ) -> None:
        """`limit_sec` is the most that the test command may take, where that is less."""
        self._check = replace(_open(root, task, engine, image), limit_sec=limit_sec)

    def __call__(self, patch: bytes | None) -> Tried:
        """What comes of a patch; None: of no solution at all."""
        check = self._check if patch is None else _with_patch(self._check, patch)
        graded = _graded(check, "nop" if patch is None else "oracle", 1, PLAIN)
        found = graded.run.verdict
        counted = (test for test in check.kinds if test not in check.quarantined)
        ends = {test: found.tests.get(test, NONE) for test in counted}
        return Tried(
            verdict=found,
            applied=found.outcome != "agent-error" and not graded.solution_failed,
            not_passed={test: end for test, end in ends.items() if end != "passed"},
            seconds=graded.seconds,
        )

    def after(self, scripts: Mapping[str, bytes]) -> Tried:
        """What the verifier says after a `solve.sh`, one of these files, ran in its container.

        Whatever verifier it is, it runs where the script ran, as it does under other runners.
        """
        limits = self._check.limits
        short = replace(limits.solution, timeout_sec=min(limits.solution.timeout_sec, _SCRIPT_SEC))
        check = replace(
            self._check,
            solution=Upload(into=self._check.solution.into, archive=tars.pack(scripts)),
            shipped=False,
            limits=replace(limits, solution=short),
        )
        graded = _graded(check, "oracle", 1, PLAIN)
        return Tried(
            verdict=graded.run.verdict,
            applied=not graded.solution_failed,
            seconds=graded.seconds,
        )


def _with_patch(check: _Check, patch: bytes) -> _Check:
    other = Upload(into="", archive=tars.pack({"fix.patch": patch}))
    both = tars.merge([Upload(into="", archive=check.solution.archive), other])
    return replace(check, solution=Upload(into=check.solution.into, archive=both))


def _variations(check: _Check, runs: int) -> tuple[Variation, ...]:
    """What each run varies; the image is looked at only where there is something to vary."""
    wishes = [variation.wish_of(number) for number in range(1, runs + 1)]
    image = _allowed(check) if runs > 1 else Allowed()
    return tuple(variation.fit(wish, image, check.given) for wish in wishes)


def _allowed(check: _Check) -> Allowed:
    """What the image lets a run vary; nothing where it can't say."""
    job = check.job(
        "what-can-vary", ("sh", _LOOK), timeout_sec=_LOOK_SEC, uploads=(_shipped(_LOOK),)
    )
    return variation.allowed(check.engine(job).output)


def _graded(check: _Check, kind: Kind, number: int, varied: Variation) -> _Graded:
    began = time.monotonic()
    results, found, more = (_fresh if check.shipped else _shared)(check, kind, varied)
    files = _files(results[-1])
    return _Graded(
        run=Run(kind=kind, number=number, verdict=found, variation=str(varied)),
        variation=varied,
        results=results,
        report=files.get(REPORT, b""),
        seconds=time.monotonic() - began,
        notes=(*more, *(note for result in results for note in result.notes)),
    )


_Outcome = tuple[tuple[JobResult, ...], Verdict, tuple[str, ...]]


def _fresh(check: _Check, kind: Kind, varied: Variation) -> _Outcome:
    """The solution in one container, its changed files graded in another."""
    if kind == "nop":
        graded = check.engine(_verifier_job(check, kind, varied, ()))
        return (graded,), verdict(graded, _files(graded), shipped=True), ()
    solved = check.engine(_solution_job(check))
    stopped = solution_verdict(solved)
    if stopped or solved.changes is None:
        return (solved,), stopped or Verdict(outcome="agent-error"), ()
    graded = check.engine(_verifier_job(check, kind, varied, (_changes_upload(solved.changes),)))
    return (solved, graded), verdict(graded, _files(graded), shipped=True), ()


def _changes_upload(changes: Changes) -> Upload:
    deleted = "".join(f"{path}\0" for path in changes.deleted).encode("utf-8", "surrogateescape")
    files = {"changes.tar": changes.archive, "deleted": deleted}
    return Upload(into="/kbench/changes", archive=tars.pack(files))


def _solution_job(check: _Check) -> Job:
    return check.job(
        "oracle/solution",
        ("bash", "/solution/solve.sh"),
        timeout_sec=check.limits.solution.timeout_sec,
        network=check.limits.solution.network,
        environment=check.limits.solution.environment,
        uploads=(check.solution, _log_folders()),
        changes_under=check.workdir,
    )


def _verifier_job(check: _Check, kind: Kind, varied: Variation, more: tuple[Upload, ...]) -> Job:
    return check.job(
        f"{kind}/verifier",
        ("bash", "/tests/test.sh"),
        timeout_sec=check.verifier_sec * (variation.SLOWER if varied.loaded else 1),
        network=check.limits.verifier.network,
        environment=check.limits.verifier.environment,
        uploads=(check.tests, _log_folders(), *more, *_data_upload(check, varied)),
        outputs=(LOGS,),
        **_load(check, varied),
    )


def _data_upload(check: _Check, varied: Variation) -> Iterator[Upload]:
    """The verifier's data for a run that varies something, in place of the task's own."""
    data = check.data(varied)
    if data != check.verify:
        content = json.dumps(data).encode("ascii")
        yield Upload(into="/tests", archive=tars.pack({"verify.json": content}))
        yield _shipped(variation.LOADED)


def _load(check: _Check, varied: Variation) -> dict[str, Any]:
    return {"cpus": variation.loaded_cpus(check.limits.cpus)} if varied.loaded else {}


def _shared(check: _Check, kind: Kind, varied: Variation) -> _Outcome:
    """Solution and verifier in one container, with the verifier's network."""
    job = _shared_job(check, varied, solved=kind == "oracle")
    result = check.engine(job)
    return (result,), verdict(result, _files(result), shipped=False), tuple(_solution_note(result))


def _shared_job(check: _Check, varied: Variation, *, solved: bool) -> Job:
    solution, verifier = check.limits.solution, check.limits.verifier
    scripts = ("/solution/solve.sh", "/tests/test.sh") if solved else ("/tests/test.sh",)
    seconds = check.verifier_sec + (solution.timeout_sec if solved else 0.0)
    given = {**(solution.environment if solved else {}), **verifier.environment}
    return check.job(
        "oracle/shared" if solved else "nop/shared",
        (*(variation.loaded_command() if varied.loaded else ()), "sh", SCRIPTS, *scripts),
        timeout_sec=seconds * (variation.SLOWER if varied.loaded else 1),
        network=verifier.network,
        environment={**given, **varied.environment},
        uploads=(
            *(check.tests, _log_folders(), _shipped(SCRIPTS), _shipped(variation.LOADED)),
            *((check.solution,) if solved else ()),
        ),
        outputs=(LOGS, EXIT_CODE),
        **_load(check, varied),
    )


def _log_folders() -> Upload:
    return Upload(into="/logs", archive=tars.pack({}, ("agent", "verifier", "artifacts")))


def _shipped(place: str) -> Upload:
    """A script of ours at its place in a container."""
    folder, _, name = place.rpartition("/")
    content = shipped_file(name)
    return Upload(into=folder, archive=tars.pack({name: content}))


def _files(result: JobResult) -> Mapping[str, bytes]:
    return tars.unpack(result.outputs[LOGS]) if LOGS in result.outputs else {}


def _solution_note(result: JobResult) -> Iterator[str]:
    """Harbor goes on after a solution that fails, so it is a note here."""
    if EXIT_CODE in result.outputs:
        code = tars.unpack_one(result.outputs[EXIT_CODE]).decode("ascii", "replace").strip()
        if code != "0":
            yield f"{_FAILED} {code[:20]}"


def _kept_output(
    root: Path, task: str, graded: list[_Graded], conclusion: Conclusion
) -> Iterator[str]:
    """Keep what runs printed when the check fails, and say where."""
    if conclusion.ok:
        return
    for one in graded:
        place = f"{STATE}/logs/{STEP}/{task}-{one.run.kind}-{one.run.number}.log"
        text = "\n".join(result.output for result in one.results)
        write_whole(root / place, text.encode("utf-8", "surrogateescape"))
        yield f"output of {one.run.kind} run {one.run.number}: {place}"


def _unstable_json(one: Unstable) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "passed": one.passed,
        "runs": one.runs,
        "odd": list(one.odd),
    }


def _as_json(graded: _Graded, check: _Check) -> dict[str, Any]:
    found = graded.run.verdict
    return {
        "kind": graded.run.kind,
        "run": graded.run.number,
        "variation": variation.to_json(graded.variation, check.limits.cpus),
        "outcome": found.outcome,
        "reward": found.reward,
        "why": found.why,
        "seconds": round(graded.seconds, 3),
        "verifier_seconds": round(graded.results[-1].seconds, 3),
        "overhead_seconds": round(graded.seconds - graded.busy, 3),
        "tests": shorten(found.tests, check.kinds),
        "report": digest.of_bytes(graded.report) if graded.report else None,
        "notes": list(graded.notes),
    }
