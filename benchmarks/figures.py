"""The figures of one dataset: each prepares its ground, measures in turns, and gives rows.

A figure that can't be taken here (no b3sum, no engine) says so and gives none.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks import images, rows
from benchmarks.ground import Ground
from benchmarks.killed import killed
from benchmarks.processes import (
    DOIT,
    PROGRAMS,
    Usage,
    interleaved,
    measure,
    peak_of_all,
    pipeline,
    program,
)
from benchmarks.rows import Row

Figure = Callable[[Ground, int], Iterator[Row]]

# The sizes that the limits are set for: up to so many tasks, and from so many up.
SMALL, LARGE = 105, 5_000

_PLAIN = (*DOIT, "-f", str(PROGRAMS / "plain_dodo.py"), "-d", ".")
_THREADS = (1, 2, 4)


def digest(ground: Ground, repeats: int) -> Iterator[Row]:
    """The digests of all tasks' trees, against b3sum on the same files."""
    if not shutil.which("b3sum"):
        sys.stderr.write("digest: not measured: b3sum is missing (it is a Debian package)\n")
        return
    files = [path for path in (ground.root / "tasks").rglob("*") if path.is_file()]
    names = b"\0".join(str(path.relative_to(ground.root)).encode() for path in files)
    b3sum = partial(measure, ["xargs", "-0", "b3sum"], ground.root, stdin=names)
    ours, theirs = interleaved(repeats, partial(_tree_digest, ground), b3sum)
    size = sum(path.stat().st_size for path in files)
    yield rows.speed("tree digest", ground.tasks, ours, theirs, size=size, to="b3sum", limit=0.8)


def _tree_digest(ground: Ground) -> Usage:
    usage = measure(program("tree_digest.py", "tasks"), ground.root)
    return Usage(seconds=float(usage.output), peak_mb=usage.peak_mb)


def cold(ground: Ground, repeats: int) -> Iterator[Row]:
    """The first validation after a clone, against parsing the same JSON."""
    parse = partial(measure, program("parse_json.py", "tasks"), ground.root)
    ours, theirs = interleaved(repeats, partial(_first_validation, ground), parse)
    what, to = "`doit validate`, first", "json.loads of the same files"
    yield rows.ratio(what, ground.tasks, ours, theirs, to=to, limit=4.0)


def _first_validation(ground: Ground) -> Usage:
    ground.renew()
    return measure([*DOIT, "validate"], ground.root)


def checks(ground: Ground, repeats: int) -> Iterator[Row]:
    """All checks that need no repository in one process, against parsing the same JSON."""
    for form, root in ground.forms():
        check = partial(measure, program("checks.py", "."), root)
        parse = partial(measure, program("parse_json.py", "tasks"), root)
        ours, theirs = interleaved(repeats, check, parse)
        what, limit = f"all checks, {form} verifier", 10.0 if ground.tasks <= SMALL else None
        to = "json.loads of the same files"
        yield rows.ratio(what, ground.tasks, ours, theirs, to=to, limit=limit)


def release(ground: Ground, repeats: int) -> Iterator[Row]:
    """Tarball, lock and digests, against tar and zstd; the same bytes for all thread counts."""
    ground.validate()
    packed = ground.folder / "yardstick.tar.zst"
    tar = ["tar", "--sort=name", "-c", "tasks", "bases", "kbench.toml"]
    zstd = ["zstd", "-q", "-f", "-10", "--long=27", "-T2", "-o", str(packed)]
    yardstick = partial(pipeline, tar, zstd, ground.root)
    ours, theirs = interleaved(repeats, partial(_release, ground, 2), yardstick)
    small, to = ground.tasks <= SMALL, "tar and zstd -10 --long=27 -T2"
    limit = 2.0 if small else None
    yield rows.ratio("release", ground.tasks, ours, theirs, to=to, limit=limit)
    what = "release, less Python's start and imports"
    yield rows.ratio(what, ground.tasks, ours.started, theirs, to=to, limit=None)
    sizes = (_tarball(ground).stat().st_size, packed.stat().st_size)
    limit = 1.1 if small else None
    yield rows.sizes("release: the tarball", ground.tasks, *sizes, to=to, limit=limit)
    shutil.rmtree(ground.root / "dist")
    peak_mb = peak_of_all(program("release.py", ".", 2), ground.root)
    yield rows.at_most("release: memory", ground.tasks, peak_mb, 300, unit="MB")
    if small:
        what = "release: different tarballs from 1, 2 and 4 threads"
        yield rows.at_most(what, ground.tasks, _different(ground), 1)
    packed.unlink()


