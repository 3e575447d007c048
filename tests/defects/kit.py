"""What the rows of defects are made of: the kinds there are, a row, and a small dataset.

`small(folder)` makes `folder/dataset` with one sound task, graded by a test.sh of its own, whose
two patches are cut by git from a real repository, `folder/upstream/acme/adder`. A row breaks it in
one way, and its twin does what only looks like that.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbench_build.model import Finding
from kbench_build.rim.config import load_config
from kbench_build.rim.dataset import open_dataset
from kbench_build.rules.manifest import parse_manifest
from kbench_build.steps import validate
from tests.samples import BASE, SOURCE, SPEC, Sample

DATASET = "dataset"
UPSTREAM = "upstream"

# Every kind of defect that was met in real datasets, in our words. A row names one of them.
KINDS: Mapping[str, str] = {
    "passes already": "an expected test passes before the fix, under the same name",
    "renamed": "an expected test is a passing one under another name",
    "only new": "no test that failed comes to pass; only new ones do, which pass before the fix",
    "unknown name": "the hidden tests need a name that the fix alone makes up",
    "never run": "the hidden patch changes tests that the command doesn't run",
    "nobody expects": "the hidden patch adds a test that decides nothing",
    "post-image": "a patch whose text was damaged: it doesn't give the file that it promises",
    "pre-image": "a patch cut from another commit than the base",
    "fails when fixed": "a test fails with the gold patch applied",
    "unguarded": "a test that passed before may fail without anyone noticing",
    "fix beyond code": "the gold patch touches documentation or a change log",
    "tests beyond tests": "the hidden patch touches source code",
    "unlisted issue": "the instruction speaks of more issues than task.toml lists",
    "compose leftover": "a compose file names an image that nothing builds",
    "dockerfile leftover": "a copy of the base's Dockerfile lies in the task",
    "tools may be missing": "the verifier's tools come from a line that may fail unnoticed",
    "floating base": "a base stands on a tag that moves",
    "moving clone": "a base clones whatever a branch holds that day",
    "no checksum": "a base downloads a file and doesn't check what came",
    "fix in history": "the image's repository keeps branches and tags that hold the fix",
    "exit code swallowed": "the exit code that decides is that of `|| true`",
    "blocked by an honest agent": "a test added at the same place stops the hidden patch",
    # Tasks without bases, manifest or expected tests.
    "reversed fix": "the build context holds the fix, written backwards",
    "clone of the fix": "the image is made from a clone at the fixed commit",
    "crash passes": "a crash or an empty run gives the exit code of success",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A kind of defect, the rule that must find it, and what makes the defect and its twin.

    `defect` and `twin` make a dataset in an empty folder. `find` says what is found in it, where
    more than the checks that need no repository is asked.
    """

    row: str
    rule: str
    defect: Callable[[Path], object]
    twin: Callable[[Path], object]
    find: Callable[[Path], Iterable[Finding]] | None = None


def findings(folder: Path) -> tuple[Finding, ...]:
    """All that validation says of each task in `folder/dataset`, and of the dataset as a whole."""
    root = folder / DATASET
    found, config = open_dataset(root), load_config(root)
    bases, _ = parse_manifest(found.manifest)
    reports = [
        validate.validate_task(root, task, config=config, bases=bases, inputs="-")
        for task in found.tasks
    ]
    reports.append(
        validate.validate_dataset(
            root, tasks=found.tasks, manifest=found.manifest, config=config, inputs="-"
        )
    )
    return tuple(f for report in reports for f in validate.findings_of(report))


BEFORE: Mapping[str, str] = {
    SOURCE: "class Adder {\n    fun add(left: Int, right: Int) = left - right\n}\n",
    SPEC: "class AdderTest {\n"
    "    @Test\n    fun zero() = assertEquals(0, Adder().add(0, 0))\n\n"
    "    @Test\n    fun none() = assertEquals(1, Adder().add(1, 0))\n}\n",
}
FIXED: Mapping[str, str] = {
    SOURCE: "class Adder {\n    fun add(left: Int, right: Int) = left + right\n}\n",
}
TESTED: Mapping[str, str] = {
    SPEC: "class AdderTest {\n"
    "    @Test\n    fun zero() = assertEquals(0, Adder().add(0, 0))\n\n"
    "    @Test\n    fun two() = assertEquals(2, Adder().add(1, 1))\n\n"
    "    @Test\n    fun none() = assertEquals(1, Adder().add(1, 0))\n}\n",
}
PASSED_BEFORE = ("AdderTest.zero", "AdderTest.none")


