"""What became of a run: exactly one outcome, from what the engine and the verifier left.

The order matters. An engine that failed proves nothing about the task; a time limit is told apart
from a verifier that broke; only a verifier that ended in order says resolved or unresolved. Rewards
follow Harbor: `reward.json` wins over `reward.txt`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbench_build.model import Outcome
from kbench_build.model.jobs import JobResult

REWARD_JSON = "reward.json"
REWARD_TEXT = "reward.txt"
REPORT = "report.json"
STATUSES = ("passed", "failed", "skipped")
_CANNOT_START = (126, 127)
_KILLED = {"oom": "was killed for memory", "disk": "wrote more than its disk limit"}
# A report names every test that ran; nobody writes so long a reward.
_LARGEST: Mapping[str, int] = {REPORT: 64 << 20, REWARD_JSON: 1 << 20, REWARD_TEXT: 1 << 20}
_MOST_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A run's outcome. `reward` is None where no reward can be believed; `why` is one line.

    `tests` are the statuses that the verifier reported, `reruns_disagreed` the tests that it ran
    more than once with different results.
    """

    outcome: Outcome
    reward: float | None = None
    why: str = ""
    tests: Mapping[str, str] = field(default_factory=dict)
    reruns_disagreed: tuple[str, ...] = ()


def solution_verdict(result: JobResult) -> Verdict | None:
    """What stops a run after its solution (or agent) phase; None when the verifier may run."""
    if result.status == "engine-error":
        return Verdict(outcome="infra-error", why=result.error)
    if result.status == "timeout":
        return Verdict(outcome="timeout", why="the solution didn't end within its time limit")
    if result.status in _KILLED:
        return Verdict(outcome="agent-error", why=f"the solution {_KILLED[result.status]}")
    if result.exit_code != 0:
        why = f"the solution ended with exit code {result.exit_code}{_last_words(result)}"
        return Verdict(outcome="agent-error", why=why)
    if result.changes is None:
        return Verdict(outcome="agent-error", why=" ".join(result.notes) or "no changes were kept")
    return None


def verdict(result: JobResult, files: Mapping[str, bytes], *, shipped: bool) -> Verdict:
    """The outcome of a run from its verifier. `files` are those of `/logs/verifier`.

    `shipped`: it is the verifier that comes with this system, which leaves a report and ends with
    0 only after its reward was written as the last act.
    """
    if result.status == "engine-error":
        return Verdict(outcome="infra-error", why=result.error)
    if result.status == "timeout":
        return Verdict(outcome="timeout", why="the verifier didn't end within its time limit")
    if result.status in _KILLED:
        return Verdict(outcome="verifier-error", why=f"the verifier {_KILLED[result.status]}")
    if result.exit_code in _CANNOT_START and not _has_reward(files):
        why = f"the verifier can't start{_last_words(result)}"
        return Verdict(outcome="verifier-error", why=why)
    return _shipped(result, files) if shipped else _by_reward(files, _last_words(result))


def _by_reward(files: Mapping[str, bytes], last_words: str) -> Verdict:
    try:
        reward = _reward(files)
    except ValueError as error:
        return Verdict(outcome="verifier-error", why=f"{error}{last_words}")
    return Verdict(outcome="resolved" if reward == 1 else "unresolved", reward=reward)


def _shipped(result: JobResult, files: Mapping[str, bytes]) -> Verdict:
    try:
        report = _report(files)
    except ValueError as error:
        return Verdict(outcome="verifier-error", why=f"{error}{_last_words(result)}")
    tests = {k: v for k, v in report["tests"].items() if v in STATUSES}
    why = "; ".join(_errors(report))[:_MOST_CHARACTERS]
    flaky = report.get("flaky")
    disagreed = sorted(i for i in (flaky if isinstance(flaky, list) else ()) if isinstance(i, str))
    plain = _by_reward(files, _last_words(result))
    outcome, reward = plain.outcome, plain.reward
    if report["outcome"] in ("timeout", "verifier-error"):
        outcome, reward = report["outcome"], None
    elif result.exit_code != 0:
        outcome, reward = "verifier-error", None
        why = f"the verifier ended with exit code {result.exit_code}{_last_words(result)}"
    elif report["outcome"] != outcome or report["reward"] != reward:
        outcome, reward = "verifier-error", None
        why = f"{REPORT} says {report['outcome']}, the reward says otherwise; {plain.why}"
    return Verdict(
        outcome=outcome,
        reward=reward,
        why=why,
        tests=tests,
        reruns_disagreed=tuple(disagreed),
    )


def _errors(report: Mapping[str, Any]) -> list[str]:
    errors = report.get("errors", ())
    return [
        f"{e.get('kind')}: {e.get('message')}" if isinstance(e, Mapping) else str(e)
        for e in (errors if isinstance(errors, list) else [errors])
    ]


def _report(files: Mapping[str, bytes]) -> Mapping[str, Any]:
    if REPORT not in files:
        raise ValueError(f"the verifier left no {REPORT}")
    content = _content(files, REPORT)
    try:
        report = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"the verifier's {REPORT} can't be read") from None
    if not isinstance(report, dict) or not isinstance(report.get("tests"), dict):
        raise ValueError(f"the verifier's {REPORT} isn't a report")
    return {"outcome": None, "reward": None, **report}


def _content(files: Mapping[str, bytes], name: str) -> bytes:
    if len(files[name]) > _LARGEST[name]:
        raise ValueError(f"{name} has more than {_LARGEST[name]:,} bytes")
    return files[name]


def _has_reward(files: Mapping[str, bytes]) -> bool:
    return REWARD_JSON in files or REWARD_TEXT in files


def _reward(files: Mapping[str, bytes]) -> float:
    """The reward; of several named ones the one called `reward`, else the least."""
    if REWARD_JSON in files:
        return _reward_json(_content(files, REWARD_JSON))
    if REWARD_TEXT not in files:
        raise ValueError("the verifier left no reward")
    text = _content(files, REWARD_TEXT).decode("utf-8", "replace").strip()
    try:
        return _finite(float(text), REWARD_TEXT)
    except ValueError:
        raise ValueError(f"{REWARD_TEXT} holds no number but {text[:60]!r}") from None


def _reward_json(content: bytes) -> float:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{REWARD_JSON} isn't JSON") from None
    rewards = value if isinstance(value, dict) else {"reward": value}
    if not rewards:
        raise ValueError(f"{REWARD_JSON} holds no reward")
    for reward in rewards.values():
        _finite(reward, REWARD_JSON)
    return float(rewards["reward"] if "reward" in rewards else min(rewards.values()))


def _finite(value: Any, file: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{file} holds {str(value)[:60]!r}, which isn't a finite number")
    return number


def _last_words(result: JobResult) -> str:
    lines = [line for line in result.output.splitlines() if line.strip()]
    return f": {lines[-1].strip()[:200]}" if lines else ""