def _release(ground: Ground, threads: int) -> Usage:
    shutil.rmtree(ground.root / "dist", ignore_errors=True)
    usage = measure(program("release.py", ".", threads), ground.root)
    return Usage(seconds=usage.seconds, started_seconds=float(usage.output))


def _tarball(ground: Ground) -> Path:
    (found,) = ground.root.glob("dist/*/*.tar.zst")
    return found


def _different(ground: Ground) -> int:
    made = set()
    for threads in _THREADS:
        _release(ground, threads)
        made.add(_tarball(ground).read_bytes())
    return len(made)


def idle(ground: Ground, repeats: int) -> Iterator[Row]:
    """Nothing to do, while the engine answers and holds every image."""
    if not images.engine_answers():
        sys.stderr.write("idle: not measured: no container engine answers\n")
        return
    measure(_PLAIN, ground.root)
    with ground.all_up_to_date():
        everything, validation, walk, plain = interleaved(
            repeats,
            partial(_idle, ground),
            partial(_idle, ground, "validate"),
            partial(measure, program("walk.py", "tasks"), ground.root),
            partial(measure, _PLAIN, ground.root),
        )
    n, large = ground.tasks, ground.tasks >= LARGE
    what, to = "`doit`, up to date", "plain doit graph"
    if n <= SMALL:
        yield rows.ratio(what, n, everything, walk, to="import doit, stat walk", limit=3.0)
    else:
        yield rows.ratio(what, n, everything, plain, to=to, limit=2.5 if large else None)
    what = "`doit validate`, up to date"
    yield rows.ratio(what, n, validation, plain, to=to, limit=1.0 if large else None)
    limit = 250 if large else None
    yield rows.at_most("`doit`, up to date: memory", n, everything.peak_mb, limit, unit="MB")


def _idle(ground: Ground, *steps: str) -> Usage:
    usage = measure([*DOIT, *steps], ground.root)
    if " done" in usage.output:
        sys.exit(f"{ground.root}: something was done where all is up to date:\n{usage.output}")
    return usage


def changed(ground: Ground, repeats: int) -> Iterator[Row]:
    """One task changed, against the plain graph with the same change."""
    ground.validate()
    measure(_PLAIN, ground.root)
    path = min(ground.root.glob("tasks/*/instruction.md"))
    text = path.read_bytes()
    plain = partial(measure, _PLAIN, ground.root)
    ours, theirs = interleaved(repeats, partial(_with_change, ground, path), plain)
    path.write_bytes(text)
    limit = 1.2 if ground.tasks >= LARGE else None
    what, to = "`doit validate`, one task changed", "plain doit graph, the same change"
    yield rows.ratio(what, ground.tasks, ours, theirs, to=to, limit=limit)


def _with_change(ground: Ground, path: Path) -> Usage:
    with path.open("ab") as file:
        file.write(b"One more line.\n")
    # What changed just before a look isn't trusted by the next one, which reads it once more.
    time.sleep(0.2)
    usage = measure([*DOIT, "validate"], ground.root)
    if "1 done" not in usage.output:
        sys.exit(f"{path}: one task was changed, and this was done:\n{usage.output}")
    return usage


# In this order: each leaves the dataset as the next may find it.
FIGURES: Mapping[str, Figure] = {
    "digest": digest,
    "cold": cold,
    "checks": checks,
    "changed": changed,
    "release": release,
    "idle": idle,
    "killed": killed,
}
