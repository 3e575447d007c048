"""Git on repositories that may be hostile: their objects are copied into a store of our own first.

Promises: git never sees a foreign configuration, hook, alternate, graft, replacement, commit-graph
or index; every object's id is computed anew from its content; every call has a time limit. What is
broken in a foreign store comes back as reasons, not as errors. Leaves to others what the objects
should be.
"""

import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from kbench_build.errors import KbenchError
from kbench_build.rim.process import Completed, ProcessError, run

_TIMEOUT = 900.0
_LOOSE = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})")
_PACK = re.compile(r"objects/pack/[^/]*\.pack")


def git_version() -> str:
    """What `git --version` says."""
    return run(["git", "--version"], timeout=30).stdout.decode().strip()


# What a person's network needs, and says nothing about git.
_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
# A server that says nothing for so long is given up; git's own helper ends with that.
_PATIENCE = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60")


def _environment(folder: Path) -> dict[str, str]:
    """Git's whole environment: no configuration but the folder's own, no network, no prompts."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_DIR": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_OPTIONAL_LOCKS": "0",
    }


class ObjectStore:
    """A bare repository of our own, to hold and question objects from elsewhere."""

    def __init__(self, folder: Path, algorithm: str = "sha1") -> None:
        """Make it at `folder`, which must not exist yet, for `sha1` or `sha256` ids."""
        self.folder = folder
        self.algorithm = algorithm
        for part in ("objects/info", "objects/pack", "refs/heads"):
            (folder / part).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        (folder / "config").write_text(_config(algorithm), encoding="ascii")

    def git(
        self,
        *argv: str,
        stdin: bytes | None = None,
        stdout: IO[bytes] | None = None,
        index: Path | None = None,
        timeout: float = _TIMEOUT,
    ) -> Completed:
        """Run git on this store. `index` is the index file to use, if any; `stdout` see `run`."""
        env = _environment(self.folder)
        if index is not None:
            env["GIT_INDEX_FILE"] = str(index)
        command = ["git", "--no-pager", *argv]
        return run(command, timeout=timeout, cwd=self.folder, env=env, stdin=stdin, stdout=stdout)

    def fetch(self, url: str, wanted: Sequence[str], *, timeout: float, depth: int = 0) -> None:
        """Fetch commits or refs over HTTP; no credentials are known, and none asked for."""
        env = {**_environment(self.folder), "GIT_ALLOW_PROTOCOL": "http:https"}
        env |= {name: os.environ[name] for name in _NETWORK if name in os.environ}
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
        options += [f"--depth={depth}"] if depth else []
        command = ["git", *_PATIENCE, "fetch", *options, "--end-of-options", url, *wanted]
        run(command, timeout=timeout, cwd=self.folder, env=env)

    def take_in(self, objects: Mapping[str, Path]) -> tuple[tuple[str, str], ...]:
        """Take in the files of a foreign `objects/` folder, by their names there; they are moved.

        Returns the names that aren't what git writes, each with the reason. Files that are neither
        packs, their `.idx` and `.rev`, nor loose objects are left aside: their names say enough.
        """
        damaged: dict[str, str] = {}
        packs = [name for name in objects if _PACK.fullmatch(name)]
        for number, name in enumerate(sorted(packs)):
            self._take_pack(name, number, objects, damaged)
        for name, path in objects.items():
            stem, dot, kind = name.rpartition(".")
            if _LOOSE.fullmatch(name):
                self._take_loose(name, path, damaged)
            elif dot and kind in ("idx", "rev") and f"{stem}.pack" not in objects:
                damaged[name] = "belongs to no pack"
        return tuple(sorted(damaged.items()))

    def _take_pack(
        self, name: str, number: int, objects: Mapping[str, Path], damaged: dict[str, str]
    ) -> None:
        stem = name.removesuffix(".pack")
        mine = self.folder / "objects" / "pack" / f"pack-{number}.pack"
        objects[name].rename(mine)
        kinds = [kind for kind in ("idx", "rev") if f"{stem}.{kind}" in objects]
        made = mine.with_suffix(".idx")
        options = ["--rev-index"] if "rev" in kinds else []
        try:
            self.git("index-pack", "--threads=1", *options, "-o", str(made), str(mine))
        except ProcessError as error:
            mine.unlink()
            damaged[name] = f"can't be read: {last_line(error.stderr)}"
            return
        if "idx" not in kinds:
            damaged[name] = "has no .idx"
        for kind in kinds:
            if not _same(mine.with_suffix(f".{kind}"), objects[f"{stem}.{kind}"]):
                damaged[f"{stem}.{kind}"] = "isn't what git makes from the pack"

    def _take_loose(self, name: str, path: Path, damaged: dict[str, str]) -> None:
        wanted = name.removeprefix("objects/").replace("/", "")
        reason = _loose_problem(path, wanted, self.algorithm)
        if reason:
            damaged[name] = reason
            return
        mine = self.folder / name
        mine.parent.mkdir(exist_ok=True)
        path.rename(mine)

    def fill(self, folder: Path, *, index: Path, paths: Iterable[str] | None = None) -> None:
        """Write the files of an index below a folder, with the line ends that they ask for.

        `paths` are those that are wanted; all of them without it.
        """
        # The store is bare; this one call has a working tree.
        options = ("-c", "core.bare=false", f"--work-tree={folder}", "checkout-index", "--force")
        if paths is None:
            self.git(*options, "--all", "--quiet", index=index)
        else:
            asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
            self.git(*options, "-z", "--stdin", stdin=asked, index=index)

    def borrow(self, objects: Path) -> None:
        """Use the objects of a folder that isn't hostile, without copying them."""
        alternates = self.folder / "objects" / "info" / "alternates"
        alternates.write_text(f"{objects.resolve()}\n", encoding="utf-8")

    def cut_history(self, commits: Iterable[str]) -> None:
        """From now on these commits have no parents, as in a shallow clone."""
        lines = "".join(f"{commit}\n" for commit in sorted(set(commits)))
        if lines:
            (self.folder / "shallow").write_text(lines, encoding="ascii")

    def stored(self) -> dict[str, str]:
        """Every object in the store: id → type."""
        form = "--batch-check=%(objectname) %(objecttype)"
        lines = self.git("cat-file", "--batch-all-objects", form).stdout.decode().splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def type_of(self, object_id: str) -> str:
        """An object's type, or `missing`."""
        asked = f"{object_id}\n".encode()
        said = self.git("cat-file", "--batch-check=%(objecttype)", stdin=asked).stdout.decode()
        return said.split()[-1]

    def reachable(self, commits: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Ids that the commits reach, and those of them that the store lacks.

        Raises `ProcessError` where a commit of the history is missing.
        """
        wanted = "".join(f"{commit}\n" for commit in commits).encode()
        options = ("--objects", "--no-object-names", "--missing=print", "--stdin")
        lines = self.git("rev-list", *options, stdin=wanted).stdout.decode().split()
        missing = frozenset(line[1:] for line in lines if line.startswith("?"))
        return frozenset(line.lstrip("?") for line in lines), missing

    def tree(self, commit: str) -> dict[str, tuple[str, str]]:
        """Every path of a commit's tree, folders (mode 040000) too: path → (mode, id)."""
        listing = self.git("ls-tree", "-r", "-t", "-z", "--full-tree", commit).stdout
        entries = {}
        for line in listing.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            head, _, path = line.partition("\t")
            mode, _, object_id = head.split(" ")
            entries[path] = (mode, object_id)
        return entries

    def root_tree(self, commit: str) -> str:
        """The id of a commit's tree."""
        return self.git("rev-parse", "--verify", f"{commit}^{{tree}}").stdout.decode().strip()

    def tree_after(self, start: str, patches: Sequence[bytes]) -> str:
        """The id of the tree that patches make, one after another, of a commit or tree.

        The new objects are written to the store. Raises `ProcessError` where one doesn't apply.
        """
        index = self.folder / "patched-index"
        self.git("read-tree", start, index=index)
        for patch in patches:
            self.git("apply", "--cached", "--whitespace=nowarn", "-", stdin=patch, index=index)
        return self.git("write-tree", index=index).stdout.decode().strip()

    def blobs(self, ids: Iterable[str], largest: int) -> Iterator[tuple[str, bytes]]:
        """Id and content of those that are files, up to a size; others are passed over."""
        asked = "".join(f"{each}\n" for each in ids).encode()
        form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        lines = self.git("cat-file", form, stdin=asked).stdout.decode().splitlines()
        for object_id, kind, size in (line.split(" ") for line in lines if line.count(" ") == 2):
            if kind == "blob" and int(size) <= largest:
                yield object_id, self.git("cat-file", "blob", object_id).stdout

    def after(self, commit: str, patches: Sequence[bytes]) -> frozenset[str]:
        """Ids of the blobs and trees that differ once the patches are applied one after another.

        The new objects are written to the store. Raises `ProcessError` where one doesn't apply.
        """
        root = self.tree_after(commit, patches)
        options = ("-r", "-t", "--raw", "-z", "--no-renames", "--no-abbrev")
        raw = self.git("diff-tree", *options, commit, root).stdout.split(b"\0")
        changed = {field.split(b" ")[3].decode() for field in raw if field.startswith(b":")}
        return frozenset(i for i in {*changed, root} if i.strip("0"))


def _config(algorithm: str) -> str:
    lines = ["[core]", "\tbare = true", "\tcommitGraph = false", "\tmultiPackIndex = false"]
    if algorithm == "sha256":
        lines += ["\trepositoryformatversion = 1", "[extensions]", "\tobjectFormat = sha256"]
    return "\n".join([*lines, "[gc]", "\tauto = 0", ""])


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and one.read_bytes() == other.read_bytes()


def last_line(stderr: bytes) -> str:
    """The last thing that git said, in one line of bounded length."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "no reason given"


def _loose_problem(path: Path, wanted: str, algorithm: str) -> str:
    """Why a loose object isn't the one that its name says; empty when it is."""
    running = hashlib.new(algorithm, usedforsecurity=False)
    inflater = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            pending = file.read(1 << 16)
            while pending and not inflater.eof:
                running.update(inflater.decompress(pending, 1 << 20))
                pending = inflater.unconsumed_tail or file.read(1 << 16)
            more = bool(inflater.unused_data or file.read(1))
    except zlib.error as error:
        return f"isn't an object: {error}"
    if not inflater.eof:
        return "ends in the middle"
    if more:
        return "has bytes after the object"
    return "" if running.hexdigest() == wanted else "isn't the object that its name says"


def ids_beyond(upstream: Path, base: str, folder: Path) -> frozenset[str] | None:
    """Ids of everything in an upstream repository that a commit doesn't reach.

    `upstream` is a bundle or a git folder, `folder` a place for a store (must not exist yet). None
    when the upstream doesn't have the commit. Raises `KbenchError` when it can't be read.
    """
    store = ObjectStore(folder, "sha1" if len(base) == 40 else "sha256")
    heads = (
        _heads_of_folder(store, upstream)
        if upstream.is_dir()
        else _heads_of_bundle(store, upstream)
    )
    if store.type_of(base) != "commit":
        return None
    everything, _ = store.reachable(heads)
    known, _ = store.reachable([base])
    return everything - known


def _heads_of_bundle(store: ObjectStore, bundle: Path) -> list[str]:
    if not bundle.is_file():
        raise KbenchError(f"{bundle}: no such bundle or git folder")
    lines = store.git("bundle", "unbundle", str(bundle.resolve())).stdout.decode().splitlines()
    return [line.split(" ", 1)[0] for line in lines]


def _heads_of_folder(store: ObjectStore, upstream: Path) -> list[str]:
    folder = upstream / ".git" if (upstream / ".git").is_dir() else upstream
    store.borrow(folder / "objects")
    return sorted(set(refs_of(folder).values()))


def refs_of(folder: Path) -> dict[str, str]:
    """Every ref of a git folder and the object that it names, HEAD too.

    The refs are read with the maintainer's own repository as git's; nothing else ever is.
    """
    env = _environment(folder.resolve())
    command = ["git", "for-each-ref", "--format=%(objectname) %(refname)"]
    lines = run(command, timeout=_TIMEOUT, env=env).stdout.decode("utf-8", "surrogateescape")
    refs = {name: found for found, _, name in (line.partition(" ") for line in lines.splitlines())}
    head = ["git", "rev-parse", "--quiet", "--verify", "HEAD^{commit}"]
    said = run(head, timeout=_TIMEOUT, env=env, accept=(0, 1, 128)).stdout.decode().strip()
    return {**refs, "HEAD": said} if said else refs