def small(
    folder: Path,
    *,
    before: Mapping[str, str] = BEFORE,
    fixed: Mapping[str, str] = FIXED,
    tested: Mapping[str, str] = TESTED,
    form: str = "own",
) -> Sample:
    """A sound dataset of one task in `folder/dataset`, for a row to break.

    `before` is the repository at the base commit; `fixed` and `tested` are the files that the gold
    patch and the hidden patch change. The upstream repository's main branch holds both changes.
    """
    sample = Sample(folder / DATASET, form)
    repository = folder / UPSTREAM / "acme" / "adder"
    fix, test, base = patches(repository, before, fixed, tested)
    for path in ("task.toml", "environment/prepare.sh", "environment/Dockerfile"):
        if (sample.task / path).is_file():
            sample.write(path, (sample.task / path).read_text("utf-8").replace(BASE, base))
    sample.write("solution/fix.patch", fix)
    if form != "plain":
        sample.write("tests/test.patch", test)
        sample.write("tests/expected_tests.json", json.dumps(expected()))
    if form == "shipped":
        hidden = {path: _blobs(repository, base, path) for path in tested}
        about = {"base_commit": base, "hidden": hidden}
        sample.change("tests/verify.json", lambda value: value.update(about))
    return sample


def _blobs(repository: Path, base: str, path: str) -> dict[str, str | None]:
    """What verify.json says of a file that the hidden patch changes."""
    trees = {"base": base, "after": "HEAD"}
    found = {key: git(repository, "ls-tree", tree, "--", path) for key, tree in trees.items()}
    return {
        key: f"100644 {line.split()[2].decode()}" if line else None for key, line in found.items()
    }


def expected() -> dict[str, object]:
    """Expected tests of the task that `small` makes, with what ran before and after the fix."""
    old = sorted(PASSED_BEFORE)
    return {
        "f2p_tests": ["AdderTest.two"],
        "p2p_tests": old,
        "s2p_tests": [],
        "n2p_tests": [],
        "run_result": {"passed_tests": old, "failed_tests": [], "skipped_tests": []},
        "test_patch_result": {
            "passed_tests": old,
            "failed_tests": ["AdderTest.two"],
            "skipped_tests": [],
        },
    }


def patches(
    repository: Path, before: Mapping[str, str], fixed: Mapping[str, str], tested: Mapping[str, str]
) -> tuple[bytes, bytes, str]:
    """Make the repository; the patch of `fixed`, that of `tested`, and the base commit's id."""
    repository.mkdir(parents=True)
    git(repository, "init", "-q", "-b", "main")
    base = commit(repository, before, "Add two numbers")
    fix = commit(repository, fixed, "Add, and don't subtract")
    test = commit(repository, tested, "Test it")
    return diff(repository, base, fix), diff(repository, fix, test), base


def commit(repository: Path, files: Mapping[str, str], message: str) -> str:
    """Write the files and commit them; the commit's id."""
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text, encoding="utf-8", newline="")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD").decode().strip()


def diff(repository: Path, old: str, new: str) -> bytes:
    """The patch between two commits, with whole blob ids."""
    return git(repository, "diff", "--binary", "--full-index", old, new)


def git(repository: Path, *arguments: str) -> bytes:
    """What a git command writes, run as nobody in particular at a fixed time."""
    return subprocess.run(
        ["git", "-c", "core.autocrlf=false", *arguments],
        cwd=repository,
        check=True,
        capture_output=True,
        timeout=60,
        env={
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_NAME": "A" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "a@example.org" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": "2024-01-02T03:04:05Z" for who in ("AUTHOR", "COMMITTER")},
        },
    ).stdout
