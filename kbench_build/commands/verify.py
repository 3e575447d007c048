"""`kbench verify`: check releases, wherever they are."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from kbench_build.commands.options import FORMAT, ROOT
from kbench_build.errors import KbenchError


@click.command()
@click.argument("releases", nargs=-1, type=click.Path(path_type=Path))
@click.option("--images", is_flag=True, help="Also look at the images that the engine holds.")
@ROOT
@FORMAT
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
