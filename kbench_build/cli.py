"""The `kbench` command: what needs no graph, and what changes a dataset's files.

What is a function of files is `doit`'s. Exit codes: 0 fine, 1 findings or files that differ, 2 a
call or a set-up that can't be used, 130 interrupted.
"""

import sys

import click

from kbench_build import __version__
from kbench_build.commands.affected import affected
from kbench_build.commands.clean import clean
from kbench_build.commands.engine import engine
from kbench_build.commands.harden import harden
from kbench_build.commands.init import init
from kbench_build.commands.mine import mine
from kbench_build.commands.sync import sync
from kbench_build.commands.validate import validate
from kbench_build.commands.verify import verify
from kbench_build.errors import KbenchError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kbench")
def cli() -> None:
    """Adopt and check datasets, keep their tasks current, and check releases of benchmarks.

    What is built from files is built by doit: try `doit list` in a dataset's root.
    """


for command in (affected, clean, engine, harden, init, mine, sync, validate, verify):
    cli.add_command(command)


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
