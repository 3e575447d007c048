"""How fast the candidates of a long history are listed and parted, against `git log -p`."""

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.processes import environment, interleaved, measure
from benchmarks.rows import Row, ratio

_COMMITS = 2_000
_FILES = 60
_LINES = 150
_BEGAN = 1_600_000_000
_MINE = (sys.executable, "-c", "from kbench_build.cli import main; main()", "mine", "--dry-run")


def mining(repeats: int) -> Iterator[Row]:
    """2,000 squashed pull requests, each of which changes a source file and its test."""
    with tempfile.TemporaryDirectory(prefix="kbench-mined-") as folder:
        clone = Path(folder)
        _make(clone)
        mine = [*_MINE, "--repository", "acme/long", str(clone)]
        ours, theirs = interleaved(
            repeats,
            partial(measure, mine, clone),
            partial(measure, ["git", "log", "-p"], clone),
        )
    what, to = f"candidates of {_COMMITS:,} commits", "git log -p"
    yield ratio(what, 0, ours, theirs, to=to, limit=3.0)


def _make(clone: Path) -> None:
    """A repository with the history, packed as a clone is."""
    run = partial(subprocess.run, cwd=clone, env=environment(), check=True, capture_output=True)
    run(["git", "init", "-q", "-b", "main"])
    run(["git", "fast-import", "--quiet"], input=b"".join(_stream()))
    run(["git", "gc", "-q"])


def _stream() -> Iterator[bytes]:
    """The history, as `git fast-import` reads it."""
    chance = random.Random(1)
    texts = {path: [_line(chance) for _ in range(_LINES)] for path in _paths()}
    sources = [path for path in texts if "/main/" in path]
    yield from _commit(0, "The first files", texts)
    for number in range(1, _COMMITS):
        source = chance.choice(sources)
        changed = [source, source.replace("/main/", "/test/").replace(".kt", "Test.kt")]
        for path in changed:
            at = chance.randrange(_LINES - 10)
            texts[path][at : at + 5] = [_line(chance) for _ in range(5)]
        yield from _commit(
            number, f"Mend part {number} (#{number})", {p: texts[p] for p in changed}
        )


def _paths() -> Iterator[str]:
    for number in range(_FILES):
        folder, name = f"org/example/part{number % 7}", f"Part{number}"
        yield f"src/main/kotlin/{folder}/{name}.kt"
        yield f"src/test/kotlin/{folder}/{name}Test.kt"


def _line(chance: random.Random) -> str:
    return f"    val value{chance.randrange(10**6)} = part.of({chance.randrange(10**9)})\n"


def _commit(number: int, title: str, files: dict[str, list[str]]) -> Iterator[bytes]:
    at = f"{_BEGAN + 3600 * number} +0000"
    yield b"commit refs/heads/main\n"
    yield f"author An Author <author@example.org> {at}\n".encode()
    yield f"committer A Forge <forge@example.org> {at}\n".encode()
    yield _data(title)
    for path, lines in files.items():
        yield f"M 100644 inline {path}\n".encode() + _data("".join(lines))


def _data(text: str) -> bytes:
    content = text.encode()
    return b"data %d\n%b\n" % (len(content), content)
