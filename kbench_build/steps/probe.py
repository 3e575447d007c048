"""Ask what of the gold patch the hidden tests guard: leave out one part at a time, and grade.

Promises: a killed run doesn't repeat what it finished; what an engine couldn't do is tried again;
a run without the fix (nothing at all, the hidden tests alone) must give no reward. Leaves grading
to `grade`, and whether gold patch and untouched checkout score as they must to `selfcheck`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from kbench_build import digest
from kbench_build.model import Report, Suppression
from kbench_build.rim.store import Store
from kbench_build.rules.findings import suppress
from kbench_build.rules.findings import to_json as finding_json
from kbench_build.rules.hunks import Part, parts_of, without
from kbench_build.rules.probing import (
    Control,
    Grade,
    Probe,
    findings,
    from_json,
    part_json,
    probe_of,
    result_json,
    share_of,
    summary,
    to_json,
    worth_probing,
)
from kbench_build.rules.step_inputs import SUPPRESSED

STEP = "probe"
# The results of single parts, kept until the report of the whole is written.
_PARTIAL = "probed"


def covers(data: Mapping[str, Any], most: int) -> bool:
    """Whether a report looked at as many parts as are wanted now."""
    tried, live = data.get("tried"), data.get("live")
    return isinstance(tried, int) and isinstance(live, int) and tried >= min(most, live)


def probe(
    root: Path,
    task: str,
    *,
    grade: Grade,
    most: int,
    inputs: str,
    suppressions: Sequence[Suppression] = (),
) -> Report:
    """Try up to `most` parts of the gold patch, and say what share the tests guard."""
    began = time.monotonic()
    folder = root / "tasks" / task
    why_not = _why_not(folder)
    if why_not:
        return Report(
            step=STEP, subject=task, inputs=inputs, ok=True, summary=f"not probed: {why_not}",
            seconds=time.monotonic() - began, data={"tried": 0, "live": 0, "not_probed": why_not},
        )  # fmt: skip
    patch = (folder / "solution" / "fix.patch").read_bytes()
    parts = parts_of(patch)
    memory = _Memory(Store(root), task, inputs)
    controls = tuple(_controls(folder, grade))
    probes = tuple(
        memory.probe(part, without(patch, part), grade) for part in worth_probing(parts, most)
    )
    report = _report(
        task,
        parts=parts,
        probes=probes,
        controls=controls,
        inputs=inputs,
        began=began,
        suppressions=suppressions,
    )
    memory.forget()
    return report


def _why_not(folder: Path) -> str:
    """Why a task can't be probed; empty where it can."""
    patch, script = folder / "solution" / "fix.patch", folder / "solution" / "solve.sh"
    if not patch.is_file():
        return "there is no solution/fix.patch"
    if not script.is_file() or b"fix.patch" not in script.read_bytes():
        return "solution/solve.sh doesn't apply solution/fix.patch"
    return "" if parts_of(patch.read_bytes()) else "solution/fix.patch is empty or malformed"


def _controls(folder: Path, grade: Grade) -> Iterator[Control]:
    """The runs without the fix."""
    yield _control("empty patch", grade, None)
    hidden = folder / "tests" / "test.patch"
    if hidden.is_file() and parts_of(hidden.read_bytes()):
        yield _control("test patch alone", grade, hidden.read_bytes())


def _control(name: Any, grade: Grade, patch: bytes | None) -> Control:
    found = grade(patch).verdict
    return Control(name=name, reward=found.reward, outcome=found.outcome, why=found.why)


class _Memory:
    """What is known of single parts of one task, on disk as each run ends."""

    def __init__(self, store: Store, task: str, inputs: str) -> None:
        self._store = store
        self._task = task
        self._inputs = inputs

    def probe(self, part: Part, patch: bytes, grade: Grade) -> Probe:
        """The probe of a part: remembered, or run now and kept if it says anything."""
        subject = f"{self._task}/{part.number}"
        inputs = digest.of_json([self._inputs, digest.of_bytes(patch)])
        known = self._store.read(_PARTIAL, subject)
        if known is not None and known.inputs == inputs:
            return from_json(part, known.data)
        found = probe_of(part, grade(patch or None))
        if found.noticed != "unknown":
            self._store.write(
                Report(
                    step=_PARTIAL,
                    subject=subject,
                    inputs=inputs,
                    ok=True,
                    summary=found.noticed,
                    seconds=found.seconds,
                    data=result_json(found),
                )
            )
        return found

    def forget(self) -> None:
        """Delete what was kept: a report holds it all."""
        for path in (self._store.root / _PARTIAL).glob(f"{escape(self._task)}%2F*.json"):
            path.unlink(missing_ok=True)


def _report(
    task: str,
    *,
    parts: Sequence[Part],
    probes: Sequence[Probe],
    controls: Sequence[Control],
    inputs: str,
    began: float,
    suppressions: Sequence[Suppression],
) -> Report:
    kept, answered = suppress(findings(task, probes, controls), task, suppressions)
    broken = [f"{probe.part}: {probe.why}" for probe in probes if probe.noticed == "unknown"]
    broken += [
        f"{c.name}: {c.outcome}: {c.why}"
        for c in controls
        if c.reward is None and c.outcome != "timeout"
    ]
    share = share_of(probes)
    said = summary(parts, probes, controls)
    return Report(
        step=STEP,
        subject=task,
        inputs=inputs,
        ok=not broken and not any(finding.severity == "error" for finding in kept),
        summary=f"{said}, {len(answered)}{SUPPRESSED}" if answered else said,
        seconds=time.monotonic() - began,
        data={
            "tried": len(probes),
            "live": sum(not part.inert for part in parts),
            "share": {
                "parts": share.parts,
                "of_parts": share.of_parts,
                "lines": share.lines,
                "of_lines": share.of_lines,
            },
            "parts": [to_json(probe) for probe in probes],
            "left_out": [{**part_json(p), "why": p.inert} for p in parts if p.inert],
            "controls": [
                {"name": c.name, "reward": c.reward, "outcome": c.outcome, "why": c.why}
                for c in controls
            ],
            "findings": [finding_json(finding) for finding in kept],
            "suppressed": [{**finding_json(a.finding), "reason": a.reason} for a in answered],
            "details": [f"not judged: {line}" for line in broken],
        },
    )
