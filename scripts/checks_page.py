"""Write docs/checks.md from the checks themselves; with --check, only say whether it is current."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS  # noqa: E402 - see above
from kbench_build.rules.dataset_checks import DATASET_CHECKS  # noqa: E402
from kbench_build.rules.findings import Check  # noqa: E402

PAGE = ROOT / "docs" / "checks.md"

_INTRODUCTION = """# Checks

What `kbench validate` and `doit validate` look for, and why. Nothing of a task is run for it. This
page is made from the checks themselves (`python scripts/checks_page.py`), so it is complete.

    kbench validate                                        # the dataset in this folder
    kbench validate ../other 'acme_*'                      # some tasks of another one
    kbench validate --format sarif > kbench.sarif          # for code scanning; also json, github

A finding names its rule, the file and the place in it, what is wrong and how to mend it. There are
three severities: an **error** makes a task unusable or its results wrong, and fails the run; a
**warning** is a likely defect, or one whose weight the maintainer must judge; a **note** is good to
know.

## Forms of tasks

A check says nothing of a task that it isn't for. There are three forms:

- *shipped*: graded by the verifier that this project ships; `tests/verify.json` is its data;
- *own*: has expected tests or a hidden patch, and a `test.sh` of its own;
- *plain*: any other Harbor task. Which of its tests decide isn't known, nor where its repository
  stands, so the checks of expected tests and hidden patches are silent.

What couldn't be checked of a task is said too, under `not_checked` in its report: a sentence each.

## Upstream

Checks marked *with the upstream* try the patches on the base commit itself. They need the
repository that the task was cut from: in the folder that `--upstream` or `mirrors` of `[upstream]`
names, as a bundle that a base is made from, or by its URL where `fetch = true` allows that. With it
the checks of the statement get sharper as well: they see which names the base knows.

## Findings that stand

Some findings are meant to be. Answer for them in `kbench.toml`; they are then listed with the
reason, in every report and format, and fail nothing.

    [[suppress]]
    rule = "statement/fix-name"          # a rule, or a pattern such as "layout/*"
    task = "acme_adder-7"                # a task, a pattern, or "@dataset"
    reason = "the issue itself asks for a function of this name"

