"""Which files the verifier ships, and what `verify.json` must say of an upstream repository.

Promises: values in, values out; the globs mean here what they mean inside a task, since the matcher
is the one that ships. Leaves asking git to the caller (`steps.sync`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kbench_build.model import Finding
from kbench_build.rules.patches import FilePatch, Patch
from kbench_build.runtime.verify_checkout import Globs

BUILD_FILES = (
    "**/build.gradle",
    "**/build.gradle.kts",
    "**/settings.gradle",
    "**/settings.gradle.kts",
    "**/gradle.properties",
    "**/pom.xml",
    "**/gradlew",
    "**/gradle/wrapper/**",
    "**/buildSrc/**",
    "**/.mvn/**",
)
_LINK = "120000"
_KINDS = ("100644", "100755", _LINK)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A path that a patch touches: "mode id" before and after, None where there is no file.

    The id is followed by "crlf" where a checkout of the file has CRLF line ends.
    """

    path: str
    before: str | None
    after: str | None


def parse_raw(output: bytes) -> tuple[Change, ...]:
    """The changes in the output of `git diff-index --raw -z --no-renames --no-abbrev`."""
    fields = output.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return tuple(_change(head, path) for head, path in zip(fields[::2], fields[1::2], strict=True))


def _change(head: str, path: str) -> Change:
    old_mode, new_mode, old, new, _ = head.removeprefix(":").split(" ")
    return Change(path=path, before=_side(old_mode, old), after=_side(new_mode, new))


def _side(mode: str, object_id: str) -> str | None:
    return None if mode == "000000" else f"{mode} {object_id}"


def line_ends(attributes: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """From `git check-attr -z text eol`: paths with CRLF in a checkout; paths with it if text."""
    fields = attributes.decode("utf-8", "surrogateescape").split("\0")[:-1]
    said: dict[str, dict[str, str]] = {}
    for path, attribute, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        said.setdefault(path, {})[attribute] = value
    crlf = {path: a["text"] for path, a in said.items() if a["eol"] == "crlf"}
    sure = frozenset(path for path, text in crlf.items() if text not in ("unset", "auto"))
    return sure, frozenset(path for path, text in crlf.items() if text == "auto")


def stored_as_text(listing: bytes) -> frozenset[str]:
    """From `git ls-files --eol -z`: paths whose stored content is text with LF throughout."""
    lines = listing.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return frozenset(line.partition("\t")[2] for line in lines if line.startswith("i/lf "))


def hidden_paths(
    changes: Iterable[Change], crlf: frozenset[str]
) -> dict[str, dict[str, str | None]]:
    """verify.json's `hidden`: every path that the hidden patch touches, both sides."""
    return {
        c.path: {"base": c.before, "after": _with_ends(c.after, c.path in crlf)} for c in changes
    }


def _with_ends(side: str | None, crlf: bool) -> str | None:
    return f"{side} crlf" if side and crlf and not side.startswith(_LINK) else side


def protected_files(
    tree: Mapping[str, tuple[str, str]],
    data: Mapping[str, Any],
    hidden: Iterable[str],
    crlf: frozenset[str],
) -> dict[str, str]:
    """verify.json's `protected.files`: what its globs match at the base, hidden paths left out.

    The base's own links that lead into a glob are among them: the verifier removes all others.
    `tree` is path → (mode, id), as git lists a commit.
    """
    chosen, reports = Globs(_globs(data)), Globs(data.get("reports", []))

    def taken(path: str) -> bool:
        leads = tree[path][0] == _LINK and (chosen.could_hold(path) or reports.could_hold(path))
        return tree[path][0] in _KINDS and (leads or chosen.matches(path))

    files = {path for path in tree.keys() - set(hidden) if taken(path)}
    return {path: _with_ends(" ".join(tree[path]), path in crlf) or "" for path in files}


def _globs(data: Mapping[str, Any]) -> list[str]:
    globs: list[str] = data.get("protected", {}).get("globs", [])
    return globs


def filled_in(
    data: Mapping[str, Any], hidden: Mapping[str, Any], files: Mapping[str, str]
) -> dict[str, Any]:
    """verify.json's value with the parts that come from the upstream repository."""
    protected = {"globs": _globs(data), "files": _sorted(files)}
    return {**data, "hidden": _sorted(hidden), "protected": protected}


def with_quarantine(data: Mapping[str, Any], present: bool) -> dict[str, Any]:
    """verify.json's value that asks for a quarantine where there is one."""
    rest = {key: value for key, value in data.items() if key != "quarantine"}
    return {**rest, "quarantine": True} if present else rest


def _sorted(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(value.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")))


def written(data: Mapping[str, Any]) -> bytes:
    """verify.json's bytes: keys as they come, ASCII so that any path can be written."""
    return (json.dumps(data, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def findings(
    task: str,
    data: Mapping[str, Any],
    *,
    hidden: Patch,
    changes: Iterable[Change],
    fix: Iterable[str],
    tree: Iterable[str],
) -> tuple[Finding, ...]:
    """What is wrong with the data.

    `hidden` is the hidden patch as read and `changes` what git makes of it; `fix` are the paths
    that the gold patch touches, `tree` those of the base.
    """
    fix, changes = set(fix), tuple(changes)
    chosen, builds = Globs(_globs(data)), Globs(BUILD_FILES)
    touched = {change.path for change in changes}
    undone = [path for path in sorted(fix) if path in touched or chosen.matches(path)]
    free = [path for path in sorted(tree) if builds.matches(path) and not chosen.matches(path)]
    return (
        *(_submodule(task, change) for change in changes if _is_submodule(change)),
        *(_copied(task, file) for file in hidden.files if file.old and file.old not in touched),
        *(_fix_undone(task, path) for path in undone),
        *(_free_build(task, path) for path in free if path not in fix | touched),
    )


def _is_submodule(change: Change) -> bool:
    return any(side and side.split(" ")[0] not in _KINDS for side in (change.before, change.after))


def _submodule(task: str, change: Change) -> Finding:
    return Finding(
        rule="verifier/submodule",
        severity="error",
        file=f"tasks/{task}/tests/test.patch",
        where=change.path,
        message="changes a submodule, which the verifier can't put in place",
        mend="leave the submodule out of the hidden patch",
    )


def _copied(task: str, file: FilePatch) -> Finding:
    return Finding(
        rule="verifier/copied-from",
        severity="error",
        file=f"tasks/{task}/tests/test.patch",
        where=f"line {file.line}",
        message=f"copies {file.old}, which it doesn't change: the verifier applies the patch where "
        "only the changed files are",
        mend="make the patch anew with git diff --no-renames",
    )


def _fix_undone(task: str, path: str) -> Finding:
    return Finding(
        rule="verifier/fix-undone",
        severity="error",
        file=f"tasks/{task}/solution/fix.patch",
        where=path,
        message="the verifier puts this file in its own state, so the gold patch is undone there",
        mend="narrow protected.globs in tests/verify.json (a glob that begins with ! takes paths "
        "out), or move the file to the other patch",
    )


def _free_build(task: str, path: str) -> Finding:
    return Finding(
        rule="verifier/free-build-file",
        severity="warning",
        file=f"tasks/{task}/tests/verify.json",
        where="protected.globs",
        message=f"{path} steers the build and an agent may change it, even to write reports itself",
        mend="add it to protected.globs, unless solving the task needs a change there",
    )
