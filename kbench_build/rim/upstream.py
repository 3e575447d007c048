"""The repositories that tasks were cut from: where they are at hand, and a commit of one to try on.

Promises: git runs in a store of our own that only borrows objects, so nothing that a mirror or a
bundle configures is obeyed; what is at hand is told from stat values alone while nothing changed,
and kept in `.kbench/upstream/known.json`; an unreadable source is a reason, not an error. Only
`fetched` uses the network, and only over HTTP. Leaves to others what a commit should hold.
"""

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import Upstream
from kbench_build.model.repository import Applied
from kbench_build.rim.git import ObjectStore
from kbench_build.rim.process import ProcessError
from kbench_build.rim.store import STATE, write_whole

FOLDER = "upstream"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_URL = re.compile(r"https?://[A-Za-z0-9][^\s\x00-\x1f\x7f]{0,500}")
# What changes in a repository when it gets a commit that it lacked.
_TELLING = ("objects", "objects/pack", "refs/heads", "packed-refs", "FETCH_HEAD", "logs/HEAD")
_RAW = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev")
# A server that can't give one commit can still give everything.
_ONLY_WHOLE = re.compile(rb"unadvertised object|shallow|dumb http")
_TRY_SEC = 60.0
_FETCH_SEC = 600.0
_MOST_FILES = 20_000
_MOST_NAMES = 50
_MOST_BYTES = 64 << 20
_MOST_OF_FILE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Source:
    """A mirror (a repository's folder) or a bundle; `name` is what people call it."""

    name: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class Want:
    """A task, its base commit, the upstream that it names, and bundles that its bases were given.

    An empty commit is one that isn't known.
    """

    task: str
    commit: str
    upstream: Upstream
    bundles: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Where a task's base commit is to be had: at hand in `source`, or to be fetched from `url`.

    Neither: nowhere, and `problem` says which source couldn't be asked, if any. What is checked
    depends on `name`, and on nothing else of it.
    """

    commit: str
    source: Source | None = None
    url: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        """The source's name, or the URL; empty where there is neither."""
        return self.source.name if self.source else self.url


def holders(
    root: Path, wants: Iterable[Want], *, mirrors: str = "", fetch: bool = False
) -> Mapping[str, Holder]:
    """For each task where its base commit is to be had; the first source that holds it.

    `mirrors` is a folder of mirrors, relative to the dataset's root. `fetch` says that what isn't
    at hand may be fetched; that isn't done here. Starts git only for sources that changed since
    they were last asked, and for commits that they weren't asked for.
    """
    known = _Known(root)
    places: dict[tuple[Upstream, tuple[Path, ...]], tuple[Source, ...]] = {}
    asked: dict[Source, set[str]] = {}
    wanted = []
    for want in wants:
        key = (want.upstream, want.bundles)
        if key not in places:
            places[key] = tuple(_sources(root, mirrors, want))
        commit = want.commit if _COMMIT.fullmatch(want.commit) else ""
        wanted.append((want, commit, places[key]))
        for source in places[key] if commit else ():
            asked.setdefault(source, set()).add(commit)
    held = {source: known.held(source, commits) for source, commits in asked.items()}
    known.save()
    return {
        want.task: Holder(
            commit=commit,
            source=next((s for s in sources if commit and commit in held[s]), None),
            url=want.upstream.url if fetch and commit else "",
            problem=next((p for s in sources if (p := known.problems.get(s.name))), ""),
        )
        for want, commit, sources in wanted
    }


def bundles(root: Path, repos: Iterable[str]) -> tuple[Path, ...]:
    """The bundles among the generated files of these folders of bases."""
    folders = (root / STATE / "inputs" / repo for repo in repos)
    return tuple(path for folder in folders for path in sorted(folder.glob("*.bundle")))


def _sources(root: Path, mirrors: str, want: Want) -> Iterator[Source]:
    """Where a task's upstream may be, as far as something stands there."""
    owner, name = want.upstream.owner, want.upstream.name
    if mirrors and _NAME.fullmatch(owner) and _NAME.fullmatch(name):
        folder = root / Path(mirrors).expanduser()
        for stem in (f"{owner}/{name}", f"{owner}_{name}", name):
            for path in (folder / f"{stem}.git", folder / stem, folder / f"{stem}.bundle"):
                if path.is_file() or (path.is_dir() and _objects(path)):
                    yield Source(name=_called(path, root), path=path)
    for path in want.bundles:
        if path.is_file():
            yield Source(name=_called(path, root), path=path)


