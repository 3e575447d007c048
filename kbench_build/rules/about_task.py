"""What a release says about a task from its `task.toml`, and which part of a task a file is.

The parts are instruction, environment, solution, tests and metadata. In `task.toml`, the run
settings (timeouts, cpus, memory, network, verifier and so on) count to the environment, the table
`[solution]` to the solution, and `[metadata]`, `[task]` and the schema version to the metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kbench_build.rules import harbor
from kbench_build.rules.tables import table

Part = Literal["instruction", "environment", "solution", "tests", "metadata"]
PARTS: tuple[Part, ...] = get_args(Part)

# What an agent reads, works in and is graded by. Nobody's score depends on the rest.
SCORED: frozenset[Part] = frozenset({"instruction", "environment", "tests"})

TASK_TOML = "task.toml"

_METADATA_KEYS = frozenset({"metadata", "task", "schema_version", "version"})
_FOLDERS: Mapping[str, Part] = {
    "environment": "environment",
    "solution": "solution",
    "tests": "tests",
    "instruction.md": "instruction",
}


@dataclass(frozen=True, kw_only=True)
class AboutTask:
    """What a task's `task.toml` says that a release repeats. A text is empty where it is silent."""

    harbor_name: str | None
    settings: Mapping[str, Any]
    license: str
    source: str
    change: str
    base_commit: str


def about_task(document: Mapping[str, Any]) -> AboutTask:
    """Read the facts; values of another type than expected count as silence."""
    name = table(document, "task").get("name")
    source = table(document, "metadata", "source")
    return AboutTask(
        harbor_name=name if harbor.is_name(name) else None,
        settings={k: _jsonable(v) for k, v in document.items() if k not in _METADATA_KEYS},
        license=_text(source, "license"),
        source=_text(source, "repository_url"),
        change=_text(source, "code_change_url"),
        base_commit=_text(source, "base_commit"),
    )


def part_of(path: str) -> Part:
    """The part that a file belongs to, by its path in the task (`task.toml`: metadata)."""
    parts = path.split("/")
    if parts[0] == "steps" and len(parts) > 2:
        # A task of several steps: each has the parts of a task; its other files set it up.
        return _FOLDERS.get(parts[2], "environment")
    return _FOLDERS.get(parts[0], "metadata")


def part_of_setting(key: str) -> Part:
    """The part that a run setting belongs to, by its dotted key."""
    return "solution" if key.partition(".")[0] == "solution" else "environment"


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _jsonable(value: Any) -> Any:
    """A TOML value as JSON has it: dates become texts."""
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    # Infinities and NaN are TOML but not JSON.
    is_json = isinstance(value, (str, int)) or (isinstance(value, float) and abs(value) < 1e308)
    return value if is_json else str(value)
