"""Feeding a process: what it reads and writes, how it fails, and that none is left behind."""

import os
import sys
import time
from pathlib import Path

import pytest

from kbench_build.rim.process import ProcessError, feed

COPY = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_what_is_fed_comes_out_in_the_file(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    with (tmp_path / "out").open("wb") as out, feed(python(COPY), stdout=out) as stream:
        stream.write(data)
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_a_program_that_fails_is_an_error_with_its_stream(tmp_path: Path, size: int) -> None:
    script = "import sys; sys.stdin.close(); sys.exit('no room')"
    with (
        (tmp_path / "out").open("wb") as out,
        pytest.raises(ProcessError) as caught,
        feed(python(script), stdout=out) as stream,
    ):
        stream.write(bytes(size))
    assert caught.value.code == 1
    assert caught.value.stderr == b"no room\n"


def test_a_program_that_stops_reading_is_an_error_even_if_it_says_all_is_well(
    tmp_path: Path,
) -> None:
    with (
        (tmp_path / "out").open("wb") as out,
        pytest.raises(ProcessError),
        feed(python("import sys; sys.stdin.close()"), stdout=out) as stream,
    ):
        stream.write(bytes(5_000_000))


def test_a_program_that_isnt_there_is_an_error(tmp_path: Path) -> None:
    with (
        (tmp_path / "out").open("wb") as out,
        pytest.raises(ProcessError, match="couldn't start"),
        feed([str(tmp_path / "gone")], stdout=out),
    ):
        pass


def test_a_program_that_doesnt_end_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        (tmp_path / "out").open("wb") as out,
        pytest.raises(ProcessError, match=r"didn't end within 0\.2 s"),
        feed(python("import time; time.sleep(60)"), stdout=out, timeout=0.2),
    ):
        pass
    assert time.monotonic() - began < 20


def test_where_the_block_fails_the_program_is_killed(tmp_path: Path) -> None:
    script = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"

    def interrupted() -> None:
        with (tmp_path / "out").open("wb") as out, feed(python(script), stdout=out):
            while not (tmp_path / "out").stat().st_size:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "out").read_text(encoding="utf-8")), 0)