def _called(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def objects_of(repository: Path) -> Path:
    """The folder of a repository's objects; a linked worktree's are those of its repository."""
    found = _objects(repository)
    if found:
        return found.absolute()
    from git import Repo  # noqa: PLC0415 - costs as much as a whole check of a small dataset
    from git.exc import InvalidGitRepositoryError, NoSuchPathError  # noqa: PLC0415

    try:
        with Repo(repository) as opened:
            return Path(opened.common_dir).absolute() / "objects"
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise KbenchError(f"{repository}: isn't a git repository or a bundle") from error


def _objects(repository: Path) -> Path | None:
    for folder in (repository / ".git", repository):
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return folder / "objects"
    return None


class _Known:
    """Which commits each source held and lacked when it was asked, in `.kbench/upstream`.

    `problems` are the sources that couldn't be asked in this run; the next one asks them again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / STATE / FOLDER / "known.json"
        self._sources: dict[str, Any] | None = None
        self._changed = False
        self.problems: dict[str, str] = {}

    def held(self, source: Source, commits: Collection[str]) -> frozenset[str]:
        """Those of the commits that the source holds; none of one that can't be read."""
        signature = _signature(source.path)
        entry = self._entry(source.name)
        if entry.get("signature") != signature:
            entry = {"signature": signature, "held": [], "lacking": []}
        held = frozenset(commits).intersection(entry["held"])
        unknown = frozenset(commits).difference(held, entry["lacking"])
        if unknown:
            try:
                new = _asked(self._root, source, unknown)
            except (KbenchError, OSError) as error:
                self.problems[source.name] = _one_line(source.name, error)
                return held
            held |= new
            self._note(source.name, entry, new, unknown - new)
        return held

    def _entry(self, name: str) -> dict[str, Any]:
        if self._sources is None:
            self._sources = _read(self._path)
        entry = self._sources.get(name)
        good = isinstance(entry, dict) and all(
            isinstance(entry.get(key), list) for key in ("held", "lacking")
        )
        return entry if good and isinstance(entry, dict) else {}

    def _note(
        self, name: str, entry: Mapping[str, Any], held: Iterable[str], lacking: Iterable[str]
    ) -> None:
        value = {
            "signature": entry["signature"],
            "held": sorted({*entry["held"], *held}),
            "lacking": sorted({*entry["lacking"], *lacking}),
        }
        self._sources = {**(self._sources or {}), name: value}
        self._changed = True

    def save(self) -> None:
        """Keep what is known for the next run, but of sources that are gone."""
        if self._changed:
            known = (self._sources or {}).items()
            kept = {name: value for name, value in known if (self._root / name).exists()}
            data = json.dumps(kept, indent=1, sort_keys=True).encode("ascii")
            # In a folder that can't be written to, the sources are asked again.
            with suppress(KbenchError):
                write_whole(self._path, data + b"\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _signature(path: Path) -> str:
    """Stat values of a source, other ones once it has got a commit that it lacked."""
    objects = None if path.is_file() else _objects(path)
    places = [path] if objects is None else [objects.parent / name for name in _TELLING]
    return digest.of_text(" ".join(map(_stat, places)))[:32]


def _stat(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return "-"
    return f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"


def _asked(root: Path, source: Source, commits: Collection[str]) -> frozenset[str]:
    """Those of the commits that a source holds, as git says."""
    lines = "".join(f"{commit}\n" for commit in sorted(commits)).encode("ascii")
    with _borrowing(root, source, len(next(iter(commits)))) as store:
        said = store.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=lines)
    pairs = (line.split(" ", 1) for line in said.stdout.decode().splitlines())
    return frozenset(pair[0] for pair in pairs if pair[1:] == ["commit"])


def _one_line(name: str, error: Exception) -> str:
    reason = _last(error) if isinstance(error, ProcessError) else str(error)
    return reason if reason.startswith(name) else f"{name}: can't be read: {reason}"


@contextmanager
def _borrowing(root: Path, source: Source, length: int) -> Iterator[ObjectStore]:
    """A store for as long as it is used, with the objects of a source; ids of so many digits."""
    objects = _unbundled(root, source) if source.path.is_file() else objects_of(source.path)
    with tempfile.TemporaryDirectory(prefix="kbench-base-") as scratch:
        store = ObjectStore(Path(scratch) / "store", "sha1" if length == 40 else "sha256")
        store.borrow(objects)
        yield store


def _unbundled(root: Path, source: Source) -> Path:
    """The objects of a bundle, unpacked once for all that ask."""
    stem = digest.of_text(source.name)[:16]
    folder = root.absolute() / STATE / FOLDER / f"{stem}-{_signature(source.path)}.git"
    if folder.is_dir():
        return folder / "objects"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as scratch:
        store = ObjectStore(Path(scratch) / "store", _algorithm(source.path))
        try:
            store.git("bundle", "unbundle", str(source.path.absolute()))
        except ProcessError as error:
            raise KbenchError(f"{source.name}: can't be read: {_last(error)}") from error
        for older in folder.parent.glob(f"{stem}-*.git"):
            shutil.rmtree(older, ignore_errors=True)
        # Another run may have been faster.
        with suppress(OSError):
            store.folder.rename(folder)
    return folder / "objects"


def _algorithm(bundle: Path) -> str:
    with bundle.open("rb") as file:
        return "sha256" if b"@object-format=sha256\n" in file.read(4096) else "sha1"


def _last(error: ProcessError) -> str:
    lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "it took too long" if error.code is None else "no reason"


def fetched(root: Path, url: str, commit: str, *, timeout: float = _FETCH_SEC) -> Source | None:
    """Fetch the commit from a URL into `.kbench/upstream`, unless it is there already.

    None where the repository doesn't have it. Raises `KbenchError` in one line where it can't be
    asked: a URL that isn't HTTP, no answer, no access, no answer in time.
    """
    if not _URL.fullmatch(url) or not _COMMIT.fullmatch(commit):
        raise KbenchError(f"{url[:200]!r}: only http and https URLs are fetched from, by commit id")
    folder = root.absolute() / STATE / FOLDER / f"fetched-{digest.of_text(url)[:16]}.git"
    with _locked(folder.with_suffix(".lock")):
        store = _Kept(folder, "sha1" if len(commit) == 40 else "sha256")
        if store.type_of(commit) != "commit":
            _fetch(store, url, commit, timeout)
        held = store.type_of(commit) == "commit"
    return Source(name=url, path=folder) if held else None


class _Kept(ObjectStore):
    """A store that stays between runs."""

    def __init__(self, folder: Path, algorithm: str) -> None:
        if (folder / "config").is_file():
            self.folder, self.algorithm = folder, algorithm
        else:
            shutil.rmtree(folder, ignore_errors=True)
            super().__init__(folder, algorithm)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise KbenchError(f"{path}: can't be written: {error.strerror}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(store: ObjectStore, url: str, commit: str, timeout: float) -> None:
    """One commit without its history where the server gives that, else all branches and tags."""
    try:
        store.fetch(url, [commit], timeout=timeout, depth=1)
    except ProcessError as error:
        if b"not our ref" in error.stderr:
            return
        if not _ONLY_WHOLE.search(error.stderr):
            raise _unfetched(url, error, timeout) from error
        heads = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
        try:
            store.fetch(url, heads, timeout=timeout)
        except ProcessError as second:
            raise _unfetched(url, second, timeout) from second


def _unfetched(url: str, error: ProcessError, timeout: float) -> KbenchError:
    reason = f"no end within {timeout:g} s" if error.code is None else _last(error)
    return KbenchError(
        f"{url}: can't be fetched: {reason}; give a mirror (upstream.mirrors in kbench.toml), "
        "or set upstream.fetch = false"
    )


class BaseCommit:
    """One commit of an upstream, to look at and to try patches on."""

    def __init__(self, store: ObjectStore, commit: str) -> None:
        """The store must hold the commit, and is written to."""
        self.commit = commit
        self._store = store
        self._index = store.folder / "base-index"
        self._tried = store.folder / "tried-index"

    def files(self) -> Mapping[str, tuple[str, str]]:
        """Every file of the commit: path → (mode, id). A submodule is one with mode 160000."""
        tree = self._store.tree(self.commit)
        return {path: entry for path, entry in tree.items() if entry[0] != "040000"}

    def lacks(self, ids: Iterable[str]) -> bool:
        """Whether one of the objects isn't there, as in a partial clone."""
        return "missing" in self._types(ids).values()

    def _types(self, ids: Iterable[str]) -> dict[str, str]:
        asked = "".join(f"{object_id}\n" for object_id in ids).encode("ascii")
        form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        said = self._store.git("cat-file", form, stdin=asked, timeout=_TRY_SEC).stdout.decode()
        return {line.split(" ")[0]: line.split(" ", 1)[1] for line in said.splitlines()}

    def beyond(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names (ids, whole or shortened) that are commits the base doesn't reach."""
        asked = list(dict.fromkeys(names))[:_MOST_NAMES]
        form = "--batch-check=%(objectname) %(objecttype)"
        lines = "".join(f"{name}\n" for name in asked).encode("ascii")
        said = self._store.git("cat-file", form, stdin=lines, timeout=_TRY_SEC).stdout.decode()
        found = dict(zip(asked, said.splitlines(), strict=False))
        commits = {n: line.split(" ")[0] for n, line in found.items() if line.endswith(" commit")}
        return frozenset(name for name, commit in commits.items() if self._is_beyond(commit))

    def holding(self, words: Iterable[str]) -> frozenset[str]:
        """Those of the words that stand whole in the commit's texts; 50 are looked for at most."""
        return frozenset(w for w in list(dict.fromkeys(words))[:_MOST_NAMES] if self._holds(w))

    def _holds(self, word: str) -> bool:
        options = ("--quiet", "-I", "--fixed-strings", "--word-regexp")
        try:
            self._store.git("grep", *options, "-e", word, self.commit, "--", timeout=_TRY_SEC)
        except ProcessError as error:
            if error.code != 1:
                raise
            return False
        return True

    def _is_beyond(self, commit: str) -> bool:
        argv = ("rev-list", "--max-count=1", commit, f"^{self.commit}")
        return bool(self._store.git(*argv, timeout=_TRY_SEC).stdout)

    def contents(self, ids: Iterable[str]) -> Mapping[str, bytes]:
        """What is in these blobs; those over 1 MiB are left out, and all beyond 64 MiB together."""
        chosen: list[str] = []
        left = _MOST_BYTES
        for object_id, said in self._types(list(dict.fromkeys(ids))[:_MOST_FILES]).items():
            kind, _, size = said.partition(" ")
            if kind == "blob" and int(size) <= min(left, _MOST_OF_FILE):
                chosen.append(object_id)
                left -= int(size)
        return self._blobs(chosen)

    def _blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        asked = "".join(f"{object_id}\n" for object_id in ids).encode("ascii")
        data = self._store.git("cat-file", "--batch", stdin=asked, timeout=_TRY_SEC).stdout
        found, at = {}, 0
        for object_id in ids:
            end = data.index(b"\n", at)
            size = int(data[at:end].rpartition(b" ")[2])
            found[object_id] = data[end + 1 : end + 1 + size]
            at = end + size + 2
        return found

    def apply(self, *patches: bytes, instead: Mapping[str, bytes] | None = None) -> Applied:
        """What git makes of the patches, one after another, on the commit.

        `instead` are files of the commit and other contents that they have before.
        """
        try:
            self._begin(instead or {})
            for patch in patches:
                options = ("--cached", "--whitespace=nowarn", "-")
                self._git("apply", *options, stdin=patch)
            raw = self._git(*_RAW, self.commit)
        except ProcessError as error:
            reason = "took too long" if error.code is None else _reason(error)
            return Applied(reason=reason, said=error.stderr[:1_000_000], changed={})
        return Applied(reason="", said=b"", changed=dict(_changed(raw)))

    def _begin(self, instead: Mapping[str, bytes]) -> None:
        """Make the index that of the commit, but for these files."""
        if not self._index.exists():
            self._store.git("read-tree", self.commit, index=self._index, timeout=_TRY_SEC)
        shutil.copyfile(self._index, self._tried)
        for path, content in instead.items():
            made = self._git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
            line = f"100644 {made}\t".encode() + os.fsencode(path) + b"\0"
            self._git("update-index", "-z", "--index-info", stdin=line)

    def _git(self, *argv: str, stdin: bytes | None = None) -> bytes:
        return self._store.git(*argv, stdin=stdin, index=self._tried, timeout=_TRY_SEC).stdout


def _reason(error: ProcessError) -> str:
    lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
    return "; ".join(line.removeprefix("error: ")[:160] for line in lines[:2]) or "no reason given"


def _changed(raw: bytes) -> Iterator[tuple[str, tuple[str, str] | None]]:
    fields = raw.decode("utf-8", "surrogateescape").split("\0")[:-1]
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        _, mode, _, object_id, _ = head.split(" ")
        yield path, None if mode == "000000" else (mode, object_id)


@contextmanager
def opened(root: Path, holder: Holder) -> Iterator[BaseCommit | None]:
    """A base commit; None where nobody holds it. Raises `KbenchError` where it can't be had."""
    source = holder.source
    if source is None and holder.url:
        source = fetched(root, holder.url, holder.commit)
    if source is None:
        yield None
        return
    with _borrowing(root, source, len(holder.commit)) as store:
        yield BaseCommit(store, holder.commit)
