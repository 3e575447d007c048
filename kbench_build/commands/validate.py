"""`kbench validate`: the checks without doit, in the forms that people and public CI read."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kbench_build import __version__
from kbench_build.commands.options import UPSTREAM
from kbench_build.errors import KbenchError
from kbench_build.model import DATASET, Finding, Report, Severity
from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import TASKS, Dataset, open_dataset

if TYPE_CHECKING:
    from kbench_build.rules.outline import Kind
    from kbench_build.rules.places import Placed

_FORMAT_VERSION = 1
_LEVELS: tuple[Severity, ...] = ("error", "warning", "note")
_MOST_BYTES = 1 << 20
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run found, and what is to be shown of it: severities, and the address of docs/."""

    root: Path
    reports: Sequence[Report]
    shown: Sequence[Severity]
    docs: str

    @property
    def tasks(self) -> int:
        """How many tasks were looked at."""
        return sum(report.subject != DATASET for report in self.reports)

    @property
    def not_checked(self) -> list[str]:
        """A sentence for each task and thing that couldn't be checked of it."""
        return [said for r in self.reports for said in r.data.get("not_checked", ())]


@click.command(short_help="Check a dataset without running anything of it.")
@click.argument("words", metavar="[DIR] [TASK]...", nargs=-1, type=click.Path())
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="For people, for programs, for code scanning, or as annotations of a GitHub workflow.",
)
@click.option(
    "--severity",
    type=click.Choice(_LEVELS),
    default="note",
    show_default=True,
    help="Leave out findings that matter less than this.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*_LEVELS, "never"]),
    default="error",
    show_default=True,
    help="Exit 1 for a finding of this severity or a worse one.",
)
@click.option("--docs", default="", metavar="URL", help="Where docs/ is published; SARIF links it.")
@UPSTREAM
@click.option("--color/--no-color", default=None, help="Default: on a terminal, unless NO_COLOR.")
def validate(
    words: tuple[str, ...],
    style: str,
    severity: str,
    *,
    fail_on: str,
    docs: str,
    upstream: Path | None,
    color: bool | None,
) -> None:
    """Check a dataset without doit, and without running anything of it.

    DIR is the dataset's root (default: the current folder), its folder of tasks, or one task's.
    TASKs are ids or patterns such as 'acme_*'; without one, all tasks and the dataset around them
    are checked. The same findings come out of `doit validate`. Nothing is written but what is known
    of upstream repositories, below .kbench/upstream.

    In json, sarif and github, files are named from the root of the git repository that holds the
    dataset (in json under `folder`), so that public CI annotates the right lines.
    """
    root, names = _where(words)
    with _opened(root) as found:
        dataset = _with_mirrors(found, upstream)
        reports = list(_checked(dataset, _subjects(dataset, names)))
        if not names:
            reports = _together(reports, dataset)
    outcome = Outcome(root=root, reports=reports, shown=_down_to(severity), docs=docs)
    colour = "NO_COLOR" not in os.environ and None if color is None else color
    for line in _FORMATS[style](outcome):
        click.echo(line, color=colour)
    sys.exit(1 if _fails(reports, fail_on) else 0)


def _with_mirrors(dataset: Dataset, upstream: Path | None) -> Dataset:
    if upstream is None:
        return dataset
    return replace(dataset, config=replace(dataset.config, mirrors=str(upstream.absolute())))


