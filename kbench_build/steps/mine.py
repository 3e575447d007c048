"""Find the merged changes of a clone that may become tasks, and part each into fix and tests.

Promises: every merged change is either kept or left out with its reason; what is kept has its two
patches on disk, which make the merged tree of the base's; the clone is only read. Nothing is run:
whether the tests tell the fix from its absence is left to a later step.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from kbench_build.errors import KbenchError
from kbench_build.model.repository import Commit
from kbench_build.rim.history import History, MissingObjectsError
from kbench_build.rim.mine_config import MineConfig
from kbench_build.rim.mined import CANDIDATES
from kbench_build.rim.store import write_whole
from kbench_build.rules.merges import Candidate, Pull, Refused, merged_changes
from kbench_build.rules.mine_filters import Filters, change_id, refused, without_repeats
from kbench_build.rules.patch_split import Split, split_patch
from kbench_build.rules.path_kinds import KINDS, Patterns
from kbench_build.rules.pull_records import Records, read_records
from kbench_build.rules.records import to_json

MINED = "mined"
REFUSED = "refused.jsonl"
_PARTS = {"fix.patch": ("source", "build"), "test.patch": ("test",), "rest.patch": ("other",)}


@dataclass(frozen=True, kw_only=True)
class Parted:
    """A candidate and its patch, parted; the ids of the trees before and after it."""

    change: Candidate
    split: Split
    base_tree: str
    merge_tree: str


@dataclass(frozen=True, kw_only=True)
class Mined:
    """What a branch holds: candidates and those left out, both newest first.

    `merged` counts all merged changes that were looked at, `beyond` those that weren't kept only
    because enough were.
    """

    merged: int
    kept: tuple[Parted, ...]
    refused: tuple[Refused, ...]
    beyond: int


def filters_of(config: MineConfig, patterns: Patterns) -> Filters:
    """The filters that a dataset's configuration asks for."""
    defaults = Filters(patterns=patterns)
    return Filters(
        patterns=patterns,
        bots=(*defaults.bots, *config.bots),
        chores=(*defaults.chores, *config.chores),
        labels=config.labels,
        fewest_lines=config.fewest_lines,
        most_lines=config.most_lines,
        most_files=config.most_files,
    )


def read_pulls(path: Path) -> Records:
    """The pull request data of a JSONL file. Raises `KbenchError` where it can't be read."""
    try:
        with path.open("rb") as lines:
            return read_records(lines)
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def mine(
    clone: Path,
    *,
    repository: str,
    filters: Filters,
    branch: str = "",
    pulls: Iterable[Pull] = (),
    since: int | None = None,
    until: int | None = None,
    most: int | None = None,
) -> Mined:
    """Find the candidates of a clone's branch, merged between two times, the newest `most` of them.

    `repository` is `owner/name`; times are in seconds since 1970.
    """
    with tempfile.TemporaryDirectory(prefix="kbench-mine-") as scratch:
        history = History(clone, Path(scratch) / "store")
        commits = list(history.commits(history.tip(branch), since=since, until=until))
        found = merged_changes(commits, repository=repository, pulls=pulls, shallow=history.shallow)
        by_id = {commit.id: commit for commit in commits}
        left_out = list(found.refused)
        wanted = list(_by_paths(found.candidates, by_id, filters, left_out))
        parted = list(_by_patch(history, wanted, by_id, filters, left_out))
    kept, repeats = without_repeats((p.change, change_id(p.split)) for p in parted)
    ids = {change.id for change in kept}
    rest = [p for p in parted if p.change.id in ids]
    order = {commit.id: place for place, commit in enumerate(commits)}
    return Mined(
        merged=len(found.candidates) + len(found.refused),
        kept=tuple(islice(rest, most)),
        refused=tuple(sorted([*left_out, *repeats], key=lambda r: order.get(r.merge, len(order)))),
        beyond=max(0, len(rest) - most) if most is not None else 0,
    )


def _by_paths(
    changes: Iterable[Candidate],
    commits: dict[str, Commit],
    filters: Filters,
    left_out: list[Refused],
) -> Iterator[Candidate]:
    """The changes that nothing but their patch can stop; the others go to `left_out`."""
    for change in changes:
        files = (file.path for each in change.commits for file in commits[each].files)
        problem = filters.refuse(change, tuple(dict.fromkeys(files)))
        if problem:
            left_out.append(problem)
        else:
            yield change


def _by_patch(
    history: History,
    changes: Sequence[Candidate],
    commits: dict[str, Commit],
    filters: Filters,
    left_out: list[Refused],
) -> Iterator[Parted]:
    known = {c: commits[c].tree if c in commits else history.tree_of(c) for c in _ends(changes)}
    pairs = [(known[change.base], known[change.merge]) for change in changes]
    for change, pair, patch in zip(changes, pairs, history.patches(pairs), strict=True):
        if isinstance(patch, MissingObjectsError):
            left_out.append(refused(change, "objects-missing", str(patch)))
            continue
        split = split_patch(patch, filters.patterns)
        if split.crosses:
            (again,) = history.patches([pair], renames=False)
            split = split_patch(again if isinstance(again, bytes) else patch, filters.patterns)
        problem = filters.refuse_split(change, split)
        if problem:
            left_out.append(problem)
        else:
            yield Parted(change=change, split=split, base_tree=pair[0], merge_tree=pair[1])


def _ends(changes: Iterable[Candidate]) -> set[str]:
    return {commit for change in changes for commit in (change.base, change.merge)}


def folder_of(root: Path, repository: str) -> Path:
    """Where a repository's candidates are kept in a dataset."""
    return root / MINED / repository.replace("/", "_")


def write(mined: Mined, folder: Path) -> None:
    """Keep candidates, those left out, and the patches of each candidate, whole."""
    _write_lines(folder / CANDIDATES, (_candidate(each) for each in mined.kept))
    _write_lines(folder / REFUSED, (to_json(each) for each in mined.refused))
    for each in mined.kept:
        place = folder / each.change.id.removeprefix("#")
        for name, kinds in _PARTS.items():
            write_whole(place / name, each.split.patch(*kinds))  # type: ignore[arg-type]


def _write_lines(path: Path, values: Iterable[Any]) -> None:
    lines = (orjson.dumps(_printable(value), option=orjson.OPT_SORT_KEYS) for value in values)
    write_whole(path, b"".join(line + b"\n" for line in lines))


def _printable(value: Any) -> Any:
    """The value with every text as UTF-8, whatever bytes names and messages hold."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return os.fsencode(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _candidate(parted: Parted) -> dict[str, Any]:
    return {
        **to_json(parted.change),
        "base_tree": parted.base_tree,
        "merge_tree": parted.merge_tree,
        "lines": dict(parted.split.lines),
        "files": {kind: list(parted.split.paths(kind)) for kind in KINDS},
    }
