"""The `kbench` command: what needs no graph, and what changes a dataset's files.

What is a function of files is `doit`'s. Exit codes: 0 fine, 1 findings or files that differ, 2 a
call or a set-up that can't be used, 130 interrupted.
"""

import difflib
import sys
from importlib import import_module

import click

from kbench_build import __version__
from kbench_build.errors import KbenchError

# A module of `commands/` each.
_NAMES = ("affected", "clean", "engine", "harden", "init", "mine", "sync", "validate", "verify")


class _Commands(click.Group):
    """The commands, of which only the one that is called is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        del ctx
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        del ctx
        if cmd_name not in _NAMES:
            return None
        module = import_module(f"kbench_build.commands.{cmd_name}")
        return getattr(module, cmd_name)  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called, or one that may be meant."""
        near = difflib.get_close_matches(args[0], _NAMES, n=1)
        if near and args[0] not in _NAMES:
            ctx.fail(f"there is no command {args[0]!r}; is {near[0]!r} meant?")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kbench")
def cli() -> None:
    """Adopt, check and mine datasets, keep their tasks current, and check releases.

    What is built from files is built by doit: try `doit list` in a dataset's root.
    """


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
