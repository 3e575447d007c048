"""Renews what tasks hold only as a copy: the shipped verifier, and the data it takes from upstream.

Promises: idempotent; a file is written whole and only where its bytes differ; with `check` nothing
is written. A task without `tests/verify.json` has its own verifier and is left alone. Leaves to
`validate` whether the data that people write is any good.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.model import Finding, Upstream
from kbench_build.rim.dataset import TASKS, read_task_toml
from kbench_build.rim.git import ObjectStore
from kbench_build.rim.process import ProcessError
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import STATE, write_whole
from kbench_build.rim.upstream import Want, holders, objects_of
from kbench_build.rules import verifier_data
from kbench_build.rules.patches import parse_patch
from kbench_build.rules.recipes import upstream_of
from kbench_build.rules.shipped import SHIPPED

_RAW = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev")


@dataclass(frozen=True, kw_only=True)
class Synced:
    """What became of one task: files that differed (and, without `check`, were written).

    `note` says what was left undone, for instance because no repository holds the base.
    """

    task: str
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]
    note: str = ""


class Upstreams:
    """Objects of every upstream repository at hand, borrowed by one store of our own."""

    def __init__(self, scratch: Path, sources: Iterable[Path]) -> None:
        """`sources` are git bundles, repositories or checkouts; nothing is written to them."""
        self.store = ObjectStore(scratch / "upstreams")
        folders = [objects_of(source) for source in sources if source.is_dir()]
        lines = "".join(f"{folder}\n" for folder in folders)
        borrowed = self.store.folder / "objects" / "info" / "alternates"
        borrowed.write_text(lines, encoding="utf-8")
        for source in sources:
            if not source.is_dir():
                self.store.git("bundle", "unbundle", str(source.absolute()))

    def hold(self, commit: str) -> bool:
        """Whether the commit is there."""
        return self.store.type_of(commit) == "commit"

    def changes(self, commit: str, patch: bytes, task: str) -> tuple[verifier_data.Change, ...]:
        """What the task's hidden patch makes of the commit. Raises `KbenchError`."""
        index = self.store.folder / "sync-index"
        self.store.git("read-tree", commit, index=index)
        if patch.strip():
            options = ("--cached", "--whitespace=nowarn", "-")
            try:
                self.store.git("apply", *options, stdin=patch, index=index)
            except ProcessError as error:
                place = f"{TASKS}/{task}/tests/test.patch"
                said = error.stderr.decode("utf-8", "replace").strip()
                raise KbenchError(f"{place}: doesn't apply to {commit}: {said}") from error
        return verifier_data.parse_raw(self.store.git(*_RAW, commit, index=index).stdout)

    def ends_in_crlf(self, paths: Iterable[str]) -> frozenset[str]:
        """The paths whose checkout has CRLF, by the .gitattributes of the last `changes`."""
        asked = b"".join(p.encode("utf-8", "surrogateescape") + b"\0" for p in paths)
        options = ("--cached", "-z", "--stdin", "text", "eol")
        index = self.store.folder / "sync-index"
        said = self.store.git("check-attr", *options, stdin=asked, index=index).stdout
        sure, if_text = verifier_data.line_ends(said)
        if not if_text:
            return sure
        listing = self.store.git("ls-files", "--cached", "--eol", "-z", index=index).stdout
        return sure | if_text & verifier_data.stored_as_text(listing)


@dataclass(frozen=True, kw_only=True)
class Filled:
    """verify.json's bytes as they should be, and what is wrong with the task's data."""

    written: bytes
    findings: tuple[Finding, ...]


class AtHand:
    """The upstream repositories at hand, each opened once."""

    def __init__(
        self, root: Path, scratch: Path, repositories: Sequence[Path] = (), mirrors: str = ""
    ) -> None:
        """`repositories` are bundles, repositories or checkouts (without one, generated bundles).

        `mirrors` is a folder of upstream repositories; `scratch` is ours to write to.
        """
        generated = (root / STATE / "inputs").glob("*/*.bundle")
        self._root, self._scratch, self._mirrors = root, scratch, mirrors
        self._given = Upstreams(scratch / "given", tuple(repositories or sorted(generated)))
        self._opened: dict[Path, Upstreams] = {}

    def holding(self, task: str, base: object, source: Upstream) -> Upstreams | None:
        """A repository that holds a task's base; `source` is the one that task.toml names."""
        if not isinstance(base, str):
            return None
        if self._given.hold(base):
            return self._given
        want = Want(task=task, commit=base, upstream=source)
        held = holders(self._root, [want], mirrors=self._mirrors)[task].source
        if held is None:
            return None
        if held.path not in self._opened:
            folder = self._scratch / f"mirror-{len(self._opened)}"
            self._opened[held.path] = Upstreams(folder, [held.path])
        return self._opened[held.path]


