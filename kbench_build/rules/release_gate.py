"""What stands against a release: evidence, names, and what the version says.

Promises: everything at once, each as a finding with its own rule and message. Pure: the reports,
the digests they should have been made from and the earlier releases come in as values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from kbench_build.model import FileEntry, Finding, Report
from kbench_build.rules.changes import Changes
from kbench_build.rules.findings import printable
from kbench_build.rules.versions import Version, bump_between, is_too_small, least_version

Reports = Mapping[str, Mapping[str, Report]]
Expected = Mapping[str, Mapping[str, str]]

CONFIG = "kbench.toml"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WHY: Mapping[str, str] = {
    "major": "tasks were removed or edited in a way that affects scores",
    "minor": "tasks were added",
    "patch": "files changed",
}


def unproved(
    require: Iterable[str], reports: Reports, expected: Expected, tasks: frozenset[str]
) -> Iterator[Finding]:
    """Required evidence that is missing, stale, or says no.

    `expected` holds, for every step and every subject that it applies to, the digest of the inputs
    as they are now. `tasks` are the subjects that are tasks.
    """
    for step in require:
        for subject, inputs in sorted(expected.get(step, {}).items()):
            problem = _problem(step, subject, reports.get(step, {}).get(subject), inputs)
            if problem:
                rule, message, mend = problem
                file = f"tasks/{subject}" if subject in tasks else "."
                yield finding(rule, file, message, mend)


def _problem(
    step: str, subject: str, report: Report | None, inputs: str
) -> tuple[str, str, str] | None:
    again = f"Run `doit '{step}:{subject}'`."
    if report is None:
        return f"release/{step}-missing", f"{step} was never run for {subject}", again
    if report.inputs != inputs:
        text = f"{step} of {subject} is stale: what it looked at has changed since"
        return f"release/{step}-stale", text, again
    if report.ok:
        return None
    errors = [f for f in report.data.get("findings", ()) if f.get("severity") == "error"]
    if step == "validate" and errors:
        number = f"{len(errors)} finding{'s' if len(errors) > 1 else ''} of severity error"
        first = f"{errors[0].get('file')}: {errors[0].get('message')}"
        text = f"{subject} has {number}; the first: {printable(first)}"
        return "release/error-findings", text, f"See `doit '{step}:{subject}'`, and mend them."
    text = f"{step} of {subject} failed: {printable(report.summary)}"
    return f"release/{step}-failing", text, f"See `doit '{step}:{subject}'`, and mend the task."


def nothing_to_release(tasks: Iterable[str]) -> Iterator[Finding]:
    """A dataset without a task."""
    if not tuple(tasks):
        mend = "Add a task: a folder below tasks/ with a task.toml."
        yield finding("release/no-tasks", "tasks", "there is no task to release", mend)


def unusable_name(name: str) -> Iterator[Finding]:
    """Whether the dataset's name can't be the name of a folder and of a Harbor dataset."""
    if not _NAME.fullmatch(name) or ".." in name:
        yield finding(
            "release/name",
            CONFIG,
            f"{printable(name)!r} can't be the name of a release",
            "Use letters, digits, '.', '_' and '-' in [dataset] name.",
        )


def unusable_files(files: Iterable[FileEntry]) -> Iterator[Finding]:
    """Files whose names can't be written in a list of digests."""
    for entry in files:
        if not entry.path.isprintable() or "\\" in entry.path:
            yield finding(
                "release/file-name",
                printable(entry.path),
                "the name holds a control character, a backslash or bytes that aren't UTF-8, "
                "so it can't stand in a list of digests",
                "Rename the file.",
            )


def not_moved(
    version: Version, content: str, newest: Version | None, newest_content: str
) -> Iterator[Finding]:
    """A version that isn't later than the newest release. The same one again may be made anew."""
    if newest is None or version.is_later_than(newest):
        return
    is_same_again = content == newest_content and not newest.is_later_than(version)
    if is_same_again:
        return
    changed = "the content changed since" if content != newest_content else "there is already"
    yield finding(
        "release/version-behind",
        CONFIG,
        f"{changed} release {newest.text}, but version {version.text} doesn't come after it",
        f"Set [dataset] version to at least {least_version(newest, 'patch')}.",
    )


def taken(folder: str, version: str) -> Finding:
    """The version exists with other content."""
    return finding(
        "release/version-taken",
        folder,
        f"version {version} is released already, with other content; a release is never modified",
        "Raise [dataset] version in kbench.toml.",
    )


def too_small(old: Version, new: Version, changes: Changes) -> Iterator[Finding]:
    """A version that moved less than the changes call for."""
    if not is_too_small(old, new, changes.least_bump):
        return
    moved = bump_between(old, new)
    yield finding(
        "release/bump-too-small",
        CONFIG,
        f"{old.text} → {new.text} is a {moved} step, but {_WHY[changes.least_bump]}: "
        f"{_examples(changes)}",
        f"Set [dataset] version to at least {least_version(old, changes.least_bump)}.",
    )


def _examples(changes: Changes) -> str:
    tasks = changes.tasks
    scored = [f"{t.id} changed ({', '.join(t.parts)})" for t in tasks.changed if t.affects_scores]
    others = [f"{t.id} changed" for t in tasks.changed if not t.affects_scores]
    named = [
        *(f"{t} removed" for t in tasks.removed),
        *scored,
        *(f"{t} added" for t in tasks.added),
        *others,
        *(f"{path} changed" for path in changes.other_files.all()),
    ]
    rest = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return ", ".join(named[:3]) + rest


def finding(rule: str, file: str, message: str, mend: str) -> Finding:
    """A finding of severity error."""
    return Finding(rule=rule, severity="error", file=file, message=message, mend=mend)


def note(rule: str, file: str, message: str, mend: str) -> Finding:
    """A finding of severity note."""
    return Finding(rule=rule, severity="note", file=file, message=message, mend=mend)
