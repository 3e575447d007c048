"""The lock: the machine-readable manifest of a release, with every digest and the evidence.

Promises: one type, built from values and read back from canonical JSON with errors that name the
path to the bad key; the digests that it states can be computed again from its own list of files.
Leaves to others what is on disk, what a change means (`rules/changes.py`) and what is refused.

The parts of the content hash are the tasks, named `tasks/<id>`, and the bases, named
`bases/<repo>:<tag> <dockerfile>`. A base is the tree of its folder `bases/<repo>/` without the
Dockerfiles of the repository's other bases, so that editing one base leaves the others alone.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Literal

from kbench_build import digest
from kbench_build.model import Base, FileEntry, Report
from kbench_build.rules.records import FormatError, from_json, to_json

SCHEMA = 1

# A value of a report that is longer than this is kept as its digest and its number of entries.
_CONDENSE_BYTES = 4096

# What reports repeat for people, and what stands in the lock by itself.
_ELSEWHERE = frozenset({"details", "suppressed"})


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one step proved about one subject: the head of its report, and its data, condensed.

    `inputs` is the digest of everything that the step read, `made` the id of what it made: an
    image's id (empty where it makes nothing).
    """

    ok: bool
    inputs: str
    summary: str
    made: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LockedTask:
    """One task. `digest` is ours, `harbor` is Harbor's, of the same files.

    `bases` are the bases that its image stands on directly, `recipe` the digest of what the image
    is made from (empty where no image is built), `settings` the run settings of its `task.toml`.
    `verifier` is "shared" where its verifier is the one that the lock describes, byte by byte.
    `evidence` has an entry for each step that is required or was run; None says that the step
    doesn't apply to this task.
    """

    id: str
    digest: str
    harbor: str
    harbor_name: str | None
    bases: tuple[str, ...]
    image: str
    recipe: str
    settings: Mapping[str, Any]
    verifier: Literal["shared", "own"]
    license: str
    source: str
    change: str
    base_commit: str
    evidence: Mapping[str, Evidence | None]


@dataclass(frozen=True, kw_only=True)
class LockedBase:
    """One base, `repo:tag`. `parents` are the bases that it is made from.

    `digest` covers its folder, `recipe` only what the build sees of it (empty where unknown).
    """

    name: str
    dockerfile: str
    digest: str
    image: str
    recipe: str
    parents: tuple[str, ...]
    evidence: Mapping[str, Evidence | None]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the release had to prove: the required steps, and how often a selfcheck repeats."""

    require: tuple[str, ...]
    runs: int


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The tarball. `tar` is the BLAKE3 of the tar stream, whatever it is compressed with.

    The same stream compresses to other bytes with another zstd, so its version is recorded.
    """

    file: str
    size: int
    blake3: str
    sha256: str
    tar: str
    tar_size: int
    format: str
    compression: str
    zstd: str


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """The verifier that tasks share: its version, its files' digests, and the digest over them."""

    version: str
    digest: str
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SuppressedFinding:
    """A finding that a maintainer answers for, and why."""

    rule: str
    file: str
    message: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The release that this one is compared with."""

    version: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Lock:
    """A release. `content` is the content hash: over tasks and bases, not over name and version.

    `files` are the members of the tarball, below its one folder `<name>-<version>/`. `harbor` is
    Harbor's dataset digest, None where not every task has a name that Harbor accepts. `schemas` and
    `documents` are digests by file name; `documents` stand beside the lock. `evidence` is about the
    dataset as a whole, by `step/subject`.
    """

    schema: int = SCHEMA
    tool: str
    name: str
    version: str
    namespace: str
    description: str
    content: str
    policy: Policy
    archive: Archive
    harbor: str | None
    verifier: Verifier
    schemas: Mapping[str, str]
    documents: Mapping[str, str]
    previous: Previous | None
    bases: tuple[LockedBase, ...]
    tasks: tuple[LockedTask, ...]
    evidence: Mapping[str, Evidence | None]
    suppressed: tuple[SuppressedFinding, ...]
    files: tuple[FileEntry, ...]

    @property
    def folder(self) -> str:
        """The release's folder below `dist/`, and the one folder in its tarball."""
        return folder_name(self.name, self.version)


