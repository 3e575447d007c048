"""Checks of the patches on the base commit: what git really makes of them there.

Promises: pure; the facts are gathered by the caller, who tries the patches (`rim.upstream`). What
couldn't be tried says nothing about the task, so it is no finding but a sentence in `untried`.
"""

import re
import zlib
from base64 import b85decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbench_build.model import Finding
from kbench_build.model.repository import Applied
from kbench_build.rules.content import FIX, TEST, TEST_PATCH, Content
from kbench_build.rules.findings import Check, Spot, run_checks
from kbench_build.rules.patches import FilePatch

# A patch that is larger, or whose binary parts are, isn't tried: git would make it all at once.
_MOST_TRIED = 16 << 20
_MOST_BINARY = 256 << 20
_BINARY_PART = re.compile(rb"^(literal|delta) (\d{1,18})\n(.*)$", re.MULTILINE)
_BINARY = b"GIT binary patch"
_MOST_NAMES = 400
_SOURCE = re.compile(r".*\.(?:kts?|java|groovy|scala|[cm]?[jt]sx?|py|go|rs|rb|cs|swift|dart|php)")
# In the first column: what closes a declaration (`})` one that passes a block on), and begins one.
_CLOSING = re.compile(rb"\}\)*\s*")
_DECLARED = re.compile(rb"[A-Za-z@]")
_CLASS = re.compile(rb"(?:@[\w.]+(?:\([^)]*\))?\s+|[a-z]+\s+)*(?:class|object|interface|enum)\b")
_TESTED = re.compile(r".*\.(?:kt|java|groovy)")
# Git and its options; possessive, so that a hostile script costs no more than its length.
_GIT = rb"\bgit[ \t]++(?:(?:-[Cc][ \t]++\S++|-\S++)[ \t]++){0,12}+"
# Git's commands that put files of the checkout back before the hidden patch is applied.
_PUTS_BACK = re.compile(_GIT + rb"(?:checkout|restore|reset|clean|stash)\b")
_APPLIES = re.compile(
    rb"(?:" + _GIT + rb"(?:apply|am)\b|\bpatch[ \t]++-)[^\n|&;]{0,500}test\.patch"
)
_COMMENT = re.compile(rb"(?m)^[ \t]*+#.*$")
_GITLINK = "160000"


@dataclass(frozen=True, kw_only=True)
class OnBase:
    """A task and its base commit: the files there, and what became of each patch that was tried.

    `files` maps paths to (mode, id). `alone` is by patch, `after_other` says for each patch how it
    applies once the other one is there. `blocked` are files whose hidden change doesn't apply any
    more where an agent adds a test at the end of the same class.
    """

    task: Content
    commit: str
    files: Mapping[str, tuple[str, str]]
    alone: Mapping[str, Applied]
    after_other: Mapping[str, Applied]
    blocked: frozenset[str] = field(default_factory=frozenset)


def patches_to_try(task: Content) -> Mapping[str, bytes]:
    """The patches that git can be given safely; one that changes no file is none."""
    read = {FIX: task.fix, TEST_PATCH: task.test}
    return {
        path: task.data[path]
        for path, patch in read.items()
        if patch is not None and patch.files and _is_bounded(task.data[path])
    }


def _is_bounded(data: bytes) -> bool:
    return len(data) <= _MOST_TRIED and unpacked(data) <= _MOST_BINARY


def unpacked(patch: bytes) -> int:
    """The bytes that the binary parts of a patch make at most, by what they say of themselves."""
    parts = _BINARY_PART.finditer(patch) if _BINARY in patch else ()
    return sum(_unpacked(m[1], int(m[2]), m[3]) for m in parts)


def _unpacked(kind: bytes, size: int, first_line: bytes) -> int:
    if kind == b"literal":
        return size
    try:
        line = first_line[1:].rstrip()
        head = zlib.decompressobj().decompress(b85decode(line), 32)
    except (ValueError, zlib.error):
        return 0
    return size + sum(_numbers(head))


def _numbers(head: bytes) -> Iterator[int]:
    """The two numbers that a delta begins with: the sizes before and after."""
    number = shift = found = 0
    for byte in head:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield number
            number, shift, found = 0, 0, found + 1
        if found == 2:
            return