def _where(words: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """The dataset's root (or a folder that holds tasks itself), and what names its tasks."""
    if not words or not Path(words[0]).is_dir():
        # Ids and patterns have no slash.
        if words and "/" in words[0]:
            raise KbenchError(f"{words[0]}: no such folder")
        return Path(), words
    first, names = Path(words[0]), words[1:]
    whole = first.resolve()
    if (first / TASKS).is_dir():
        return first, names
    if (first / "task.toml").is_file():
        whole, names = whole.parent, (whole.name, *names)
    return (whole.parent if whole.name == TASKS else whole), names


@contextmanager
def _opened(root: Path) -> Iterator[Dataset]:
    """The dataset; where the root holds task folders itself, one whose tasks/ links there."""
    tasks = (
        () if (root / TASKS).is_dir() else sorted(p.parent.name for p in root.glob("*/task.toml"))
    )
    if not tasks:
        yield open_dataset(root)
        return
    with TemporaryDirectory(prefix="kbench-tasks-") as folder:
        linked = Path(folder)
        (linked / TASKS).symlink_to(root.resolve())
        yield Dataset(root=linked, config=load_config(root), tasks=tuple(tasks), manifest="")


def _as_laid_out(report: Report, dataset: Dataset) -> Report:
    """A report about linked tasks as one about the folder that holds them."""
    if not (dataset.root / TASKS).is_symlink():
        return report
    data = dict(report.data)
    for kind in ("findings", "suppressed"):
        # All that isn't a task is a stray there, and nothing says that it should go.
        data[kind] = [
            {**value, "file": value["file"].removeprefix(f"{TASKS}/")}
            for value in report.data[kind]
            if value["rule"] != "dataset/stray"
        ]
    return replace(report, data=data)


def _subjects(dataset: Dataset, names: Sequence[str]) -> Sequence[str]:
    """What to check: the tasks that the names (ids, patterns, paths) mean; else everything."""
    if not names:
        return (DATASET, *dataset.tasks)
    known = (DATASET, *dataset.tasks)
    wanted: dict[str, None] = {}
    for name in names:
        pattern = name.rstrip("/").rpartition("/")[2]
        found = [pattern] if pattern in known else [t for t in known if fnmatchcase(t, pattern)]
        if not found:
            raise KbenchError(f"{TASKS}/{pattern}: no such task")
        wanted |= dict.fromkeys(found)
    return tuple(wanted)


def _checked(dataset: Dataset, subjects: Sequence[str]) -> Iterator[Report]:
    from kbench_build.rules.manifest import parse_manifest  # noqa: PLC0415 - only when asked for
    from kbench_build.steps.validate import validate as check  # noqa: PLC0415

    bases = parse_manifest(dataset.manifest)[0]
    for subject in _shown_on_terminal(subjects):
        yield _as_laid_out(check(subject, dataset=dataset, bases=bases), dataset)


def _together(reports: Sequence[Report], dataset: Dataset) -> list[Report]:
    """The reports about everything, with what only all of them together tell."""
    from kbench_build.steps.validate import after_all  # noqa: PLC0415

    return list(after_all(reports, dataset.config.suppress))


def _shown_on_terminal(subjects: Sequence[str]) -> Iterable[str]:
    """The subjects, with a bar on a terminal as they pass; nothing elsewhere."""
    if len(subjects) < 50 or not sys.stderr.isatty():
        return subjects
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    return track(subjects, "checking", console=Console(stderr=True), transient=True)


def _down_to(severity: str) -> Sequence[Severity]:
    """The severities from the worst to this one."""
    return _LEVELS[: [str(level) for level in _LEVELS].index(severity) + 1]


def _placed(outcome: Outcome, *, lines: bool = False) -> Sequence["Placed"]:
    """The findings to show, in their places; the worst first. `lines`: find the lines of keys."""
    from kbench_build.rules.findings import from_json, in_order  # noqa: PLC0415
    from kbench_build.rules.places import place  # noqa: PLC0415

    reasons: dict[Finding, str] = {}
    for report in outcome.reports:
        reasons |= dict.fromkeys(map(from_json, report.data["findings"]), "")
        for value in report.data["suppressed"]:
            fields = {key: said for key, said in value.items() if key != "reason"}
            reasons.setdefault(from_json(fields), value["reason"])
    folder = _folder(outcome.root)
    return [
        place(f, folder=folder, text=_text(outcome.root, f) if lines else "", reason=reasons[f])
        for f in in_order(reasons)
        if f.severity in outcome.shown
    ]


def _folder(root: Path) -> str:
    """The dataset's folder in its repository: empty where it is the root, or there is none."""
    from kbench_build.rim.worktree import repository_above  # noqa: PLC0415

    whole = root.resolve()
    repository = repository_above(whole)
    found = whole.relative_to(repository).as_posix() if repository else ""
    return "" if found == "." else found


def _text(root: Path, finding: Finding) -> str:
    """The text of the document whose key a finding is about; else nothing."""
    from kbench_build.rim.task_files import read_text  # noqa: PLC0415
    from kbench_build.rules.places import names_key  # noqa: PLC0415

    return read_text(root / finding.file, _MOST_BYTES) if names_key(finding) else ""


def _fails(reports: Iterable[Report], fail_on: str) -> bool:
    bad = () if fail_on == "never" else _down_to(fail_on)
    return any(f["severity"] in bad for report in reports for f in report.data["findings"])


# The formats: each gives the lines to print.


def _summary(outcome: Outcome) -> str:
    from kbench_build.rules.findings import from_json, summary  # noqa: PLC0415

    found = [from_json(f) for report in outcome.reports for f in report.data["findings"]]
    answered = sum(len(report.data["suppressed"]) for report in outcome.reports)
    tasks = outcome.tasks
    return f"{summary(found, answered)} in {tasks:,} task{'' if tasks == 1 else 's'}"


def _as_text(outcome: Outcome) -> Iterator[str]:
    from kbench_build.rules.outline import outline  # noqa: PLC0415

    for kind, text in outline(_placed(outcome), outcome.not_checked):
        yield _styled(kind, text)
    yield click.style(_summary(outcome), bold=True)


def _styled(kind: "Kind", text: str) -> str:
    if kind in _COLOURS:
        return f"  {click.style(f'{kind:<8}', fg=_COLOURS[kind])} {text}"
    if kind == "file":
        return click.style(text, bold=True)
    return click.style(f"{'':11}{text}" if kind == "mend" else text, dim=True)


def _as_json(outcome: Outcome) -> Iterator[str]:
    value: dict[str, Any] = {
        "version": _FORMAT_VERSION,
        "tool": {"name": "kbench-build", "version": __version__},
        "folder": _folder(outcome.root),
        "summary": _summary(outcome),
        "subjects": [
            {
                "subject": report.subject,
                "ok": report.ok,
                "summary": report.summary,
                **report.data,
                "findings": [f for f in report.data["findings"] if f["severity"] in outcome.shown],
            }
            for report in outcome.reports
        ],
    }
    yield json.dumps(value, indent=2)


def _as_sarif(outcome: Outcome) -> Iterator[str]:
    from collections import Counter  # noqa: PLC0415

    from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS  # noqa: PLC0415
    from kbench_build.rules.dataset_checks import DATASET_CHECKS  # noqa: PLC0415
    from kbench_build.rules.sarif import sarif_log  # noqa: PLC0415

    counted = Counter(outcome.not_checked).most_common()
    log = sarif_log(
        (*TASK_CHECKS, *BASE_CHECKS, *DATASET_CHECKS),
        _placed(outcome, lines=True),
        version=__version__,
        notes=[
            f"not checked ({number} of {outcome.tasks} tasks): {said}" for said, number in counted
        ],
        docs=outcome.docs,
    )
    yield json.dumps(log, indent=2)


def _as_github(outcome: Outcome) -> Iterator[str]:
    from kbench_build.rules.annotations import commands  # noqa: PLC0415

    yield from commands(_placed(outcome, lines=True), _summary(outcome))


_FORMATS = {"text": _as_text, "json": _as_json, "sarif": _as_sarif, "github": _as_github}
