"""Make the base that holds a mined upstream, of which task images take what their commit reaches.

Promises: its bundle is there at once, made of the clone at hand, so that nothing has to be fetched
on this machine; what a person changed in the base's folder is left as it is unless asked for.
Leaves what stands in the files to `rules.clone_base`.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbench_build.errors import KbenchError
from kbench_build.rim.dataset import BASES
from kbench_build.rim.git import ObjectStore, last_line
from kbench_build.rim.process import ProcessError
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import STATE, write_whole
from kbench_build.rim.task_files import unlinked, unlinked_text
from kbench_build.rim.upstream import objects_of
from kbench_build.rules.clone_base import (
    BUNDLE,
    REF,
    SCRIPT,
    base_files,
    pinned_commit,
    repo_name,
    with_line,
)
from kbench_build.rules.forge_urls import home_of


@dataclass(frozen=True, kw_only=True)
class Held:
    """The base as it is to be: its commit, its files by place, and which of them are new.

    `differs` are those that a person changed, or that hold another repository.
    """

    repo: str
    commit: str
    files: Mapping[str, bytes]
    new: tuple[str, ...]
    differs: tuple[str, ...]
    notes: tuple[str, ...] = ()


def hold_upstream(
    root: Path,
    repository: str,
    clone: Path,
    *,
    origin: str,
    manifest: str,
    commit: str,
    image: str,
) -> Held:
    """The base for tasks whose newest commit is `commit`; `image` has git. Writes nothing."""
    repo = repo_name(repository)
    address = home_of(origin) or origin or str(clone.absolute())
    pinned = pinned_commit(unlinked_text(root / BASES / repo / "inputs.toml"), repo)

    def files(of: str) -> dict[str, bytes]:
        made = base_files(
            repository, image=image, address=address, commit=of, script=shipped_file(SCRIPT)
        )
        return {f"{BASES}/{repo}/{name}": data for name, data in made.items()}

    if pinned and _reaches(clone, pinned, commit):
        commit = pinned
    wanted, earlier = files(commit), files(pinned) if pinned else {}
    held = {place: unlinked(root / place) for place in wanted}
    # What we wrote for an older commit moves on.
    strange = [p for p, data in wanted.items() if held[p] not in (None, data, earlier.get(p))]
    wanted[f"{BASES}/manifest"] = with_line(manifest, repo).encode()
    web = address.startswith(("https://", "http://"))
    return Held(
        repo=repo,
        commit=commit,
        files=wanted,
        new=tuple(place for place, data in wanted.items() if unlinked(root / place) != data),
        differs=tuple(strange),
        notes=() if web else (f"{BASES}/{repo}: others can't fetch the upstream from {address}",),
    )


def write(root: Path, held: Held, clone: Path, *, force: bool = False) -> None:
    """Write the base and its bundle. Raises `KbenchError` for files that a person changed."""
    if held.differs and not force:
        raise KbenchError(f"{', '.join(held.differs)}: changed by hand; --force replaces it")
    _make_bundle(clone, held.commit, root / STATE / "inputs" / held.repo / BUNDLE)
    for place in held.new:
        write_whole(root / place, held.files[place])


def _reaches(clone: Path, commit: str, ancestor: str) -> bool:
    """Whether a commit has another one in its history, as far as the clone knows."""
    with _opened(clone, ancestor) as store:
        try:
            said = store.git("rev-list", "--max-count=1", ancestor, f"^{commit}", "--").stdout
        except ProcessError:
            return False
        return not said


def _make_bundle(clone: Path, commit: str, bundle: Path) -> None:
    """What the base's command would fetch, made of the clone at hand."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with _opened(clone, commit) as store:
        partial = store.folder.absolute() / "made.bundle"
        store.git("update-ref", REF, commit)
        try:
            store.git("bundle", "create", "--quiet", str(partial), REF)
        except ProcessError as error:
            why = last_line(error.stderr)
            raise KbenchError(f"{clone}: what {commit} reaches isn't all there: {why}") from error
        made = bundle.with_name(f".{bundle.name}.making")
        shutil.copyfile(partial, made)
        made.replace(bundle)


@contextmanager
def _opened(clone: Path, commit: str) -> Iterator[ObjectStore]:
    algorithm = "sha256" if len(commit) == 64 else "sha1"
    with tempfile.TemporaryDirectory(prefix="kbench-hold-") as scratch:
        store = ObjectStore(Path(scratch) / "store", algorithm)
        store.borrow(objects_of(clone))
        yield store
