"""Rows of the fix in reach: in the repository's history, backwards in the context, in a clone."""

from collections.abc import Iterable
from pathlib import Path

from kbench_build.model import Finding
from kbench_build.rules.findings import from_json
from tests.defects.kit import UPSTREAM, Row, diff, git, small
from tests.samples import Sample
from tests.seal_kit import prove, run_seal
from tests.seal_routes import Site, make_upstream


def _reversed(folder: Path) -> Sample:
    sample = small(folder, form="plain")
    back = diff(_upstream(folder), "main~1", "main~2")
    sample.write("environment/bug.patch", back)
    sample.edit("environment/Dockerfile", "WORKDIR", "COPY bug.patch /tmp/\nWORKDIR")
    return sample


def _upstream(folder: Path) -> Path:
    return folder / UPSTREAM / "acme" / "adder"


def _other_patch(folder: Path) -> None:
    sample = small(folder, form="plain")
    sample.write(
        "environment/offline.patch",
        "--- a/build.gradle\n+++ b/build.gradle\n@@ -1 +1 @@\n-online = true\n+online = false\n",
    )
    sample.edit("environment/Dockerfile", "WORKDIR", "COPY offline.patch /tmp/\nWORKDIR")


def _clones(sample: Sample, commit: str) -> None:
    clone = (
        "RUN git clone https://example.org/acme/adder /app && cd /app && "
        f"git checkout --detach {commit} && rm -rf .git"
    )
    sample.edit("environment/Dockerfile", "WORKDIR", f"{clone}\nWORKDIR")


def _commit(folder: Path, name: str) -> str:
    return git(_upstream(folder), "rev-parse", name).decode().strip()


def _clone_of_the_fix(folder: Path) -> None:
    _clones(_reversed(folder), _commit(folder, "main~1"))


def _clone_before_it(folder: Path) -> None:
    sample = small(folder, form="plain")
    _clones(sample, _commit(folder, "main~2"))


def _whole_history(folder: Path) -> Path:
    upstream = make_upstream(folder / "upstream")
    checkout = folder / "checkout"
    git(folder, "clone", "-q", "--no-local", str(upstream.folder), str(checkout))
    git(checkout, "checkout", "-q", upstream.base)
    return checkout


def _sealed(folder: Path) -> None:
    checkout = _whole_history(folder)
    base = git(checkout, "rev-parse", "HEAD").decode().strip()
    run_seal(checkout, base, "ancestors")


def _proof(folder: Path) -> Iterable[Finding]:
    """What the proof of the seal finds in `folder/checkout`, as if it lay in an image."""
    upstream = make_upstream(folder / "again")
    report = prove(Site(folder=folder / "checkout", upstream=upstream), folder / "dataset")
    return tuple(map(from_json, report.data["findings"]))


def _history(rule: str) -> Row:
    return Row(row="fix in history", rule=rule, defect=_whole_history, twin=_sealed, find=_proof)


ROWS = (
    _history("seal.ref"),
    _history("seal.objects"),
    Row(row="reversed fix", rule="leak/reversed-fix", defect=_reversed, twin=_other_patch),
    Row(
        row="clone of the fix",
        rule="leak/fixed-clone",
        defect=_clone_of_the_fix,
        twin=_clone_before_it,
    ),
)
