"""The `kbench` command: what touches a changing world, and what readers of a release need.

Exit codes: 0 fine, 1 findings, 2 a call or set-up that can't be used, 130 interrupted.
"""

import sys
from pathlib import Path

import click

from kbench_build import __version__
from kbench_build.errors import KbenchError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kbench")
def cli() -> None:
    """Build, check and release benchmarks for coding agents.

    What is a function of files is built by `doit` (try `doit list` in a dataset's root).
    """


@cli.command()
@click.argument(
    "releases", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
def verify(releases: tuple[Path, ...]) -> None:
    """Check releases against themselves: every checksum, digest and piece of evidence.

    RELEASES are release folders; without one, every release in dist/ is checked. Only the folder
    is needed, not the dataset it was made from.
    """


def main() -> None:
    """Run the command; the door for `[project.scripts]`."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KbenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
