"""The `kbench` command: what readers of a release need, and what changes a dataset's files.

What is a function of files is `doit`'s. Exit codes: 0 fine, 1 findings or files that differ, 2 a
call or a set-up that can't be used, 130 interrupted.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from kbench_build import __version__
from kbench_build.errors import KbenchError

_ROOT = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The dataset's root (default: the current folder).",
)
_FORMAT = click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write the result.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kbench")
def cli() -> None:
    """Check releases of benchmarks, and keep a dataset's tasks current.

    What is built from files is built by doit: try `doit list` in a dataset's root.
    """


@cli.command()
@click.argument("releases", nargs=-1, type=click.Path(path_type=Path))
@click.option("--images", is_flag=True, help="Also look at the images that the engine holds.")
@_ROOT
@_FORMAT
def verify(releases: tuple[Path, ...], images: bool, root: Path, style: str) -> None:
    """Check releases: every checksum, digest and piece of evidence.

    RELEASES are release folders, wherever they were moved to; nothing else is needed. Without one,
    the releases in dist/ are checked.
    """
    from kbench_build.steps.verify import verify as check  # noqa: PLC0415 - only when asked for

    folders = releases or _releases(root)
    labels = _image_labels() if images else None
    reports = {folder: check(folder, labels=labels) for folder in folders}
    if style == "json":
        found = [{"release": str(f), "ok": r.ok, **r.data} for f, r in reports.items()]
        click.echo(json.dumps(found, indent=2, sort_keys=True))
    else:
        for folder, report in reports.items():
            _show(folder, report.ok, report.summary, report.data)
    sys.exit(0 if all(report.ok for report in reports.values()) else 1)


def _releases(root: Path) -> list[Path]:
    dist = root / "dist"
    found = sorted(p for p in dist.glob("[!.]*") if p.is_dir()) if dist.is_dir() else []
    if not found:
        raise KbenchError(f"{dist}: no release here: name a release's folder")
    return found


def _image_labels() -> Callable[[str], Mapping[str, str] | None]:
    from kbench_build.rim.engines import connect  # noqa: PLC0415

    held = connect("docker").images()
    return lambda name: held[name].labels if name in held else None


def _show(folder: Path, ok: bool, summary: str, data: Mapping[str, Any]) -> None:
    click.echo(f"{click.style('ok' if ok else 'failed', fg='green' if ok else 'red')}  {summary}")
    for finding in data["findings"]:
        spot = ": ".join(part for part in (finding["file"], finding["where"]) if part)
        click.echo(f"    {finding['severity']}: {spot}: {finding['message']}")
    if ok:
        tarball = next(folder.glob("*.tar.zst"))
        click.echo(f"    tarball  {tarball}\n    content  blake3:{data['content']}")


@cli.command()
@click.argument("tasks", nargs=-1)
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file differs.")
@click.option(
    "--repository",
    type=click.Path(exists=True, path_type=Path),
    help="A repository or bundle that holds the base commits (default: the generated bundles).",
)
@_ROOT
def sync(tasks: tuple[str, ...], check: bool, repository: Path | None, root: Path) -> None:
    """Renew the files that all tasks share, and what verify.json takes from upstream.

    TASKS are ids; without one, every task of the dataset.
    """
    from kbench_build.rim.dataset import open_dataset  # noqa: PLC0415
    from kbench_build.steps.sync import sync as renew  # noqa: PLC0415

    known = open_dataset(root).tasks
    _known(tasks, known)
    done = renew(root, tasks or known, check=check, repository=repository)
    for result in done:
        for path in result.changed:
            click.echo(f"{'differs' if check else 'written'}  tasks/{result.task}/{path}")
        if result.note:
            click.echo(f"note     tasks/{result.task}: {result.note}")
        for finding in result.findings:
            click.echo(f"{finding.severity:<8} {finding}")
    changed = sum(bool(result.changed) for result in done)
    click.echo(f"{changed} of {len(done)} tasks {'differ' if check else 'renewed'}")
    problems = any(f.severity == "error" for result in done for f in result.findings)
    sys.exit(1 if problems or (check and changed) else 0)


def _known(tasks: Iterable[str], known: Iterable[str]) -> None:
    for task in tasks:
        if task not in known:
            raise KbenchError(f"tasks/{task}: no such task")


@cli.command()
def engine() -> None:
    """Say which container engine answers; exit 2 where none does."""
    from kbench_build.rim.engines import connect  # noqa: PLC0415
    from kbench_build.rim.engines.address import engine_address  # noqa: PLC0415

    images = connect("docker").images()
    click.echo(f"the engine at {engine_address()} answers and holds {len(images)} tagged images")


def main() -> None:
    """Run the command; the door for `[project.scripts]`."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KbenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
