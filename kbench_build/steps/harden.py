"""Brings tasks in an older shape to the shipped verifier and seal.

Promises: nothing is written before `write` is called; a task is written whole or stays as it was,
and only if its files are still those that were looked at. Leaves recognising and proposing to
`rules.harden`, upstream repositories to the caller, and asking to the door.
"""

import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.model import DATASET, Base, Finding, Upstream
from kbench_build.rim.dataset import TASKS, Dataset
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import write_whole
from kbench_build.rim.task_files import list_folder, read_files, read_text
from kbench_build.rules.content import FIX, TASK, TEST_PATCH, VERIFY, limit
from kbench_build.rules.harden import (
    Edit,
    Options,
    Plan,
    base_edits,
    edits,
    failed,
    not_held,
    plan,
)
from kbench_build.rules.manifest import parse_manifest
from kbench_build.rules.parsing import parse_toml
from kbench_build.rules.recipes import upstream_of
from kbench_build.rules.shipped import SHIPPED
from kbench_build.rules.verifier_data import written

_MOST_OF_RECIPE = 1 << 20

# Completes verify.json: (task, its value, the upstream that task.toml names, hidden patch, fix) to
# its bytes and what is wrong; None where no repository holds the base.
Fill = Callable[
    [str, Mapping[str, Any], Upstream, bytes, bytes], tuple[bytes, tuple[Finding, ...]] | None
]


@dataclass(frozen=True, kw_only=True)
class Hardened:
    """What is to become of one task: edits, or why it is refused; and what else is to be said.

    The subject `@dataset` stands for the bases that the other edits need.
    """

    subject: str
    edits: tuple[Edit, ...] = ()
    refusals: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()


def harden(
    dataset: Dataset, tasks: Iterable[str], *, options: Options, fill: Fill
) -> tuple[Hardened, ...]:
    """Propose edits for tasks of the dataset, and first those of its bases that they need.

    Raises nothing for what is wrong with a task's data.
    """
    shipped = _shipped()
    bases, _ = parse_manifest(dataset.manifest)
    recipes = _recipes(dataset.root, bases, options.namespace)
    twins: dict[str, str] = {}
    found: list[Hardened] = []
    for task in tasks:
        files, unread = _files(dataset.root / TASKS / task)
        planned = plan(task, files, unread=unread, shipped=shipped, bases=recipes, options=options)
        hardened = _completed(task, files, _agreeing(task, planned, twins), fill)
        if hardened.edits:
            twins |= planned.twins
        found.append(hardened)
    more = base_edits(dataset.manifest, bases, options.namespace, twins)
    return (*([Hardened(subject=DATASET, edits=more)] if more else []), *found)


def _agreeing(task: str, planned: Plan, twins: Mapping[str, str]) -> Plan:
    """The plan, refused where an earlier task needs another twin of the same base."""
    for image, text in planned.twins.items():
        if twins.get(image, text) != text:
            message = f"works in another folder of {image} than an earlier task does"
            return Plan(refusals=(failed(task, message),))
    return planned


def _shipped() -> Mapping[str, bytes]:
    return {place: shipped_file(name) for place, name in SHIPPED.items()}


def _recipes(root: Path, bases: Iterable[Base], namespace: str) -> Mapping[str, str]:
    """The Dockerfiles of the bases, by image."""
    return {
        f"{namespace}/{base.name}": read_text(root / base.dockerfile, _MOST_OF_RECIPE)
        for base in bases
    }


def _files(folder: Path) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """A task's files as far as they are looked at, and why others weren't read."""
    if folder.is_symlink():
        return {}, {TASK: "is reached through a link in the place of the task's folder"}
    entries = list_folder(folder)
    links = {e.path: "is a link, which would be replaced" for e in entries if e.kind == "link"}
    plain = tuple(entry for entry in entries if entry.path not in links)
    data, reasons = read_files(folder, plain, limit)
    return data, {**reasons, **links}


def _completed(task: str, files: Mapping[str, bytes], found: Plan, fill: Fill) -> Hardened:
    """A plan with verify.json filled in from upstream."""
    if found.refusals or found.verify is None:
        return Hardened(subject=task, refusals=found.refusals, notes=found.notes)
    config = parse_toml(TASK, files[TASK])
    source = upstream_of(config if isinstance(config, Mapping) else None)
    try:
        filled = fill(task, found.verify, source, files[TEST_PATCH], files[FIX])
    except KbenchError as error:
        return Hardened(subject=task, refusals=(failed(task, str(error)),), notes=found.notes)
    if filled is None and VERIFY not in files:
        base = str(found.verify["base_commit"])
        return Hardened(subject=task, refusals=(not_held(task, base),), notes=found.notes)
    # A verify.json that can't be completed here was completed before, or `validate` says so.
    data, more = filled or (_kept(files[VERIFY], found.verify), ())
    errors = tuple(finding for finding in more if finding.severity == "error")
    return Hardened(
        subject=task,
        edits=() if errors else edits(task, files, {**found.texts, VERIFY: data}, SHIPPED),
        refusals=errors,
        notes=(*found.notes, *(finding for finding in more if finding.severity != "error")),
    )


def _kept(old: bytes, value: Mapping[str, Any]) -> bytes:
    """verify.json as it is, unless its value is another one."""
    import json  # noqa: PLC0415

    return old if json.loads(old) == value else written(value)


def write(root: Path, hardened: Hardened) -> None:
    """Write a subject's edits: all, or none. Raises `KbenchError` where that can't be done."""
    for edit in hardened.edits:
        if _now(root / edit.file) != edit.old:
            raise KbenchError(f"{root / edit.file}: has changed meanwhile: run again")
    done: list[Edit] = []
    try:
        for edit in hardened.edits:
            write_whole(root / edit.file, edit.new, _mode(root / edit.file))
            done.append(edit)
    except (KbenchError, KeyboardInterrupt):
        for edit in reversed(done):
            _put_back(root / edit.file, edit.old)
        raise


def _now(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644


def _put_back(path: Path, old: bytes | None) -> None:
    # What can't be put back is in the diff that was shown.
    with suppress(KbenchError, OSError):
        if old is None:
            path.unlink()
        else:
            write_whole(path, old, _mode(path))
