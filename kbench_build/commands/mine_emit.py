"""`kbench mine --emit`: tasks of changes that are proved and stated; and pictures of it all."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbench_build.model import Finding
    from kbench_build.rim.mine_config import MineConfig
    from kbench_build.rim.pictures import Kind
    from kbench_build.steps.emit import Emission, Emitted, Fill, Options
    from kbench_build.steps.hold_upstream import Held
    from kbench_build.steps.mine import Mined, Parted
    from kbench_build.steps.sync import AtHand

_WORDS = {"new": "written", "same": "as it is", "differs": "replaced", "left-out": "left out"}


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of it: the value for JSON, and whether a task was left that differs."""

    value: Mapping[str, Any]
    lines: tuple[str, ...]
    open_ends: bool


def emit_tasks(
    root: Path,
    *,
    repository: str,
    clone: Path,
    folder: Path,
    kept: "Sequence[Parted]",
    only: Collection[str],
    config: "MineConfig",
    force: bool,
    dry_run: bool,
) -> Done:
    """Write the tasks (not in a dry run) and word what was done."""
    from kbench_build.rim.history import origin  # noqa: PLC0415
    from kbench_build.steps import emit as step  # noqa: PLC0415
    from kbench_build.steps import hold_upstream  # noqa: PLC0415
    from kbench_build.steps.sync import AtHand  # noqa: PLC0415

    upstream = step.Upstream(repository=repository, clone=clone, origin=origin(clone))
    names = {name.removeprefix("#") for name in only}
    chosen = (each for each in kept if not names or each.change.id.removeprefix("#") in names)
    changes = [step.Change(change=each.change, split=each.split) for each in chosen]
    options = _options(root, config)
    with TemporaryDirectory(prefix="kbench-emit-") as scratch:
        filling = _filling(AtHand(root, Path(scratch), [clone]))
        emission = step.emit(root, folder, upstream, changes, options=options, fill=filling)
    held = None
    if emission.needs:
        held = hold_upstream.hold_upstream(
            root,
            repository,
            clone,
            origin=upstream.origin,
            manifest=options.manifest,
            commit=emission.needs.commit,
            image=emission.needs.image,
        )
    if not dry_run:
        if held and any(task.state in ("new", "differs") for task in emission.tasks):
            hold_upstream.write(root, held, clone, force=force)
        if step.write(root, emission, force=force):
            _write_graph(root)
    return _done(emission, held, force=force, dry_run=dry_run)


def check_pictures(kind: "Kind | None") -> None:
    """Raise `KbenchError` at once where pictures are wanted and nothing can draw them."""
    if kind:
        from kbench_build.rim.pictures import check  # noqa: PLC0415 - an extra

        check()


def draw(root: Path, folder: Path, found: "Mined", repository: str, kind: "Kind | None") -> str:
    """Write the pictures of a repository, where any are wanted; a line for each."""
    if kind is None:
        return ""
    from kbench_build.rules.emit import task_id  # noqa: PLC0415
    from kbench_build.rules.mine_filters import REASONS  # noqa: PLC0415
    from kbench_build.steps.picture import Listed, picture  # noqa: PLC0415

    counts = Counter(each.reason for each in found.refused)
    refused = {words: counts[reason] for reason, words in REASONS.items()}
    ids = [each.change.id for each in found.kept]
    listed = Listed(
        repository=repository,
        merged=found.merged,
        refused={**refused, "older than the newest that were asked for": found.beyond},
        tasks={i.removeprefix("#"): root / "tasks" / task_id(repository, i) for i in ids},
    )
    return "".join(f"written to {place}\n" for place in picture(folder, listed, kind))


def _write_graph(root: Path) -> None:
    """What makes a folder of tasks a dataset, where nobody wrote it yet."""
    from kbench_build.rim.store import write_whole  # noqa: PLC0415
    from kbench_build.rules.starter import DODO  # noqa: PLC0415

    if not (root / "dodo.py").exists():
        write_whole(root / "dodo.py", DODO.encode())


def _options(root: Path, config: "MineConfig") -> "Options":
    from kbench_build.rim.config import load_config  # noqa: PLC0415
    from kbench_build.rim.dataset import read_manifest  # noqa: PLC0415
    from kbench_build.rules.manifest import parse_manifest  # noqa: PLC0415
    from kbench_build.steps.emit import Options  # noqa: PLC0415

    manifest = read_manifest(root)
    return Options(
        namespace=load_config(root).namespace,
        manifest=manifest,
        bases=parse_manifest(manifest)[0],
        environments=config.environments,
        pieces=config.pieces,
    )


def _filling(at_hand: "AtHand") -> "Fill":
    """What `kbench sync` does to verify.json, for a task that isn't written yet."""
    from kbench_build.model import Upstream  # noqa: PLC0415
    from kbench_build.steps.sync import fill  # noqa: PLC0415

    def filled(
        task: str, data: Mapping[str, Any], hidden: bytes, fix: bytes
    ) -> "tuple[bytes, tuple[Finding, ...]] | None":
        upstreams = at_hand.holding(task, data["base_commit"], Upstream())
        if upstreams is None:
            return None
        found = fill(task, data, upstreams, hidden=hidden, fix=fix)
        return found.written, found.findings

    return filled


def _done(emission: "Emission", held: "Held | None", *, force: bool, dry_run: bool) -> Done:
    open_ends = any(task.state == "differs" for task in emission.tasks) and not force
    value = {
        "tasks": [_as_json(task) for task in emission.tasks],
        "bases": list(held.new) if held else [],
        "written": not dry_run,
    }
    lines = [line for task in emission.tasks for line in _said(task, force=force)]
    if held:
        lines += [f"base     {place}" for place in held.new]
        lines += [f"note     {note}" for note in held.notes]
    last = _last_line(emission.tasks, force=force, dry_run=dry_run)
    return Done(value=value, lines=(*lines, last), open_ends=open_ends)


def _as_json(task: "Emitted") -> Mapping[str, Any]:
    found = {"change": task.change, "task": task.task, "state": task.state, "reason": task.reason}
    lists = {"differs": task.differs, "strange": task.strange, "notes": task.notes}
    return found | {name: list(items) for name, items in lists.items()}


def _said(task: "Emitted", *, force: bool) -> Iterable[str]:
    place = f"tasks/{task.task}"
    if task.state == "left-out":
        yield f"left out {task.change}: {task.reason}"
    elif task.state == "differs":
        how = "is replaced" if force else "stays as it is; --force replaces it"
        yield f"differs  {place}: {', '.join(task.differs)}: {how}"
    else:
        yield f"{task.state:<8} {place}"
    if task.strange:
        yield f"note     {place}: not ours, left alone: {', '.join(task.strange)}"
    yield from (f"note     {place}: {note}" for note in task.notes if task.state == "new")


def _last_line(tasks: "Sequence[Emitted]", *, force: bool, dry_run: bool) -> str:
    states: Counter[str] = Counter(task.state for task in tasks)
    words = {**_WORDS, **({} if force else {"differs": "that differ"})}
    words |= {"new": "to write", "differs": "that would differ"} if dry_run else {}
    said = ", ".join(f"{states[s]} {word}" for s, word in words.items() if states[s])
    line = f"tasks: {said or 'none'}"
    if dry_run or not (states["new"] or (force and states["differs"])):
        return line
    return f"{line}; next: doit validate build_images seal selfcheck"
