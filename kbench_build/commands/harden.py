"""`kbench harden`: bring tasks in an older shape to the shipped verifier and seal."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kbench_build.commands.options import FORMAT, ROOT, UPSTREAM, check_tasks
from kbench_build.model import DATASET

if TYPE_CHECKING:
    from kbench_build.model import Finding, Upstream
    from kbench_build.rim.dataset import Dataset
    from kbench_build.rules.harden import Edit, Options
    from kbench_build.steps.harden import Fill, Hardened
    from kbench_build.steps.sync import AtHand

_FORMAT_VERSION = 1
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}
# What is said of so many tasks or more is said once, and so many of them are named.
_TOGETHER, _NAMED = 3, 4
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@click.command()
@click.argument("tasks", nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if something would change.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option(
    "--repository",
    "repositories",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A clone or bundle of an upstream repository; may be given again.",
)
@UPSTREAM
@click.option(
    "--history",
    type=click.Choice(["ancestors", "none"]),
    default="ancestors",
    show_default=True,
    help="What a new seal keeps beside the base commit.",
)
@click.option(
    "--env",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable that the test command needs; may be given again.",
)
@click.option(
    "--reports",
    multiple=True,
    metavar="GLOB",
    help="Where JUnit reports are, in place of what test.sh says; may be given again.",
)
@ROOT
@FORMAT
@click.option("--color/--no-color", default=None, help="Default: on a terminal, unless NO_COLOR.")
def harden(
    tasks: tuple[str, ...],
    *,
    check: bool,
    yes: bool,
    repositories: tuple[Path, ...],
    upstream: Path | None,
    history: str,
    settings: tuple[str, ...],
    reports: tuple[str, ...],
    root: Path,
    style: str,
    color: bool | None,
) -> None:
    """Bring tasks in an older shape to the shipped verifier and seal.

    TASKS are ids; without one, every task of the dataset. Shows what would change as a diff, then
    asks. A task that isn't recognised line by line is left as it is, and each reason is said.
    """
    from kbench_build.rim.dataset import open_dataset  # noqa: PLC0415
    from kbench_build.rules.harden import Options  # noqa: PLC0415

    if check and yes:
        raise click.UsageError("--check writes nothing, --yes writes without asking: give one")
    dataset = open_dataset(root)
    check_tasks(tasks, dataset.tasks)
    options = Options(
        namespace=dataset.config.namespace,
        history=history,
        settings=_pairs(settings),
        reports=_globs(reports),
    )
    mirrors = str(upstream.absolute()) if upstream else dataset.config.mirrors
    found = _proposed(dataset, tasks or dataset.tasks, options, repositories, mirrors)
    if style == "text":
        _show(found, colour=False if color is None and "NO_COLOR" in os.environ else color)
    written = not check and _may_write(found, yes=yes, ask=style == "text")
    if written:
        _write(root, found)
    click.echo(_as_json(found, written) if style == "json" else _last_line(found, written, check))
    open_ends = any(h.refusals or (h.edits and not written) for h in found)
    sys.exit(1 if open_ends else 0)


def _pairs(settings: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise click.BadParameter(f"{setting!r} isn't NAME=VALUE", param_hint="--env")
        pairs[name] = value
    return pairs


def _globs(reports: tuple[str, ...]) -> tuple[str, ...]:
    for glob in reports:
        parts = glob.removeprefix("!").split("/")
        if "" in parts[:1] or ".." in parts or ".git" in map(str.lower, parts):
            message = f"{glob!r} leads out of the checkout"
            raise click.BadParameter(message, param_hint="--reports")
    return reports


def _proposed(
    dataset: "Dataset",
    tasks: Sequence[str],
    options: "Options",
    repositories: tuple[Path, ...],
    mirrors: str,
) -> list["Hardened"]:
    from kbench_build.steps.harden import harden as propose  # noqa: PLC0415
    from kbench_build.steps.sync import AtHand  # noqa: PLC0415

    with TemporaryDirectory(prefix="kbench-harden-") as scratch:
        at_hand = AtHand(dataset.root, Path(scratch), repositories, mirrors)
        return list(propose(dataset, tasks, options=options, fill=_filling(at_hand)))


def _filling(at_hand: "AtHand") -> "Fill":
    """What `kbench sync` does to verify.json, for a task that isn't written yet."""
    from kbench_build.steps.sync import fill  # noqa: PLC0415

    def filled(
        task: str, data: Mapping[str, Any], source: "Upstream", hidden: bytes, fix: bytes
    ) -> tuple[bytes, tuple["Finding", ...]] | None:
        upstreams = at_hand.holding(task, data["base_commit"], source)
        if upstreams is None:
            return None
        found = fill(task, data, upstreams, hidden=hidden, fix=fix)
        return found.written, found.findings

    return filled