What is found of the dataset as a whole, such as one change under two ids, may be answered for by
`@dataset` or by the task in whose folder it is found.
"""

# Family → (title, what it is about), in the order of the page.
FAMILIES: Mapping[str, tuple[str, str]] = {
    "layout": ("Layout", "The task's folder: what must be there, what has no business there."),
    "document": ("Documents", "Files that people and tools write: they parse and fit the schema."),
    "task": ("task.toml", "What Harbor reads of a task."),
    "provenance": ("Provenance", "Where a task comes from, and on what terms."),
    "network": ("Network", "What an agent can reach while it works."),
    "statement": (
        "Statement",
        "The instruction, held against the fix and the hidden tests: what it gives away, and what"
        " it keeps from whoever is to solve the task. A name that tests need and an example that a"
        " user would write are part of a fair statement, and no finding.",
    ),
    "patch": ("Patches", "The gold patch and the hidden patch: can git take them, and on what."),
    "expected": ("Expected tests", "Which tests decide, and whether they can tell a solution."),
    "quarantine": ("Quarantine", "Tests that run and decide nothing, since they are unstable."),
    "recipe": ("Recipes", "What the task's image is made from."),
    "bases": ("Bases", "The shared images, and the recipes that make them."),
    "manifest": ("Manifest", "The lines of `bases/manifest`."),
    "leak": ("Leaks", "The fix, in reach of whoever is to find it."),
    "verifier": ("Verifier", "What decides the reward: can it be fooled, does it fail closed."),
    "duplicate": ("Duplicates", "One change twice, and ids that stand for two things."),
    "dataset": ("Dataset", "The folder around the tasks."),
    "suppress": ("Suppressions", "The findings that a maintainer answers for."),
}

# Rules that no check stands for: (id, severity, what is wrong). By family of this page, or by step.
OTHERS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "manifest": (
        ("manifest/line", "error", "A line isn't `repo base-tag dockerfile`, or stands twice."),
        ("manifest/unterminated", "warning", "The last line has no newline: scripts skip it."),
    ),
    "bases": (("bases/inputs", "error", "An entry of `inputs.toml` can't be used as it stands."),),
    "leak": (
        ("leak/file", "error", "A file of some layer is as the fix or the hidden tests leave it."),
        ("leak/lines", "error", "A file of some layer holds lines that only the fix adds."),
        ("leak/compiled", "error", "A compiled file holds names and texts that only the fix adds."),
        (
            "leak/repository",
            "error",
            "Git objects of the fix, or of another repository, in a layer.",
        ),
        ("leak/pack", "error", "A pack or bundle of git objects in a layer."),
    ),
    "verifier": (
        (
            "verifier/sabotage",
            "error",
            "An agent without a solution got a reward, as `doit sabotage` tried it in the engine.",
        ),
    ),
    "suppress": (
        (
            "suppress/unused",
            "warning",
            "A suppression answers for nothing, though all that it may be for was checked. Those"
            " for one task are named in its report, those for several where `kbench validate` looks"
            " at all tasks.",
        ),
    ),
    "`kbench sync`": (
        ("verifier/submodule", "error", "The hidden patch changes a submodule."),
        ("verifier/copied-from", "error", "The hidden patch copies a file that it doesn't change."),
        (
            "verifier/free-build-file",
            "warning",
            "An agent may change a file that steers the build.",
        ),
    ),
    "`kbench harden`": (
        ("harden/refused", "error", "A line isn't recognised, so the task is left as it is."),
        ("harden/no-upstream", "error", "No repository at hand holds the base commit."),
        ("harden/environment", "note", "Variables that a foreign image sets aren't known."),
        ("harden/warm-up", "note", "The build that warms the caches may fail unnoticed."),
        ("harden/installation", "note", "An installation that could fail unnoticed stops builds."),
        ("harden/outside", "note", "The tests are given a file that an agent can change."),
    ),
    "`doit seal`": (
        ("seal.repository", "error", "`.git` isn't a folder of the checkout's own."),
        ("seal.base", "warning", "The base commit isn't known as a full id."),
        ("seal.checkout", "error", "There is no checkout where the task says."),
        ("seal.name", "error", "A name in `.git` that no sealed repository has."),
        ("seal.head", "error", "HEAD isn't the base commit."),
        ("seal.ref", "error", "A ref too many, or one that isn't the base."),
        ("seal.log", "error", "A log of refs says more than that the base was checked out."),
        ("seal.config", "error", "The configuration holds what a sealed repository doesn't need."),
        ("seal.history", "error", "The history is cut off elsewhere than at the base."),
        ("seal.store", "error", "The store of objects can't be read whole."),
        ("seal.objects", "error", "The objects aren't exactly those that the base reaches."),
        ("seal.index", "error", "The index isn't the base's tree, or remembers more."),
        ("seal.tracked", "error", "A file of the base is missing or has other content."),
        ("seal.fix-id", "error", "An id of the fix stands in `.git`."),
        ("seal.fix-history", "error", "An ancestor of the base holds what the fix makes."),
        ("seal.fix-file", "error", "A file has the content that the fix or later history makes."),
        ("seal.nested", "error", "Another repository, a pack or a bundle lies in the checkout."),
        ("leak/file", "error", "A file of some layer is as the fix or the hidden tests leave it."),
        ("leak/lines", "error", "A file of some layer holds lines that only the fix brings."),
        ("leak/compiled", "error", "A file of some layer holds names that only the fix declares."),
        ("leak/repository", "error", "A repository in some layer holds objects of the fix."),
        ("leak/pack", "error", "A pack without an index, or a bundle, lies in some layer."),
    ),
    "`doit selfcheck` and `doit probe`": (
        ("tests/unstable", "error", "A test's status changes where nothing that matters did."),
        ("tests/unguarded-hunk", "warning", "No test notices that a hunk of the fix is missing."),
        ("tests/passes-without-fix", "error", "The reward is 1 without the fix."),
    ),
    "`doit release`": (
        ("release/no-tasks", "error", "There is no task to release."),
        ("release/name", "error", "The dataset's name can't be a release's."),
        ("release/version", "error", "The version is neither semantic nor dated."),
        ("release/version-behind", "error", "The version doesn't come after the newest release."),
        ("release/version-taken", "error", "The version is released already, with other content."),
        ("release/bump-too-small", "error", "The changes ask for a larger step of the version."),
        ("release/error-findings", "error", "Findings of severity error stand."),
        ("release/<step>-missing", "error", "A step that the release requires was never run."),
        ("release/<step>-stale", "error", "What a step looked at has changed since."),
        ("release/<step>-failing", "error", "A step that the release requires failed."),
        ("release/task-toml", "error", "A task.toml can't be read."),
        ("release/link", "error", "A link leads out of the dataset."),
        ("release/file-name", "error", "A file's name can't stand in a list of digests."),
        ("release/harbor-name", "warning", "Tasks without a name that Harbor accepts."),
        ("release/dataset-toml", "error", "`tasks/dataset.toml` can't be used."),
        ("release/not-a-release", "error", "Something else lies where the release belongs."),
        ("release/packed-before", "note", "Files beside tasks and bases changed since."),
        ("release/modified", "error", "A released file isn't what was released."),
    ),
    "`kbench verify`": (
        ("verify/missing", "error", "A file of the release is missing."),
        ("verify/extra-file", "warning", "A file that is no part of the release."),
        ("verify/checksum-file", "error", "A list of checksums can't be read."),
        ("verify/checksum", "error", "A file isn't what the checksums say."),
        ("verify/lock", "error", "The lock can't be read, or lacks something."),
        ("verify/lock-digest", "error", "The lock's own digests don't fit together."),
        ("verify/policy", "error", "The lock's evidence doesn't fulfil the policy that it names."),
        ("verify/document", "error", "A document isn't the one that the lock was made with."),
        ("verify/changes", "error", "The changelog is about another release, or can't be read."),
        ("verify/archive", "error", "The tarball isn't the one that the lock was made with."),
        ("verify/member", "error", "A file in the tarball isn't what the lock says."),
        ("verify/harbor", "error", "A digest of Harbor's isn't what the tarball gives."),
        ("verify/image", "error", "An image wasn't made from the lock's recipe."),
        ("verify/image-missing", "note", "The engine holds no such image, so it wasn't checked."),
    ),
}
# Who says it, where it is none of the checks' callers.
_SAID_BY = {"leak": "`doit seal`, in the engine", "verifier": "`doit sabotage`, in the engine"}
_FORMS = ("shipped", "own", "plain")


def page() -> str:
    """The whole page."""
    return "\n".join((_INTRODUCTION, *_overview(), *_checks(), *_steps()))


def _overview() -> Iterator[str]:
    yield "## Families\n"
    yield "| family | checks | what it is about |"
    yield "| --- | --- | --- |"
    for family, (title, about) in FAMILIES.items():
        number = len(_of(family)) + len(OTHERS.get(family, ()))
        short = about.partition(". ")[0].rstrip(".")
        yield f"| [{title}](#{_anchor(title)}) | {number} | {short} |"
    yield ""


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower() if c.isalnum() or c in "-_ ").replace(" ", "-")


def _of(family: str) -> list[tuple[Check[Any], str]]:
    """The checks of a family, and what each is about: a task, its base commit, the dataset."""
    kinds: tuple[tuple[Iterable[Check[Any]], str], ...] = (
        (TASK_CHECKS, "task"),
        (BASE_CHECKS, "base"),
        (DATASET_CHECKS, "dataset"),
    )
    head = f"{family}/"
    return [(c, kind) for checks, kind in kinds for c in checks if c.id.startswith(head)]


def _checks() -> Iterator[str]:
    for family, (title, about) in FAMILIES.items():
        yield f"## {title}\n\n{about}\n"
        for check, kind in _of(family):
            yield f"### {check.id}\n\n**{check.severity}** · {_scope(check, kind)}\n"
            yield f"{check.why}\n\n*Mend:* {check.mend}\n"
        for rule, severity, what in OTHERS.get(family, ()):
            said_by = _SAID_BY.get(family)
            scope = f" · {said_by}" if said_by else ""
            yield f"### {rule}\n\n**{severity}**{scope}\n\n{what}\n"


def _scope(check: Check[Any], kind: str) -> str:
    if kind == "dataset":
        return "the dataset as a whole"
    forms = [form for form in _FORMS if form in check.forms]
    tasks = f"tasks of the form {' and '.join(forms)}" if forms else "tasks of every form"
    return f"{tasks}, with the upstream" if kind == "base" else tasks


def _steps() -> Iterator[str]:
    yield "## What other steps say\n"
    yield "Findings of other commands have rules too. Each message says how to mend it.\n"
    for step, rules in OTHERS.items():
        if step not in FAMILIES:
            yield f"### {step}\n\n| rule | severity | what is wrong |\n| --- | --- | --- |"
            yield from (f"| `{rule}` | {severity} | {what} |" for rule, severity, what in rules)
            yield ""


def main() -> int:
    """Write the page, or check it."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not current:
            print(f"{PAGE.relative_to(ROOT)} isn't current: run python scripts/checks_page.py")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