def needed(task: Content, files: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """The ids of the base's files that the patches change; git can't try them without."""
    paths = {path for patch in (task.fix, task.test) if patch for path in patch.paths}
    return tuple(files[p][1] for p in sorted(paths & files.keys()) if files[p][0] != _GITLINK)


def untried(task: Content, tried: Iterable[str]) -> Iterator[str]:
    """A sentence for each patch that isn't tried though there is one."""
    read = {FIX: task.fix, TEST_PATCH: task.test}
    for path, patch in read.items():
        if patch is not None and patch.files and path not in tried:
            yield f"{path} is too large to try on the base commit"


def names_to_look_for(task: Content) -> frozenset[bytes]:
    """The names that the fix declares: does the base know them already? The longest first."""
    names = sorted(task.fix_names.declared, key=lambda name: (-len(name), name))
    return frozenset(names[:_MOST_NAMES])


def sources(files: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """The ids of the source files among a commit's files."""
    return tuple(entry[1] for path, entry in files.items() if _SOURCE.fullmatch(path))


def names_among(names: Iterable[bytes], texts: Iterable[bytes]) -> frozenset[bytes]:
    """Those of the names that stand in one of the texts as whole words."""
    left, found = set(names), set()
    for text in texts:
        here = {name for name in left if name in text and _stands_in(name, text)}
        found |= here
        left -= here
        if not left:
            break
    return frozenset(found)


def _stands_in(name: bytes, text: bytes) -> bool:
    return re.search(rb"(?<![\w$])" + re.escape(name) + rb"(?![\w$])", text) is not None


def is_applied_to_the_checkout(task: Content) -> bool:
    """Whether test.sh applies the hidden patch to whatever the agent left."""
    script = _COMMENT.sub(b"", task.data.get(TEST, b"")).replace(b"\\\n", b" ")
    applies = _APPLIES.search(script)
    return applies is not None and not _PUTS_BACK.search(script, 0, applies.start())


def tested_files(task: Content, files: Mapping[str, tuple[str, str]]) -> Mapping[str, str]:
    """Files of test classes that the hidden patch edits where they stand: path → id at the base."""
    return {
        file.old: files[file.old][1]
        for file in (task.test.files if task.test else ())
        if file.old and file.old == file.new and file.old in files
        if _TESTED.fullmatch(file.old) and files[file.old][0].startswith("100")
    }


def with_own_test(path: str, content: bytes) -> bytes | None:
    """The file with a test more at the end of its last class, None where no class has an end."""
    end = b"\r\n" if b"\r\n" in content else b"\n"
    lines = content.split(end)
    closing = _end_of_class(lines)
    if closing is None:
        return None
    declared = (
        b"    void anAgentsOwnTest() {"
        if path.endswith(".java")
        else b"    fun `an agent's own test`() {"
    )
    own = [b"", b"    @Test", declared, b"    }"]
    return end.join([*lines[:closing], *own, *lines[closing:]])


def _end_of_class(lines: Sequence[bytes]) -> int | None:
    """The line that closes the last class of a file: functions and the like may come after it."""
    closing, in_class = None, False
    for number, line in enumerate(lines):
        if _CLOSING.fullmatch(line):
            closing = number if in_class else closing
            in_class = False
        elif _DECLARED.match(line):
            in_class = _CLASS.match(line) is not None
    return closing


def refused(said: bytes, paths: Iterable[str]) -> frozenset[str]:
    """The paths whose part of a patch git refused, from what it wrote."""
    lines = set(said.decode("utf-8", "surrogateescape").splitlines())
    return frozenset(p for p in paths if f"error: {p}: patch does not apply" in lines)


def _unfit(base: OnBase) -> Iterator[Spot]:
    for path, applied in base.alone.items():
        if applied.reason:
            yield Spot(file=path, message=f"doesn't apply to {base.commit[:12]}: {applied.reason}")


def _order(base: OnBase) -> Iterator[Spot]:
    if any(applied.reason for applied in base.alone.values()):
        return
    for path, applied in base.after_other.items():
        if applied.reason:
            other = next(p for p in base.alone if p != path)
            yield Spot(file=path, message=f"doesn't apply after {other}: {applied.reason}")


def _patches(base: OnBase) -> Iterator[tuple[str, Applied, FilePatch]]:
    read = {FIX: base.task.fix, TEST_PATCH: base.task.test}
    for path, applied in base.alone.items():
        for file in getattr(read[path], "files", ()):
            yield path, applied, file


def _is_cut_from_another(base: OnBase, file: FilePatch) -> bool:
    """Whether the index line names another file before the change than the base has."""
    entry = base.files.get(file.old or "")
    said = file.old_blob
    return bool(entry and said and said.strip("0") and not entry[1].startswith(said))


def _pre_image(base: OnBase) -> Iterator[Spot]:
    for path, _, file in _patches(base):
        if _is_cut_from_another(base, file):
            there = base.files[file.old or ""][1][: len(file.old_blob or "")]
            message = f"{file.old!r} is {file.old_blob} before it, but {there} at the base"
            yield Spot(file=path, where=f"line {file.line}", message=message)


def _post_image(base: OnBase) -> Iterator[Spot]:
    for path, applied, file in _patches(base):
        made, said = applied.changed.get(file.new or ""), file.new_blob
        # A patch of another base makes other files without being damaged.
        if not made or not said or made[0] == _GITLINK or _is_cut_from_another(base, file):
            continue
        if said.strip("0") and not made[1].startswith(said):
            message = f"makes {made[1][: len(said)]} of {file.new!r}, but promises {said}"
            yield Spot(file=path, where=f"line {file.line}", message=message)


def _blocked(base: OnBase) -> Iterator[Spot]:
    files = {f.new: f.line for f in base.task.test.files} if base.task.test else {}
    for path in sorted(base.blocked):
        message = f"doesn't apply once a test is added at the end of the class in {path!r}"
        yield Spot(file=TEST_PATCH, where=f"line {files.get(path, 1)}", message=message)


CHECKS: tuple[Check[OnBase], ...] = (
    Check(
        id="patch/base",
        severity="error",
        why="A patch that doesn't apply to the base commit can't be the fix of it, or test it.",
        mend="Make the patch again with `git diff --binary --full-index` from the base commit.",
        find=_unfit,
    ),
    Check(
        id="patch/order",
        severity="error",
        why="Solution and tests come in either order: an agent's fix is there before the tests.",
        mend="Leave what both patches change in one of them.",
        find=_order,
        forms=("shipped", "own"),
    ),
    Check(
        id="patch/pre-image",
        severity="warning",
        why="A patch cut from another commit may do something else on this one, though it applies.",
        mend="Make the patch again from the base commit, or correct the base commit.",
        find=_pre_image,
    ),
    Check(
        id="patch/post-image",
        severity="warning",
        why="A patch that makes another file than its index line promises was damaged on its way, "
        "most often in its white space.",
        mend="Make the patch again with `git diff --binary --full-index`, and keep editors off it.",
        find=_post_image,
    ),
    Check(
        id="patch/blocks-own-tests",
        severity="warning",
        why="An honest agent adds a test at the end of the same class, and is then failed for it: "
        "the hidden patch doesn't apply any more.",
        mend="Run `kbench harden`: the shipped verifier puts the hidden files back first.",
        find=_blocked,
        forms=("own",),
    ),
)


def check_on_base(base: OnBase) -> tuple[Finding, ...]:
    """Everything that the checks for a task of its form find on the base commit."""
    form = base.task.form
    checks = (check for check in CHECKS if not check.forms or form in check.forms)
    return tuple(run_checks(checks, base, f"tasks/{base.task.id}"))


def without_upstream(task: Content, *, commit: str, problem: str = "") -> tuple[str, ...]:
    """The sentence for a task whose base commit isn't at hand; none where nothing would be tried.

    `commit` is empty where it isn't known, `problem` what stood in the way.
    """
    if not patches_to_try(task) or (task.form == "plain" and not commit):
        return ()
    why = problem or ("no upstream at hand holds the base commit" if commit else "no base commit")
    give = "give a folder of mirrors (upstream.mirrors in kbench.toml, or --upstream DIR)"
    return (f"{why}: whether the patches fit there isn't known; {give}",)
