"""The text of a release's CHANGELOG.md, from its changes.

One section a version, the newest first: counts per part, then every name. No dates: a release says
the same whenever it is made.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from kbench_build.rules.about_task import PARTS
from kbench_build.rules.changes import BaseChange, Changes, TaskChange
from kbench_build.rules.findings import printable

_WORDS = {
    "instruction": "instruction rewritten",
    "environment": "environment changed",
    "solution": "solution changed",
    "tests": "tests revised",
    "metadata": "metadata changed",
}


def changelog(changes: Changes, gate: str, earlier: str) -> str:
    """The whole file: this release's section above the sections of the earlier changelog.

    `gate` is one sentence about what the release proved.
    """
    head = f"# Changes of {changes.name}\n"
    _, mark, sections = earlier.partition("\n## ")
    old = f"\n## {sections.rstrip()}\n" if mark else ""
    return f"{head}\n" + "\n".join(_section(changes, gate)) + f"\n{old}"


def _section(changes: Changes, gate: str) -> Iterator[str]:
    yield f"## {changes.version}"
    yield ""
    yield _opening(changes)
    yield ""
    yield gate
    yield ""
    yield f"Content hash: `{changes.content}`"
    yield from _list("Tasks added", map(_code, changes.tasks.added))
    yield from _list("Tasks removed", map(_code, changes.tasks.removed))
    yield from _list("Tasks changed", map(_task, changes.tasks.changed))
    yield from _list("Bases added", map(_code, changes.bases.added))
    yield from _list("Bases removed", map(_code, changes.bases.removed))
    yield from _list("Bases changed", map(_base, changes.bases.changed))
    yield from _list("Other files changed", map(_code, changes.other_files.all()))


def _opening(changes: Changes) -> str:
    if changes.previous is None:
        return f"First release: {_count(len(changes.tasks.added), 'task')}."
    effect = (
        "Scores can't be compared with those of that release."
        if changes.affects_scores
        else "Scores of the tasks in both releases can be compared."
    )
    return f"Since {changes.previous.version}: {'; '.join(_counts(changes))}. {effect}"


def _counts(changes: Changes) -> list[str]:
    tasks = changes.tasks
    parts = Counter(part for task in tasks.changed for part in task.parts)
    counts = [
        (len(tasks.added), "task", "added"),
        (len(tasks.removed), "task", "removed"),
        (len(tasks.changed), "task", "changed"),
    ]
    said = [f"{_count(n, noun)} {verb}" for n, noun, verb in counts if n]
    detail = ", ".join(f"{_WORDS[part]} in {parts[part]}" for part in PARTS if parts[part])
    return [*said, *([detail] if detail else [])] or ["the same tasks, packed anew"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _task(change: TaskChange) -> str:
    what = ", ".join(_WORDS[part] for part in change.parts) or "file modes or names changed"
    settings = "".join(
        f"; `{_plain(s.key)}`: {_plain(s.before)} → {_plain(s.after)}" for s in change.settings
    )
    through = f"; through {', '.join(map(_code, change.bases))}" if change.bases else ""
    effect = "" if change.affects_scores else " (scores unaffected)"
    return f"{_code(change.id)}: {what}{settings}{through}{effect}"


def _base(change: BaseChange) -> str:
    files = ", ".join(map(_code, change.files.all())) or "another Dockerfile"
    touched = f"touches {_count(len(change.tasks), 'task')}" if change.tasks else "touches no task"
    return f"{_code(change.name)}: {files}; {touched}"


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = [f"- {line}" for line in lines]
    if items:
        yield f"\n### {title}\n"
        yield from items


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _plain(value: object) -> str:
    if value is None:
        return "not set"
    return printable(str(value)).replace("`", "'")
