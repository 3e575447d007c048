"""What changed between two releases, what it does to scores, and the least bump that says so.

Promises: computed from the two locks alone. A task's change names its parts (instruction,
environment, solution, tests, metadata), its files and its run settings; a changed base counts as a
change of the environment of every task that stands on it, however far down, unless its recipe is
the same (a file that no build sees was edited). Scores are affected by
the instruction, the environment and the tests; not by the solution, which no agent sees and no
verifier reads, nor by metadata.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbench_build import digest
from kbench_build.model import FileEntry
from kbench_build.rules.about_task import (
    PARTS,
    SCORED,
    TASK_TOML,
    Part,
    flat,
    part_of,
    part_of_setting,
)
from kbench_build.rules.lock import (
    Lock,
    LockedBase,
    LockedTask,
    Previous,
    as_bases,
    files_of_base,
    task_groups,
)
from kbench_build.rules.records import from_json, to_json
from kbench_build.rules.versions import Bump

SCHEMA = 1

# Files of the tarball that the release itself makes, so that they are no change of the dataset.
GENERATED = frozenset({"README.md", "tasks/dataset.toml"})


@dataclass(frozen=True, kw_only=True)
class FileChanges:
    """Paths of files that were added, removed, or changed in content or mode."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        """Every path that differs."""
        return tuple(sorted({*self.added, *self.removed, *self.changed}))


@dataclass(frozen=True, kw_only=True)
class SettingChange:
    """One run setting of a `task.toml` by its dotted key; None where it wasn't set."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class TaskChange:
    """One task that is in both releases and isn't the same. `bases` are changed ones it stands on.

    Paths are relative to the task.
    """

    id: str
    parts: tuple[Part, ...]
    affects_scores: bool
    files: FileChanges
    settings: tuple[SettingChange, ...]
    bases: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BaseChange:
    """One base that is in both releases and isn't the same, and the tasks that it touches.

    Paths are relative to the base's folder. With `is_rebuilt` false no build sees the change, and
    no task is touched.
    """

    name: str
    is_rebuilt: bool
    files: FileChanges
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskChanges:
    """Ids of tasks that came and went, and the tasks that changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[TaskChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BaseChanges:
    """Names of bases that came and went, and the bases that changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[BaseChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Changes:
    """A release against the one before it (None: it is the first).

    `least_bump` is what the version must move by at least. `other_files` are files of the tarball
    outside tasks and bases.
    """

    schema: int = SCHEMA
    name: str
    version: str
    content: str
    previous: Previous | None
    least_bump: Bump
    affects_scores: bool
    tasks: TaskChanges = field(default_factory=TaskChanges)
    bases: BaseChanges = field(default_factory=BaseChanges)
    other_files: FileChanges = field(default_factory=FileChanges)


def changes_bytes(changes: Changes) -> bytes:
    """The canonical JSON of the changes."""
    return digest.canonical_json(to_json(changes))


def parse_changes(value: Any) -> Changes:
    """Read changes from a JSON value. Raises `FormatError` that names the path to the bad key."""
    return from_json(Changes, value)


def changes_between(old: Lock | None, new: Lock) -> Changes:
    """Compare a release with the one before it. In a first release everything is added."""
    if old is None:
        tasks = TaskChanges(added=tuple(t.id for t in new.tasks))
        bases = BaseChanges(added=tuple(b.name for b in new.bases))
        others = FileChanges(added=tuple(f.path for f in other_files(new)))
        previous = None
    else:
        bases = _base_changes(old, new)
        tasks = _task_changes(old, new, frozenset(b.name for b in bases.changed if b.is_rebuilt))
        others = _file_changes(other_files(old), other_files(new))
        previous = Previous(version=old.version, content=old.content)
    return Changes(
        name=new.name,
        version=new.version,
        content=new.content,
        previous=previous,
        least_bump=_least_bump(old, tasks, bases, others),
        affects_scores=bool(tasks.removed or any(t.affects_scores for t in tasks.changed)),
        tasks=tasks,
        bases=bases,
        other_files=others,
    )


def _least_bump(
    old: Lock | None, tasks: TaskChanges, bases: BaseChanges, others: FileChanges
) -> Bump:
    if old is None:
        return "none"
    if tasks.removed or any(t.affects_scores for t in tasks.changed):
        return "major"
    if tasks.added:
        return "minor"
    return "patch" if tasks.changed or bases != BaseChanges() or others.all() else "none"


def _base_changes(old: Lock, new: Lock) -> BaseChanges:
    before, after = {b.name: b for b in old.bases}, {b.name: b for b in new.bases}
    both = sorted(before.keys() & after.keys())
    changed = [_base_change(before[name], after[name], old, new) for name in both]
    return BaseChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(change for change in changed if change),
    )


