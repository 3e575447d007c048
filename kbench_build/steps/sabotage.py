"""Try on a task's verifier what no honest one rewards: each sabotage in a fresh container.

Promises: nothing of a sabotage is left for the next one; a reward is a finding, never an exception;
what couldn't be tried is said. Leaves running a verifier to `grade`, and what can be told without
running it to the checks of its text. Solution and verifier share a container, as runners hold it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kbench_build.model import Report, Suppression
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.task_files import list_folder, read_files
from kbench_build.rules.content import EXPECTED, FIX, TEST, TEST_PATCH, VERIFY, limit
from kbench_build.rules.findings import suppress
from kbench_build.rules.findings import to_json as finding_json
from kbench_build.rules.foreign_verifier import runners
from kbench_build.rules.parsing import Flaw, parse_json
from kbench_build.rules.patches import parse_patch
from kbench_build.rules.probing import Tried
from kbench_build.rules.sabotage import (
    Attempt,
    Known,
    Sabotage,
    attempt,
    findings,
    not_tried,
    sabotages,
    summary,
    to_json,
)
from kbench_build.rules.step_inputs import SUPPRESSED

STEP = "sabotage"
_TELLING = frozenset({EXPECTED, FIX, TEST, TEST_PATCH, VERIFY})
# Runs the verifier in the container in which a `solve.sh` among these files ran before it.
Grade = Callable[[Mapping[str, bytes]], Tried]


def sabotage(
    root: Path,
    task: str,
    *,
    grade: Grade,
    inputs: str,
    suppressions: Sequence[Suppression] = (),
) -> Report:
    """Try every sabotage that can be tried, and say what reward each got."""
    began = time.monotonic()
    known = known_of(root / "tasks" / task)
    attempts = tuple(_try(one, grade) for one in sabotages(known) if not one.lacks)
    kept, answered = suppress(findings(task, attempts), task, suppressions)
    said = summary(attempts)
    return Report(
        step=STEP,
        subject=task,
        inputs=inputs,
        ok=not kept and not any(found.ended == "unknown" for found in attempts),
        summary=f"{said}, {len(answered)}{SUPPRESSED}" if answered else said,
        seconds=time.monotonic() - began,
        data={
            "attempts": [to_json(found) for found in attempts],
            "not_tried": list(not_tried(known, attempts)),
            "findings": [finding_json(finding) for finding in kept],
            "suppressed": [{**finding_json(a.finding), "reason": a.reason} for a in answered],
            "details": [
                f"not judged: {a.sabotage.name}: {a.why}" for a in attempts if a.ended == "unknown"
            ],
        },
    )


def _try(one: Sabotage, grade: Grade) -> Attempt:
    script = shipped_file("sabotage.sh")
    found = grade({**one.files, "solve.sh": script})
    return attempt(one, found.verdict, done=found.applied, seconds=found.seconds)


def known_of(folder: Path) -> Known:
    """What a task's files tell of what can be sabotaged; what can't be read tells nothing."""
    data, _ = read_files(folder, list_folder(folder), _limit)
    command = _json(data, VERIFY).get("command")
    named = command[:1] if isinstance(command, list) else []
    script = data.get(TEST, b"").decode("utf-8", "replace")
    return Known(
        fix=_paths(data, FIX),
        hidden=_paths(data, TEST_PATCH),
        expected=_expected(_json(data, EXPECTED)),
        commands=tuple(map(str, named)) or runners(script),
    )


def _limit(path: str) -> int | None:
    return limit(path) if path in _TELLING else None


def _paths(data: Mapping[str, bytes], path: str) -> tuple[str, ...]:
    return tuple(sorted(set(parse_patch(data.get(path, b"")).paths)))


def _expected(document: Mapping[str, object]) -> tuple[str, ...]:
    lists = (document.get(f"{kind}_tests") for kind in ("f2p", "p2p", "s2p", "n2p"))
    found = (test for ids in lists if isinstance(ids, list) for test in ids)
    return tuple(sorted({test for test in found if isinstance(test, str)}))


def _json(data: Mapping[str, bytes], path: str) -> Mapping[str, object]:
    value = parse_json(path, data[path]) if path in data else {}
    return {} if isinstance(value, Flaw) else value
