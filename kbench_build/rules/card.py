"""The dataset card: the README.md of a release, made from its lock.

It says the same wherever and whenever the release is made: nothing in it comes from the machine,
the clock or the release before. Where a release proves less than it could, its first lines say so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kbench_build.rules.findings import printable
from kbench_build.rules.lock import Evidence, Lock

STEPS = ("validate", "seal", "selfcheck")

_PROVES: Mapping[str, str] = {
    "validate": "every file was checked against its schema and rules",
    "seal": "the image holds the base commit and provably nothing of the fix",
    "selfcheck": "the untouched checkout scores 0 and the gold patch scores 1",
}
_UNNAMED = "not stated"


def card(lock: Lock) -> str:
    """The whole README.md. Only what the lock knows before the tarball exists enters it."""
    return "\n".join(_lines(lock)) + "\n"


def gate(lock: Lock) -> str:
    """One sentence about what was proved, for the changelog."""
    total = len(lock.tasks)
    proved = [f"{step} {_tally(lock, step).passed} of {total}" for step in STEPS]
    return f"Proved: {', '.join(proved)}."


def _lines(lock: Lock) -> Iterator[str]:
    yield f"# {_plain(lock.name)} {_plain(lock.version)}"
    yield ""
    yield from _warnings(lock)
    if lock.description:
        yield _plain(lock.description)
        yield ""
    yield f"{len(lock.tasks)} coding tasks in the Harbor task format, on {len(lock.bases)} bases."
    yield ""
    yield f"Content hash (BLAKE3): `{lock.content}`"
    yield ""
    yield from _evidence(lock)
    yield from _licences(lock)
    yield from _suppressed(lock)
    yield from _use(lock)


def _warnings(lock: Lock) -> Iterator[str]:
    """What isn't proved: the policy's gaps, and the tasks that a step doesn't apply to."""
    gaps = [gap for step in STEPS if (gap := _gap(lock, step))]
    if gaps:
        yield "\n>\n".join(f"> {gap}" for gap in gaps)
        yield ""


def _gap(lock: Lock, step: str) -> str:
    tally, total = _tally(lock, step), len(lock.tasks)
    if step not in lock.policy.require:
        return (
            f"**This release doesn't require {step}**: that {_PROVES[step]} was shown for "
            f"{tally.passed} of {total} tasks."
        )
    if tally.absent:
        return (
            f"**{step} doesn't apply to {tally.absent} of {total} tasks**: for them nothing shows "
            f"that {_PROVES[step]}."
        )
    return ""


class _Tally:
    """How many tasks passed a step, failed it, and how many it doesn't apply to."""

    def __init__(self, evidence: Iterable[Mapping[str, Evidence | None]], step: str) -> None:
        found = [e[step] for e in evidence if step in e]
        self.passed = sum(1 for e in found if e is not None and e.ok)
        self.failed = sum(1 for e in found if e is not None and not e.ok)
        self.absent = sum(1 for e in found if e is None)


def _tally(lock: Lock, step: str) -> _Tally:
    return _Tally((task.evidence for task in lock.tasks), step)


def _evidence(lock: Lock) -> Iterator[str]:
    yield "## Evidence"
    yield ""
    yield "| step | what it proves | required | passed | failed | doesn't apply | not run |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for step in STEPS:
        tally = _tally(lock, step)
        not_run = len(lock.tasks) - tally.passed - tally.failed - tally.absent
        required = "yes" if step in lock.policy.require else "no"
        yield (
            f"| {step} | {_PROVES[step]} | {required} | {tally.passed} | {tally.failed} "
            f"| {tally.absent} | {not_run} |"
        )
    yield ""
    shared = sum(1 for task in lock.tasks if task.verifier == "shared")
    yield (
        f"{shared} of {len(lock.tasks)} tasks are graded by the shared verifier "
        f"(`{lock.verifier.digest}`), the others by their own."
    )
    yield ""


def _licences(lock: Lock) -> Iterator[str]:
    counts = Counter((t.source or _UNNAMED, t.license or _UNNAMED) for t in lock.tasks)
    yield "## Sources and licences"
    yield ""
    yield "The tasks are made from these repositories; their code keeps its licence."
    yield ""
    yield "| repository | licence | tasks |"
    yield "|---|---|---:|"
    for (source, licence), number in sorted(counts.items()):
        yield f"| {_cell(source)} | {_cell(licence)} | {number} |"
    yield ""


def _suppressed(lock: Lock) -> Iterator[str]:
    if not lock.suppressed:
        return
    yield "## Findings that stand"
    yield ""
    yield "| finding | times | the first in | reason |"
    yield "|---|---:|---|---|"
    places: dict[tuple[str, str], list[str]] = {}
    for item in lock.suppressed:
        places.setdefault((item.rule, item.reason), []).append(item.file)
    for (rule, reason), files in sorted(places.items()):
        yield f"| {_cell(rule)} | {len(files)} | {_cell(files[0])} | {_cell(reason)} |"
    yield ""


def _use(lock: Lock) -> Iterator[str]:
    yield "## Use"
    yield ""
    yield f"`{lock.folder}.tar.zst` holds one folder, `{lock.folder}/`."
    yield ""
    yield "- check it: `kbench verify <this folder>`"
    yield f"- unpack it: `tar --zstd -xf {lock.folder}.tar.zst`"
    yield f"- run an agent: `harbor run -p {lock.folder}/tasks -a <agent>`"
    yield ""
    yield f"Made by {lock.tool}."


def _plain(text: str) -> str:
    """Foreign text on one line, without marks that would begin markup."""
    return printable(text).replace("<", "&lt;")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")