def _base_change(before: LockedBase, after: LockedBase, old: Lock, new: Lock) -> BaseChange | None:
    if (before.digest, before.dockerfile) == (after.digest, after.dockerfile):
        return None
    is_rebuilt = not before.recipe or before.recipe != after.recipe
    name = after.name
    return BaseChange(
        name=name,
        is_rebuilt=is_rebuilt,
        files=_file_changes(_base_files(old, name), _base_files(new, name)),
        tasks=tuple(sorted(t.id for t in new.tasks if is_rebuilt and name in bases_below(new, t))),
    )


def _base_files(lock: Lock, name: str) -> Iterable[FileEntry]:
    bases = as_bases(lock.bases)
    return files_of_base(lock.files, next(b for b in bases if b.name == name), bases)


def bases_below(lock: Lock, task: LockedTask) -> frozenset[str]:
    """The bases that a task stands on, directly or through other bases."""
    parents = {b.name: b.parents for b in lock.bases}
    found: set[str] = set()
    pending = list(task.bases)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(parents.get(name, ()))
    return frozenset(found)


def _task_changes(old: Lock, new: Lock, rebuilt: frozenset[str]) -> TaskChanges:
    before, after = {t.id: t for t in old.tasks}, {t.id: t for t in new.tasks}
    both = sorted(before.keys() & after.keys())
    touching = {name: tuple(sorted(rebuilt & bases_below(new, after[name]))) for name in both}
    edited = {n for n in both if before[n].digest != after[n].digest}
    old_files, new_files = _files_of(old, edited), _files_of(new, edited)
    changed = []
    for name in both:
        if name in edited or touching[name]:
            files = _file_changes(old_files.get(name, ()), new_files.get(name, ()))
            changed.append(_task_change(before[name], after[name], files, touching[name]))
    return TaskChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(changed),
    )


def _files_of(lock: Lock, tasks: Container[str]) -> dict[str, list[FileEntry]]:
    return {task: group for task, group in task_groups(lock.files) if task in tasks}


def _task_change(
    before: LockedTask, after: LockedTask, files: FileChanges, bases: tuple[str, ...]
) -> TaskChange:
    settings = _setting_changes(before.settings, after.settings)
    paths = [p for p in files.all() if p != TASK_TOML]
    touched = {part_of(path) for path in paths} | {part_of_setting(s.key) for s in settings}
    if bases:
        touched.add("environment")
    # What differs in task.toml and isn't a setting is metadata, its comments and layout included.
    if len(paths) < len(files.all()) and not settings:
        touched.add("metadata")
    return TaskChange(
        id=after.id,
        parts=tuple(part for part in PARTS if part in touched),
        affects_scores=bool(touched & SCORED),
        files=files,
        settings=settings,
        bases=bases,
    )


def _setting_changes(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[SettingChange, ...]:
    old, new = flat(before), flat(after)
    return tuple(
        SettingChange(key=key, before=old.get(key), after=new.get(key))
        for key in sorted(old.keys() | new.keys())
        # 30 and 30.0 are the same setting; true and 1 are not.
        if (old.get(key), _is_flag(old.get(key))) != (new.get(key), _is_flag(new.get(key)))
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def other_files(lock: Lock) -> list[FileEntry]:
    """The files outside tasks and bases that a maintainer wrote."""
    folders = {base.context for base in as_bases(lock.bases)}
    folders |= {f"tasks/{task.id}" for task in lock.tasks}
    return [
        f
        for f in lock.files
        if f.path not in GENERATED and "/".join(f.path.split("/")[:2]) not in folders
    ]


def _file_changes(before: Iterable[FileEntry], after: Iterable[FileEntry]) -> FileChanges:
    old = {f.path: (f.mode, f.digest) for f in before}
    new = {f.path: (f.mode, f.digest) for f in after}
    return FileChanges(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(sorted(p for p in old.keys() & new.keys() if old[p] != new[p])),
    )
