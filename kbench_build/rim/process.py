"""The one door to processes: an argument list, a time limit, and both streams kept on failure."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbench_build.errors import KbenchError


@dataclass(frozen=True, kw_only=True)
class Completed:
    """What a process that ended with exit code 0 (or an accepted one) printed."""

    code: int
    stdout: bytes
    stderr: bytes


class ProcessError(KbenchError):
    """A process couldn't start, ran out of time or failed: the command, code and streams."""

    def __init__(
        self, argv: Sequence[str], reason: str, *, code: int | None, stdout: bytes, stderr: bytes
    ) -> None:
        """`reason` completes the sentence "`command` …"."""
        self.argv = tuple(argv)
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        said = (stderr or stdout).decode("utf-8", "replace").strip()
        tail = f": {said[-2000:]}" if said else ""
        super().__init__(f"`{shlex.join(argv)}` {reason}{tail}")


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    accept: Sequence[int] = (0,),
) -> Completed:
    """Run a program to its end, at most `timeout` seconds. `env` replaces the environment whole.

    Raises `ProcessError` for an exit code outside `accept`, a time-out, or a program that isn't
    there. Standard input is empty unless given.
    """
    try:
        done = subprocess.run(  # noqa: PLW1510 - the code is checked below, against `accept`
            argv, cwd=cwd, env=env, input=stdin or b"", capture_output=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessError(
            argv,
            f"didn't end within {timeout:g} s",
            code=None,
            stdout=error.stdout or b"",
            stderr=error.stderr or b"",
        ) from None
    except OSError as error:
        reason = f"couldn't start: {error.strerror}"
        raise ProcessError(argv, reason, code=None, stdout=b"", stderr=b"") from error
    if done.returncode not in accept:
        reason = f"ended with exit code {done.returncode}"
        raise ProcessError(
            argv, reason, code=done.returncode, stdout=done.stdout, stderr=done.stderr
        )
    return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