def _show(found: Iterable["Hardened"], *, colour: bool | None) -> None:
    """All diffs, then what is to be said of the tasks."""
    shown: dict[tuple[str, bytes | None, bytes], str] = {}
    for hardened in found:
        for edit in hardened.edits:
            place = edit.file.removeprefix(f"tasks/{hardened.subject}/")
            earlier = shown.setdefault((place, edit.old, edit.new), hardened.subject)
            if earlier == hardened.subject:
                _show_diff(edit, colour)
            else:
                click.echo(f"same     {edit.file}: the change shown for {earlier}")
    said: dict[tuple[str, str, Finding], list[str]] = {}
    for hardened in found:
        for word, findings in (("note", hardened.notes), ("refused", hardened.refusals)):
            for finding in findings:
                place = finding.file.removeprefix(f"tasks/{hardened.subject}/")
                key = (word, place, replace(finding, file=""))
                said.setdefault(key, []).append(finding.file)
    for (word, place, finding), files in said.items():
        _show_finding(word, place, finding, files)


def _show_finding(word: str, place: str, finding: "Finding", files: Sequence[str]) -> None:
    """One finding, once for all tasks of which the same is to be said."""
    if len(files) < _TOGETHER:
        for file in files:
            click.echo(f"{word:<8} {replace(finding, file=file)}\n         {finding.mend}")
        return
    names = [file.split("/")[1] for file in files]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    click.echo(f"{word:<8} {replace(finding, file=f'{place} of {len(files)} tasks')}")
    click.echo(f"         {', '.join(names[:_NAMED])}{more}\n         {finding.mend}")


def _show_diff(edit: "Edit", colour: bool | None) -> None:
    from kbench_build.rules.harden_diff import diff  # noqa: PLC0415

    for line in diff(edit):
        bold = line[:3] in ("---", "+++") or None
        styled = click.style(line, fg=_COLOURS.get(line[:1]), bold=bold)
        click.echo(styled, color=colour)


def _may_write(found: Sequence["Hardened"], *, yes: bool, ask: bool) -> bool:
    count = sum(len(hardened.edits) for hardened in found)
    if yes or not count:
        return bool(count)
    if not ask or not sys.stdin.isatty():
        return False
    tasks = sum(bool(hardened.edits) for hardened in found if hardened.subject != DATASET)
    return click.confirm(f"Write these {count} files of {tasks} tasks?")


def _write(root: Path, found: Iterable["Hardened"]) -> None:
    from kbench_build.steps.harden import write  # noqa: PLC0415

    for hardened in found:
        write(root, hardened)


def _state(hardened: "Hardened", written: bool) -> str:
    if hardened.refusals:
        return "refused"
    if not hardened.edits:
        return "nothing to do"
    return "hardened" if written else "to harden"


def _last_line(found: Sequence["Hardened"], written: bool, check: bool) -> str:
    states = [_state(hardened, written) for hardened in found if hardened.subject != DATASET]
    counted = (f"{states.count(s)} {s}" for s in dict.fromkeys(states))
    said = ", ".join(counted) or "no tasks"
    if "hardened" in states:
        return f"{said}; next: doit validate build_images seal selfcheck"
    if "to harden" in states and not check:
        return f"{said}; nothing was written (--yes writes without asking)"
    return said


def _as_json(found: Iterable["Hardened"], written: bool) -> str:
    tasks = [hardened for hardened in found if hardened.subject != DATASET]
    bases = [hardened for hardened in found if hardened.subject == DATASET]
    value = {
        "version": _FORMAT_VERSION,
        "written": written,
        "bases": [file for hardened in bases for file in _files_as_json(hardened)],
        "tasks": [_task_as_json(hardened, written) for hardened in tasks],
    }
    return json.dumps(value, indent=2)


def _task_as_json(hardened: "Hardened", written: bool) -> Mapping[str, Any]:
    from kbench_build.rules.findings import to_json  # noqa: PLC0415

    return {
        "task": hardened.subject,
        "state": _state(hardened, written),
        "files": list(_files_as_json(hardened)),
        "refusals": [to_json(finding) for finding in hardened.refusals],
        "notes": [to_json(finding) for finding in hardened.notes],
    }


def _files_as_json(hardened: "Hardened") -> Iterator[Mapping[str, str]]:
    from kbench_build.rules.harden_diff import diff  # noqa: PLC0415

    for edit in hardened.edits:
        change = "new" if edit.old is None else "changed"
        yield {"file": edit.file, "change": change, "diff": "\n".join(diff(edit)) + "\n"}