def sync(
    root: Path,
    tasks: Sequence[str],
    *,
    check: bool = False,
    repository: Path | None = None,
    mirrors: str = "",
) -> tuple[Synced, ...]:
    """Renew the tasks of the dataset at `root`.

    `repository` (a bundle, repository or checkout) holds their bases; without it the generated
    bundles under `.kbench/inputs/` are asked, and then the folder `mirrors` of upstream
    repositories. Raises `KbenchError` for files that can't be read.
    """
    repositories = (repository,) if repository else ()
    with tempfile.TemporaryDirectory(prefix="kbench-sync-") as scratch:
        at_hand = AtHand(root, Path(scratch), repositories, mirrors)
        return tuple(_task(root, task, at_hand, check) for task in tasks)


def _task(root: Path, task: str, at_hand: AtHand, check: bool) -> Synced:
    folder = root / TASKS / task
    if not (folder / "tests" / "verify.json").is_file():
        return Synced(task=task, changed=(), findings=(), note="own verifier, left alone")
    wanted = {place: shipped_file(name) for place, name in SHIPPED.items()}
    held = _read_json(folder / "tests" / "verify.json")
    present = (folder / "tests" / "quarantine.json").is_file()
    data = verifier_data.with_quarantine(held, present)
    if data != held:
        wanted["tests/verify.json"] = verifier_data.written(data)
    note: str = ""
    found: tuple[Finding, ...] = ()
    base = data.get("base_commit")
    upstreams = at_hand.holding(task, base, _source(root, task))
    if upstreams:
        hidden, fix = (
            _read(folder / place) for place in ("tests/test.patch", "solution/fix.patch")
        )
        filled = fill(task, data, upstreams, hidden=hidden, fix=fix)
        wanted["tests/verify.json"], found = filled.written, filled.findings
    else:
        note = f"no repository at hand holds the base commit {base}: hidden and protected files"
        note += " in tests/verify.json left as they are"
    changed = tuple(p for p in sorted(wanted) if _differs(folder / p, wanted[p]))
    for place in () if check else changed:
        write_whole(folder / place, wanted[place])
    return Synced(task=task, changed=changed, findings=found, note=note)


def _source(root: Path, task: str) -> Upstream:
    """The repository that task.toml names; none where it can't be read, which validation says."""
    try:
        return upstream_of(read_task_toml(root, task))
    except KbenchError:
        return Upstream()


def fill(
    task: str, data: Mapping[str, Any], upstreams: Upstreams, *, hidden: bytes, fix: bytes
) -> Filled:
    """Fill in what verify.json takes from upstream; `hidden` and `fix` are the two patches.

    Raises `KbenchError` for a hidden patch that doesn't apply.
    """
    base = data["base_commit"]
    changes = upstreams.changes(base, hidden, task)
    tree = {p: entry for p, entry in upstreams.store.tree(base).items() if entry[0] != "040000"}
    crlf = upstreams.ends_in_crlf([*tree, *(change.path for change in changes)])
    paths = verifier_data.hidden_paths(changes, crlf)
    files = verifier_data.protected_files(tree, data, paths, crlf)
    found = verifier_data.findings(
        task,
        data,
        hidden=parse_patch(hidden),
        changes=changes,
        fix=parse_patch(fix).paths,
        tree=tree,
    )
    written = verifier_data.written(verifier_data.filled_in(data, paths, files))
    return Filled(written=written, findings=found)


def _differs(path: Path, wanted: bytes) -> bool:
    return not path.is_file() or path.read_bytes() != wanted


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise KbenchError(f"{path}: isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise KbenchError(f"{path}: isn't an object")
    return value
