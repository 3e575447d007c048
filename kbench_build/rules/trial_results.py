"""What the containers of a trial came back with, as runs of a state."""

import json
from collections.abc import Mapping

from kbench_build.model.jobs import JobResult
from kbench_build.rules.last_words import last_words
from kbench_build.rules.outcomes import REPORT, verdict
from kbench_build.rules.trials import Judgement, StateRun

# The exit code of `put_checkout.sh` in an image that can't be used; its last line says why.
_LACKS_TOOLS = 3
_MOST_SEC = 1e7
_PATCH_KINDS = ("hidden-patch:", "post-image:")


def unusable(result: JobResult) -> str:
    """Why an image can't be used, from a look at it."""
    if result.exit_code == _LACKS_TOOLS:
        lacking = result.output.strip().rpartition("\n")[2].split()
        return f"lacks what the verifier needs: {', '.join(lacking)}"
    return f"can't be used: {result.error or last_words(result.output) or result.status}"


def unprepared(result: JobResult) -> Judgement:
    """What it means that a checkout couldn't be prepared."""
    said = f"prepare: {result.error or last_words(result.output) or result.status}"
    if result.status == "timeout":
        return Judgement(outcome="timeout", reason="prepare: didn't end within its time limit")
    if result.status == "exited":
        reason = f"{said} (exit code {result.exit_code})"
        return Judgement(outcome="nothing-ran", reason=reason)
    return Judgement(outcome="error", reason=said)


def state_run(result: JobResult, files: Mapping[str, bytes]) -> StateRun:
    """A run of the shipped verifier; `files` are those of its logs, by name."""
    found = verdict(result, files, shipped=True)
    if found.outcome in ("unresolved", "resolved"):
        return _ended(result, files)
    if found.outcome == "timeout":
        return StateRun(stopped="timeout", why="the test command didn't end within its time limit")
    if found.why.startswith(_PATCH_KINDS):
        return StateRun(stopped="patch-fails", why=found.why)
    return StateRun(stopped="error", why=found.why or found.outcome)


def _ended(result: JobResult, files: Mapping[str, bytes]) -> StateRun:
    found = verdict(result, files, shipped=True)
    report = json.loads(files[REPORT])
    command = _object(report.get("command"))
    errors = report.get("errors")
    kinds = [_object(e).get("kind") for e in errors] if isinstance(errors, list) else []
    words = last_words(result.output)
    why = f"{found.why or 'no test was reported'} (it ended with {command.get('exit_code')})"
    return StateRun(
        statuses=found.tests,
        seconds=_number(command.get("seconds")),
        why=f"{why}: {words}" if words else why,
        words=words,
        reran=found.reruns_disagreed,
        tests_changed="tests-changed" in kinds,
    )


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SEC else 0.0
