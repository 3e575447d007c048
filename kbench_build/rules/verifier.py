"""Checks of the shipped verifier in a task: the same bytes as everywhere, and its data agrees."""

from collections.abc import Iterator, Mapping
from typing import Any

from kbench_build.rules.content import DOCKERFILE, FIX, TASK, TEST_PATCH, VERIFY, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.patches import FilePatch
from kbench_build.rules.recipes import base_commit
from kbench_build.rules.tables import table
from kbench_build.runtime.verify_checkout import Globs

_GIT_MODES = frozenset({"100644", "100755", "120000"})


def _shipped(task: Content) -> Iterator[Spot]:
    for path, wanted in sorted(task.around.shipped.items()):
        if path not in task.files:
            yield Spot(file=path, message="is missing; it is the same in every task")
        elif path in task.data and task.data[path] != wanted:
            yield Spot(
                file=path, message="differs from the shipped one, which is the same everywhere"
            )


def _commit(task: Content) -> Iterator[Spot]:
    ours, theirs = base_commit(task.config), (task.verify or {}).get("base_commit")
    if ours and theirs and ours != theirs:
        message = f"is {theirs}, but {TASK} says {ours}"
        yield Spot(file=VERIFY, where="base_commit", message=message)


def _timeout(task: Content) -> Iterator[Spot]:
    inner = (task.verify or {}).get("timeout_sec")
    outer = table(task.config, "verifier").get("timeout_sec", 600.0)
    if isinstance(inner, int | float) and isinstance(outer, int | float) and inner >= outer:
        message = f"is {inner:g}, not less than the {outer:g} s of [verifier] in {TASK}"
        yield Spot(file=VERIFY, where="timeout_sec", message=message)


def _workdir(task: Content) -> Iterator[Spot]:
    workdir = (task.verify or {}).get("workdir")
    named = [i for i in task.dockerfile or () if i.name == "WORKDIR"]
    if not named or not isinstance(workdir, str):
        return
    last = named[-1].arguments.strip("\"'").rstrip("/")
    if last.startswith("/") and "$" not in last and last != workdir.rstrip("/"):
        message = f"is {workdir}, but {DOCKERFILE} ends in WORKDIR {last}"
        yield Spot(file=VERIFY, where="workdir", message=message)


def _hidden(task: Content) -> Iterator[Spot]:
    hidden = _hidden_of(task)
    if hidden is None or task.test is None:
        return
    touched = set(task.test.paths)
    for path in sorted(touched - set(hidden)):
        yield Spot(
            file=VERIFY, where="hidden", message=f"lacks {path!r}, which {TEST_PATCH} touches"
        )
    for path in sorted(set(hidden) - touched):
        yield Spot(
            file=VERIFY, where="hidden", message=f"names {path!r}, which {TEST_PATCH} doesn't touch"
        )


def _hidden_of(task: Content) -> Mapping[str, Any] | None:
    if task.verify is None or task.has_misfits(VERIFY):
        return None
    value = task.verify.get("hidden")
    return value if isinstance(value, Mapping) else None


def _blobs(task: Content) -> Iterator[Spot]:
    hidden = _hidden_of(task)
    if hidden is None or task.test is None:
        return
    for file in task.test.files:
        for path, side, written in _sides(file):
            entry = hidden.get(path)
            recorded = entry.get(side) if isinstance(entry, Mapping) else None
            if isinstance(entry, Mapping) and not _agree(recorded, written):
                message = f"{side} is {recorded}, but {TEST_PATCH} says {_shown(written)}"
                yield Spot(file=VERIFY, where=f"hidden[{path!r}]", message=message)


_Side = tuple[str | None, str | None] | None


def _sides(file: FilePatch) -> Iterator[tuple[str, str, _Side]]:
    """(path, side, (mode, blob id) as the patch has it, or None for no file).

    Of a file that was moved or copied its own patch doesn't say whether the old one is left.
    """
    if file.old is not None:
        yield file.old, "base", (file.old_mode, file.old_blob)
        if file.new is None:
            yield file.old, "after", None
    if file.new is not None:
        yield file.new, "after", (file.new_mode or file.old_mode, file.new_blob)
        if file.new != file.old:
            yield file.new, "base", None


def _agree(recorded: str | None, written: _Side) -> bool:
    """Whether `mode blob` agrees with what the patch says; ids in patches may be cut short."""
    if recorded is None or written is None:
        return recorded is None and written is None
    mode, _, blob = recorded.partition(" ")
    same_mode = written[0] not in _GIT_MODES or mode == written[0]
    return same_mode and (written[1] is None or blob.startswith(written[1]))


def _shown(written: _Side) -> str:
    return "none" if written is None else " ".join(part or "?" for part in written)


def _undone(task: Content) -> Iterator[Spot]:
    if task.verify is None or task.fix is None or task.has_misfits(VERIFY):
        return
    protected = Globs(table(task.verify, "protected").get("globs", []))
    hidden = _hidden_of(task) or {}
    for file in task.fix.files:
        for path in file.paths:
            if path not in hidden and protected.matches(path):
                message = f"{path!r} matches protected.globs, so its change is undone"
                yield Spot(file=FIX, where=f"line {file.line}", message=message)


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="verifier/shipped",
        severity="error",
        why="One verifier for all tasks can be proven sound once; an edited copy can't.",
        mend="Run `kbench sync`; what is to vary belongs in tests/verify.json.",
        find=_shipped,
        forms=("shipped",),
    ),
    Check(
        id="verifier/base-commit",
        severity="error",
        why="The verifier puts hidden files back from this commit.",
        mend="Write the same full commit id in both files.",
        find=_commit,
    ),
    Check(
        id="verifier/hidden",
        severity="error",
        why="The verifier restores and checks these files and no others.",
        mend="Run `kbench sync`.",
        find=_hidden,
    ),
    Check(
        id="verifier/blobs",
        severity="error",
        why="A hidden file with other content than its patch says means a patch that was damaged.",
        mend="Run `kbench sync`; if it still differs, make the patch again from the base commit.",
        find=_blobs,
    ),
    Check(
        id="verifier/fix-undone",
        severity="error",
        why="The verifier puts protected files back to the base, gold patch or not.",
        mend="Narrow protected.globs in tests/verify.json: a glob with ! in front takes paths out.",
        find=_undone,
    ),
    Check(
        id="verifier/timeout",
        severity="warning",
        why="Only a test command that is stopped first can be reported as a time-out.",
        mend="Give the test command less time than the verifier.",
        find=_timeout,
    ),
    Check(
        id="verifier/workdir",
        severity="error",
        why="The agent and the verifier must work on the same checkout.",
        mend="Write the same folder in both files.",
        find=_workdir,
    ),
)