def folder_name(name: str, version: str) -> str:
    """`<name>-<version>`."""
    return f"{name}-{version}"


def lock_bytes(lock: Lock) -> bytes:
    """The canonical JSON of a lock."""
    # Piece by piece: the whole as dictionaries would take several times the memory of the text.
    pieces = {field.name: _pieces(getattr(lock, field.name)) for field in fields(lock)}
    body = b",".join(b'"%s":%s' % (name.encode(), pieces[name]) for name in sorted(pieces))
    return b"{%s}\n" % body


def _pieces(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"[%s]" % b",".join(digest.canonical_json(to_json(item))[:-1] for item in value)
    return digest.canonical_json(to_json(value))[:-1]


@dataclass(frozen=True, kw_only=True)
class LockHead:
    """What tells one release from another."""

    name: str
    version: str
    content: str


def parse_lock(data: bytes) -> Lock:
    """Read a lock. Raises `FormatError` that names the path to the bad key."""
    return from_json(Lock, _object(data))


def parse_head(data: bytes) -> LockHead:
    """Read what tells a lock's release from another, and no more. Raises `FormatError`."""
    value = _object(data)
    return from_json(LockHead, {key: value.get(key) for key in ("name", "version", "content")})


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"isn't JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError("must be a JSON object")
    if value.get("schema", SCHEMA) != SCHEMA:
        raise FormatError(
            f"schema: this lock has format {value['schema']!r}, and only format {SCHEMA} "
            "can be read here: use a newer kbench-build"
        )
    return value


def task_groups(files: Iterable[FileEntry]) -> Iterator[tuple[str, list[FileEntry]]]:
    """Each task's files, their paths relative to the task's folder, one task after the other."""
    ordered = sorted(files, key=lambda f: f.path)
    for task, group in groupby(ordered, key=_task_of):
        if task:
            prefix = len(f"tasks/{task}/")
            yield task, [_moved(f, prefix) for f in group]


def _task_of(entry: FileEntry) -> str:
    folder, _, rest = entry.path.partition("/")
    task, mark, _ = rest.partition("/")
    return task if folder == "tasks" and mark else ""


def _moved(entry: FileEntry, cut: int) -> FileEntry:
    return FileEntry(mode=entry.mode, path=entry.path[cut:], digest=entry.digest, size=entry.size)


def files_of_base(
    files: Iterable[FileEntry], base: Base, bases: Iterable[Base]
) -> tuple[FileEntry, ...]:
    """A base's files: its folder, without the Dockerfiles of the repository's other bases."""
    others = {b.dockerfile for b in bases if b.repo == base.repo} - {base.dockerfile}
    prefix = f"{base.context}/"
    return tuple(
        _moved(f, len(prefix)) for f in files if f.path.startswith(prefix) and f.path not in others
    )


def as_bases(bases: Iterable[LockedBase]) -> tuple[Base, ...]:
    """The manifest's lines, as the lock knows them."""
    return tuple(_as_base(base) for base in bases)


def _as_base(base: LockedBase) -> Base:
    repo, _, tag = base.name.partition(":")
    return Base(repo=repo, tag=tag, dockerfile=base.dockerfile, line=0)


def digests_of(
    files: Iterable[FileEntry], bases: Iterable[Base], tasks: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The digest of each task by its id, and of each base by its name, from the list of files."""
    listed, all_bases = tuple(files), tuple(bases)
    found = {task: digest.of_tree(group) for task, group in task_groups(listed)}
    base_files = [f for f in listed if f.path.startswith("bases/")]
    return (
        {task: found.get(task, digest.of_tree(())) for task in tasks},
        {b.name: digest.of_tree(files_of_base(base_files, b, all_bases)) for b in all_bases},
    )


def content_of(
    tasks: Mapping[str, str], bases: Mapping[str, str], dockerfiles: Mapping[str, str]
) -> str:
    """The content hash, from digests by task id and by base name, and the bases' Dockerfiles."""
    parts = {f"tasks/{task}": value for task, value in tasks.items()}
    parts |= {f"bases/{name} {dockerfiles[name]}": value for name, value in bases.items()}
    return digest.of_parts(parts)


def verifier_of(version: str, files: Mapping[str, str]) -> Verifier:
    """The shared verifier, from its files' digests by path in a task."""
    return Verifier(version=version, digest=digest.of_parts(files), files=dict(files))


def with_verifier(files: Iterable[FileEntry], verifier: Verifier) -> frozenset[str]:
    """The tasks that hold the verifier, from the list of files."""
    return frozenset(task for task, group in task_groups(files) if has_verifier(group, verifier))


def has_verifier(files: Iterable[FileEntry], verifier: Verifier) -> bool:
    """Whether a task's files hold the verifier byte by byte."""
    own = {f.path: f.digest for f in files}
    return bool(verifier.files) and all(
        own.get(path) == value for path, value in verifier.files.items()
    )


def evidence_of(report: Report) -> Evidence:
    """A report as evidence: each long part of its data becomes its digest and its length.

    The digest is `digest.of_json` of the part, so a full report can be compared with the lock.
    """
    data = {str(k): _condensed(v) for k, v in report.data.items() if k not in _ELSEWHERE}
    return Evidence(
        ok=report.ok,
        inputs=report.inputs,
        summary=_encodable(report.summary),
        made=report.made,
        data=data,
    )


def _condensed(value: Any) -> Any:
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, Mapping):
        small: Any = {_encodable(str(key)): _condensed(item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        small = [_condensed(item) for item in value]
    else:
        return value
    whole = digest.canonical_json(small)
    if len(whole) <= _CONDENSE_BYTES:
        return small
    return {"blake3": digest.of_bytes(whole), "entries": len(value)}


def _encodable(text: str) -> str:
    """The text with lone surrogates, which no UTF-8 file can hold, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def inconsistencies(lock: Lock) -> list[tuple[str, str]]:
    """What a lock says about itself that isn't so, as (path to the key, message)."""
    bases = as_bases(lock.bases)
    task_digests, base_digests = digests_of(lock.files, bases, [t.id for t in lock.tasks])
    found = [
        *_repeated("tasks", [t.id for t in lock.tasks]),
        *_repeated("bases", [b.name for b in lock.bases]),
        *_repeated("files", [f.path for f in lock.files]),
        *_wrong_tasks(lock, task_digests),
    ]
    for index, base in enumerate(lock.bases):
        if base.digest != base_digests[base.name]:
            text = f"isn't the digest of the files of base {base.name}"
            found.append((f"bases[{index}].digest", text))
    if lock.content != content_of(
        task_digests, base_digests, {b.name: b.dockerfile for b in bases}
    ):
        found.append(("content", "isn't the digest of the lock's tasks and bases"))
    if lock.verifier.digest != digest.of_parts(lock.verifier.files):
        found.append(("verifier.digest", "isn't the digest of the verifier's files"))
    return found


def _repeated(key: str, names: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, f"{name} stands here {n} times") for name, n in Counter(names).items() if n > 1]


def _wrong_tasks(lock: Lock, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    shared = with_verifier(lock.files, lock.verifier)
    found: list[tuple[str, str]] = []
    for index, task in enumerate(lock.tasks):
        if task.digest != digests[task.id]:
            text = f"isn't the digest of the files of task {task.id}"
            found.append((f"tasks[{index}].digest", text))
        if (task.verifier == "shared") != (task.id in shared):
            found.append((f"tasks[{index}].verifier", f"isn't true of the files of {task.id}"))
    stray = sorted({_task_of(f) for f in lock.files} - digests.keys() - {""})
    return found + [("files", f"tasks/{name}/ belongs to no task of the lock") for name in stray]


def unmet_policy(lock: Lock) -> list[tuple[str, str]]:
    """Where the evidence isn't what the policy requires, as (path to the key, message)."""
    found: list[tuple[str, str]] = []
    for index, task in enumerate(lock.tasks):
        for step in lock.policy.require:
            path = f"tasks[{index}].evidence.{step}"
            if step not in task.evidence:
                found.append((path, f"is missing: the policy requires {step} of {task.id}"))
                continue
            evidence = task.evidence[step]
            if evidence is not None and not evidence.ok:
                found.append((path, f"says that {task.id} failed, which the policy doesn't allow"))
    return found
