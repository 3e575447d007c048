"""`kbench mine --github`, `--pulls`, `--issues`: what a forge says, wherever it is to be had."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kbench_build.model.repository import Commit
    from kbench_build.rules.issue_records import Issues
    from kbench_build.rules.merges import Candidate, Pull
    from kbench_build.steps.ask_github import Asking


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which commits of a clone are looked at; times in seconds since 1970."""

    branch: str = ""
    since: int | None = None
    until: int | None = None


class Forge:
    """A repository's pull requests and issues: from files, from GitHub, or from an earlier run."""

    def __init__(
        self,
        clone: Path,
        folder: Path,
        repository: str,
        *,
        window: Window,
        files: tuple[Path | None, Path | None],
        ask: bool,
        keep: bool,
    ) -> None:
        """`files` are those of pull requests and issues that were named; `ask` is to ask GitHub.

        `folder` is the repository's in `mined/`, where nothing is written unless `keep`.
        """
        if files[0] and ask:
            raise click.UsageError("--pulls is in place of --github: give one")
        self._clone, self._folder, self._repository = clone, folder, repository
        self._window, self._files, self._keep = window, files, keep
        self._asking = self._ask() if ask else None
        self._told = 0

    @property
    def problems(self) -> tuple[str, ...]:
        """What GitHub wasn't heard about."""
        return tuple(self._asking.problems) if self._asking else ()

    def pulls(self) -> "tuple[Pull, ...]":
        """The pull requests that are known. What can't be read is named on standard error."""
        from kbench_build.steps.ask_github import known  # noqa: PLC0415
        from kbench_build.steps.mine import read_pulls  # noqa: PLC0415

        if self._asking is not None:
            with _busy(self._asking):
                found = self._asking.pulls(self._commits(), self._window.since)
            self._tell()
            return found
        records = read_pulls(self._files[0]) if self._files[0] else known(self._folder).pulls
        _name(self._files[0], records.problems)
        if records.pulls and not self._files[0]:
            click.echo(f"pull requests as an earlier run found them: {self._folder}", err=True)
        return records.pulls

    def issues(self, changes: "Iterable[Candidate]") -> "Issues":
        """The texts of the issues that changes close, as far as they are known."""
        from kbench_build.steps.ask_github import known, read_issue_file  # noqa: PLC0415

        if self._files[1]:
            given = read_issue_file(self._files[1])
            _name(self._files[1], given.problems)
            return given
        if self._asking is None:
            return known(self._folder).issues
        with _busy(self._asking):
            found = self._asking.issues(issue for change in changes for issue in change.issues)
        self._asking.end()
        self._tell()
        return found

    def _ask(self) -> "Asking":
        from kbench_build.rim.github import GitHub, server_and_token  # noqa: PLC0415
        from kbench_build.rim.history import origin  # noqa: PLC0415
        from kbench_build.steps.ask_github import Asking  # noqa: PLC0415

        url, token = server_and_token(origin(self._clone))
        if not token:
            click.echo("no token in GITHUB_TOKEN: GitHub answers few questions an hour", err=True)
        client = GitHub(url, token, announce=_say)
        return Asking(client, self._folder, self._repository, announce=_say, keep=self._keep)

    def _commits(self) -> "Sequence[Commit]":
        from kbench_build.rim.history import History  # noqa: PLC0415

        window = self._window
        with tempfile.TemporaryDirectory(prefix="kbench-mine-") as scratch:
            history = History(self._clone, Path(scratch) / "store")
            tip = history.tip(window.branch)
            return list(history.commits(tip, since=window.since, until=window.until))

    def _tell(self) -> None:
        """Name what GitHub wasn't heard about, each once."""
        for problem in self.problems[self._told :]:
            click.echo(f"not known: {problem}", err=True)
        self._told = len(self.problems)


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _busy(asking: "Asking") -> Iterator[None]:
    """On a terminal one line that changes; otherwise a line for each answer."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only on a terminal

    console = Console(stderr=True, highlight=False)
    with console.status("asking GitHub") as status:
        asking.announce = _updating(status)
        yield


def _updating(status: Any) -> Callable[[str], None]:
    return lambda text: status.update(f"asking GitHub: {text}")


def _name(path: Path | None, problems: Iterable[Any]) -> None:
    for problem in problems if path else ():
        click.echo(f"{path}: line {problem.line}: {problem.message}", err=True)
