"""`kbench init`: make a folder of bases and tasks a dataset that doit works in."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbench_build.errors import KbenchError
from kbench_build.rim.dataset import TASKS, Dataset, open_dataset, read_task_toml
from kbench_build.rules.tables import table

if TYPE_CHECKING:
    from kbench_build.rules.starter import Adopted

_MOST_BYTES = 1 << 20


@click.command(short_help="Write dodo.py and kbench.toml beside tasks/.")
@click.argument(
    "folder",
    metavar="[DIR]",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
)
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would be written.")
def init(folder: Path, dry_run: bool) -> None:
    """Write dodo.py and kbench.toml into a folder that has tasks/ (and bases/, if any).

    Nothing else is touched, and nothing is overwritten. Afterwards plain doit works there.
    """
    from kbench_build.rim.store import write_whole  # noqa: PLC0415
    from kbench_build.rules.starter import starter  # noqa: PLC0415

    files = starter(_look(open_dataset(folder)))
    missing = _missing(folder, files)
    for name in missing:
        click.echo(f"{'would write' if dry_run else 'written'}  {folder / name}")
        if dry_run:
            click.echo("".join(f"    {line}\n" for line in files[name].splitlines()), nl=False)
        else:
            write_whole(folder / name, files[name].encode("utf-8"))
    click.echo(_NEXT if missing else "nothing to do: dodo.py and kbench.toml are there")


_NEXT = """next     doit list; doit validate
advice   .kbench/ (reports), dist/ (releases) and __pycache__/ belong in .gitignore"""


def _missing(folder: Path, files: Mapping[str, str]) -> list[str]:
    """The files that aren't there yet; a `KbenchError` for one that is there and differs."""
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    for name in there:
        if _text(folder / name) != files[name]:
            raise KbenchError(
                f"{folder / name}: is there already and differs from what init would write;"
                " nothing was written: keep it and write the other file yourself"
                " (docs/adopt.md shows both), or move it away"
            )
    return [name for name in files if name not in there]


def _look(dataset: Dataset) -> "Adopted":
    from kbench_build.rules.dockerfile import images, parse_dockerfile  # noqa: PLC0415
    from kbench_build.rules.manifest import parse_manifest  # noqa: PLC0415
    from kbench_build.rules.starter import Adopted  # noqa: PLC0415

    documents = {task: _document(dataset.root, task) for task in dataset.tasks}
    recipes = {
        task: _text(dataset.root / TASKS / task / "environment" / "Dockerfile")
        for task in dataset.tasks
    }
    named = (table(document, "environment").get("docker_image") for document in documents.values())
    sources = (table(d, "metadata", "source") for d in documents.values())
    return Adopted(
        folder=dataset.root.resolve().name,
        bases=parse_manifest(dataset.manifest)[0],
        froms=[image for text in recipes.values() for image in images(parse_dockerfile(text))],
        tasks=len(dataset.tasks),
        with_image=sum(map(bool, recipes.values())) + sum(map(bool, named)),
        with_base_commit=sum(isinstance(s.get("base_commit"), str) for s in sources),
    )


def _document(root: Path, task: str) -> Mapping[str, Any]:
    """A task's `task.toml`; nothing where it can't be read, which validation says."""
    try:
        return read_task_toml(root, task)
    except KbenchError:
        return {}


def _text(path: Path) -> str:
    from kbench_build.rim.task_files import read_text  # noqa: PLC0415

    return read_text(path, _MOST_BYTES)
