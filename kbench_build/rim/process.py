"""The one door to processes: an argument list, a time limit, and both streams kept on failure."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from kbench_build.errors import KbenchError

_OFTEN_SEC = 0.1


@dataclass(frozen=True, kw_only=True)
class Completed:
    """What a process that ended with exit code 0 (or an accepted one) printed."""

    code: int
    stdout: bytes
    stderr: bytes


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number on this machine, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
    stdout: IO[bytes] | None = None,
    accept: Sequence[int] = (0,),
) -> Completed:
    """Run a program to its end, at most `timeout` seconds. `env` replaces the environment whole.

    Raises `ProcessError` for an exit code outside `accept`, a time-out, or a program that isn't
    there. Standard input is empty unless given; `stdout` is a file for what is too much to hold.
    """
    try:
        done = subprocess.run(  # noqa: PLW1510 - the code is checked below, against `accept`
            argv,
            cwd=cwd,
            env=env,
            input=stdin or b"",
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
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
    said = done.stdout or b""
    if done.returncode not in accept:
        reason = f"ended with exit code {done.returncode}"
        raise ProcessError(argv, reason, code=done.returncode, stdout=said, stderr=done.stderr)
    return Completed(code=done.returncode, stdout=said, stderr=done.stderr)


def run_group(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: bytes,
    most_bytes: int,
    stop: Callable[[], bool] = lambda: False,
) -> Completed:
    """Run a program to its end, and end all that it started, at the latest after `timeout` seconds.

    Raises `ProcessError` as `run` does, and as soon as it has written more than `most_bytes` or
    `stop` says so.
    """
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        try:
            started = subprocess.Popen(
                argv, stdin=given, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            reason = f"couldn't start: {error.strerror}"
            raise ProcessError(argv, reason, code=None, stdout=b"", stderr=b"") from error
        reason = _end_of(started, timeout, (out, err), most_bytes, stop)
        stdout, stderr = _head(out, most_bytes), _head(err, most_bytes)
    if reason:
        code = started.returncode
        raise ProcessError(argv, reason, code=code, stdout=stdout, stderr=stderr)
    return Completed(code=0, stdout=stdout, stderr=stderr)


def _end_of(
    started: subprocess.Popen[bytes],
    timeout: float,
    written: Sequence[IO[bytes]],
    most_bytes: int,
    stop: Callable[[], bool],
) -> str:
    """Why it didn't end well; empty where it did. Nothing of the group is left afterwards."""
    until = time.monotonic() + timeout
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = started.wait(_OFTEN_SEC)
                too_much = _too_much(written, most_bytes)
                return too_much or (f"ended with exit code {code}" if code else "")
            if too_much := _too_much(written, most_bytes):
                return too_much
            if stop():
                return "was stopped"
            if time.monotonic() > until:
                return f"didn't end within {timeout:g} s"
    finally:
        with suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _too_much(written: Sequence[IO[bytes]], most_bytes: int) -> str:
    large = any(os.fstat(file.fileno()).st_size > most_bytes for file in written)
    return f"wrote more than {most_bytes} bytes" if large else ""


def _head(file: IO[bytes], size: int) -> bytes:
    file.seek(0)
    return file.read(size)
