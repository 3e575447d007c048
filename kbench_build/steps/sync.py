"""Renews what tasks hold only as a copy: the shipped verifier, and the data it takes from upstream.

Promises: idempotent; a file is written whole and only where its bytes differ; with `check` nothing
is written. A task without `tests/verify.json` has its own verifier and is left alone. Leaves to
`validate` whether the data that people write is any good.
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build import runtime
from kbench_build.errors import KbenchError
from kbench_build.model import Finding
from kbench_build.rim.dataset import TASKS
from kbench_build.rim.git import ObjectStore
from kbench_build.rim.process import ProcessError
from kbench_build.rim.store import STATE, write_whole
from kbench_build.rules import verifier_data
from kbench_build.rules.patches import parse_patch
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
        folders = [_objects(source) for source in sources if source.is_dir()]
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


def _objects(repository: Path) -> Path:
    """The folder of a repository's objects; a linked worktree's are those of its repository."""
    from git import Repo  # noqa: PLC0415 - costs as much as a whole check of a small dataset
    from git.exc import InvalidGitRepositoryError  # noqa: PLC0415

    try:
        with Repo(repository) as found:
            return Path(found.common_dir).absolute() / "objects"
    except InvalidGitRepositoryError as error:
        raise KbenchError(f"{repository}: isn't a git repository or a bundle") from error


def sync(
    root: Path, tasks: Sequence[str], *, check: bool = False, repository: Path | None = None
) -> tuple[Synced, ...]:
    """Renew the tasks of the dataset at `root`.

    `repository` (a bundle, repository or checkout) holds their bases; without it the generated
    bundles under `.kbench/inputs/` are asked. Raises `KbenchError` for files that can't be read.
    """
    sources = [repository] if repository else sorted((root / STATE / "inputs").glob("*/*.bundle"))
    with tempfile.TemporaryDirectory(prefix="kbench-sync-") as scratch:
        upstreams = Upstreams(Path(scratch), sources)
        return tuple(_task(root, task, upstreams, check) for task in tasks)


def _task(root: Path, task: str, upstreams: Upstreams, check: bool) -> Synced:
    folder = root / TASKS / task
    if not (folder / "tests" / "verify.json").is_file():
        return Synced(task=task, changed=(), findings=(), note="has its own verifier")
    wanted = {place: _shipped(name) for place, name in SHIPPED.items()}
    held = _read_json(folder / "tests" / "verify.json")
    present = (folder / "tests" / "quarantine.json").is_file()
    data = verifier_data.with_quarantine(held, present)
    if data != held:
        wanted["tests/verify.json"] = verifier_data.written(data)
    base = data.get("base_commit")
    note: str = ""
    found: tuple[Finding, ...] = ()
    if isinstance(base, str) and upstreams.hold(base):
        filled, found = _filled(folder, data, base, upstreams)
        wanted["tests/verify.json"] = filled
    else:
        note = f"no repository at hand holds the base commit {base}: hidden and protected files"
        note += " in tests/verify.json left as they are"
    changed = tuple(p for p in sorted(wanted) if _differs(folder / p, wanted[p]))
    for place in () if check else changed:
        write_whole(folder / place, wanted[place])
    return Synced(task=task, changed=changed, findings=found, note=note)


def _filled(
    folder: Path, data: dict[str, Any], base: str, upstreams: Upstreams
) -> tuple[bytes, tuple[Finding, ...]]:
    """verify.json's bytes as they should be, and what is wrong with the task's data."""
    patch = _read(folder / "tests" / "test.patch")
    changes = upstreams.changes(base, patch, folder.name)
    tree = {p: entry for p, entry in upstreams.store.tree(base).items() if entry[0] != "040000"}
    crlf = upstreams.ends_in_crlf([*tree, *(change.path for change in changes)])
    hidden = verifier_data.hidden_paths(changes, crlf)
    files = verifier_data.protected_files(tree, data, hidden, crlf)
    gold = parse_patch(_read(folder / "solution" / "fix.patch")).paths
    found = verifier_data.findings(
        folder.name, data, hidden=parse_patch(patch), changes=changes, fix=gold, tree=tree
    )
    return verifier_data.written(verifier_data.filled_in(data, hidden, files)), found


def _shipped(name: str) -> bytes:
    return (Path(runtime.__file__).parent / name).read_bytes()


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
