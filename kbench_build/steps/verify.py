"""Check a release: everything in its folder against its lock, and the lock against itself.

Promises: the release folder is all it needs (given a way to look at images, it checks those too);
wherever the folder was moved to and whatever it is called now; every difference is named, with the
file or the member it is in; nothing is unpacked. A damaged tarball or lock is a finding.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import FileEntry, Finding, Report
from kbench_build.rim import archive, releases
from kbench_build.rim.tree import scan_tree
from kbench_build.rules import findings as finding_rules
from kbench_build.rules import harbor
from kbench_build.rules.changes import parse_changes
from kbench_build.rules.checksums import blamed, parse_sums
from kbench_build.rules.images import LABEL_RECIPE
from kbench_build.rules.lock import Lock, inconsistencies, parse_lock, unmet_policy
from kbench_build.rules.records import FormatError

STEP = "verify"

_DOCUMENTS = (releases.CARD, releases.CHANGELOG, releases.CHANGES)
_AGAIN = "Get this release again from where it is published."
# A member's headers: its own, an extended one with its content, and the padding of both.
_MOST_OVERHEAD = 8192

Labels = Callable[[str], Mapping[str, str] | None]


@dataclass(kw_only=True)
class _Found:
    """What was read from the tarball: members below its one folder, and what is wrong."""

    members: dict[str, archive.Member] = field(default_factory=dict)
    stream: archive.Stream | None = None
    findings: list[Finding] = field(default_factory=list)


def inputs(folder: Path) -> str:
    """Digest of all that is verified: the files in the release's folder."""
    return digest.of_tree(scan_tree(folder))


def verify(folder: Path, *, labels: Labels | None = None, inputs: str = "") -> Report:
    """Check the release in `folder`. The report's data has `content`, `tasks` and `findings`.

    `labels` gives the labels of the image with a name, None where there is none. Raises
    `KbenchError` where the folder isn't one or can't be read.
    """
    began = time.monotonic()
    if not folder.is_dir():
        raise KbenchError(f"{folder}: isn't a folder: name the folder of a release")
    findings = list(_checksum_findings(folder))
    lock, lock_findings = _lock(folder)
    findings += lock_findings
    # A damaged lock would only accuse the others: what the checksum files say must do.
    if lock is not None and not any(f.file == releases.LOCK for f in findings):
        findings += _lock_findings(lock)
        findings += _document_findings(folder, lock)
        findings += _archive_findings(folder, lock)
        findings += _image_findings(lock, labels) if labels else ()
    ordered = finding_rules.in_order(dict.fromkeys(findings))
    ok = not any(f.severity == "error" for f in ordered)
    return Report(
        step=STEP,
        subject=folder.resolve().name,
        inputs=inputs,
        ok=ok,
        summary=_summary(lock, ordered, ok=ok),
        seconds=time.monotonic() - began,
        data={
            "content": lock.content if lock else "",
            "tasks": len(lock.tasks) if lock else 0,
            "findings": [finding_rules.to_json(f) for f in ordered],
        },
    )


def _summary(lock: Lock | None, findings: tuple[Finding, ...], *, ok: bool) -> str:
    if lock and ok:
        return f"{lock.folder} is whole: {len(lock.tasks)} tasks, content {lock.content[:16]}"
    errors = [f for f in findings if f.severity == "error"]
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"


def _checksum_findings(folder: Path) -> Iterator[Finding]:
    """Each file against both checksum files, and each of these against the other."""
    names, others = releases.entries_of(folder)
    stated: dict[str, dict[str, str]] = {}
    for name in (releases.B3SUMS, releases.SHA256SUMS):
        data = releases.read_if_there(folder / name) if name in names else None
        if data is None:
            yield _error("verify/missing", name, "is missing")
            continue
        stated[name], wrong = parse_sums(data)
        for message in wrong:
            yield _error("verify/checksum-file", name, message)
    named = {name for digests in stated.values() for name in digests}
    sums = {name: releases.sums_of(folder / name) for name in named & names}
    found = {
        releases.B3SUMS: {name: value.blake3 for name, value in sums.items()},
        releases.SHA256SUMS: {name: value.sha256 for name, value in sums.items()},
    }
    for file, message in blamed(stated, found):
        yield _error("verify/checksum", file, message)
    for name in sorted((names | others) - named - {releases.B3SUMS, releases.SHA256SUMS}):
        yield Finding(
            rule="verify/extra-file",
            severity="warning",
            file=finding_rules.printable(name),
            message="is no part of the release",
            mend="Remove it, or ignore it.",
        )


def _lock(folder: Path) -> tuple[Lock | None, list[Finding]]:
    data = releases.read_if_there(folder / releases.LOCK)
    if data is None:
        return None, [_error("verify/missing", releases.LOCK, "is missing")]
    try:
        return parse_lock(data), []
    except FormatError as error:
        where, _, message = str(error).partition(": ")
        if not message:
            where, message = "", where
        return None, [_error("verify/lock", releases.LOCK, message, where)]


def _lock_findings(lock: Lock) -> Iterator[Finding]:
    for where, message in inconsistencies(lock):
        yield _error("verify/lock-digest", releases.LOCK, message, where)
    for where, message in unmet_policy(lock):
        yield _error("verify/policy", releases.LOCK, message, where)
    names = {t.harbor_name for t in lock.tasks}
    if None not in names and lock.harbor is not None:
        yield from _dataset_digest(lock)


def _dataset_digest(lock: Lock) -> Iterator[Finding]:
    # With files beside dataset.toml the digest covers more than the lock repeats.
    beside = [f.path for f in lock.files if f.path.startswith("tasks/") and f.path.count("/") == 1]
    plain = beside == ["tasks/dataset.toml"]
    if plain and lock.harbor != harbor.dataset_digest([t.harbor for t in lock.tasks], {}):
        text = "isn't Harbor's digest of the lock's tasks"
        yield _error("verify/harbor", releases.LOCK, text, "harbor")


def _document_findings(folder: Path, lock: Lock) -> Iterator[Finding]:
    for name in _DOCUMENTS:
        data = releases.read_if_there(folder / name)
        if name not in lock.documents:
            yield _error("verify/lock", releases.LOCK, f"doesn't name {name}", "documents")
        elif data is None:
            yield _error("verify/missing", name, "is missing")
        elif digest.of_bytes(data) != lock.documents[name]:
            yield _error("verify/document", name, "isn't the file that the lock was made with")
        elif name == releases.CHANGES:
            yield from _changes_findings(data, lock)


def _changes_findings(data: bytes, lock: Lock) -> Iterator[Finding]:
    try:
        changes = parse_changes(orjson.loads(data))
    except (FormatError, orjson.JSONDecodeError) as error:
        yield _error("verify/changes", releases.CHANGES, str(error))
        return
    if (changes.name, changes.version, changes.content, changes.previous) != (
        lock.name,
        lock.version,
        lock.content,
        lock.previous,
    ):
        text = "is about another release: name, version, content or previous isn't the lock's"
        yield _error("verify/changes", releases.CHANGES, text)


def _archive_findings(folder: Path, lock: Lock) -> Iterator[Finding]:
    name = lock.archive.file
    if "/" in name or not (folder / name).is_file():
        shown = finding_rules.printable(name)
        yield _error("verify/missing", shown, "the tarball is missing")
        return
    sums = releases.sums_of(folder / name)
    if (sums.blake3, sums.sha256, sums.size) != (
        lock.archive.blake3,
        lock.archive.sha256,
        lock.archive.size,
    ):
        yield _error("verify/archive", name, "isn't the tarball that the lock was made with")
    found = _read(folder / name, lock)
    yield from found.findings
    if found.stream is not None:
        yield from _member_findings(name, found, lock)
        if found.stream.blake3 != lock.archive.tar:
            yield _error("verify/archive", name, "its tar stream isn't the one of the lock")


def _read(tarball: Path, lock: Lock) -> _Found:
    """Read the whole tarball once."""
    found = _Found()
    most = sum(f.size + _MOST_OVERHEAD for f in lock.files) + _MOST_OVERHEAD
    most = max(most, lock.archive.tar_size)
    try:
        for item in archive.read_archive(tarball, keep=_is_wanted, most_bytes=most):
            if isinstance(item, archive.Stream):
                found.stream = item
            else:
                found.findings += _add(found, item, tarball.name, lock.folder)
    except archive.ArchiveError as error:
        message = str(error).removeprefix(f"{tarball.name}: ")
        found.findings.append(_error("verify/archive", tarball.name, message))
    return found


def _is_wanted(name: str) -> bool:
    path = "/".join(name.split("/")[3:])
    return harbor.is_ignore_file(path)


def _add(found: _Found, member: archive.Member, tarball: str, top: str) -> Iterator[Finding]:
    folder, _, path = member.name.partition("/")
    if folder != top:
        yield _member_error(tarball, member.name, f"lies outside the folder {top}/")
    elif path in found.members:
        yield _member_error(tarball, member.name, "is there twice")
    else:
        found.members[path] = member


def _member_findings(tarball: str, found: _Found, lock: Lock) -> Iterator[Finding]:
    """Every member against the lock's list of files, and Harbor's digests."""
    files = {f.path: f for f in lock.files}
    for path in sorted(files.keys() - found.members.keys()):
        yield _member_error(tarball, f"{lock.folder}/{path}", "is missing")
    for path in sorted(found.members.keys() - files.keys()):
        yield _member_error(tarball, f"{lock.folder}/{path}", "is in no list of the lock")
    for path in sorted(files.keys() & found.members.keys()):
        yield from _difference(tarball, found.members[path], files[path])
    yield from _harbor_findings(found, lock)


def _difference(tarball: str, member: archive.Member, entry: FileEntry) -> Iterator[Finding]:
    if member.mode != entry.mode:
        text = f"has mode {member.mode}; the lock says {entry.mode}"
        yield _member_error(tarball, member.name, text)
    if (member.blake3, member.size) != (entry.digest, entry.size):
        text = f"isn't the file of the lock: its BLAKE3 is {member.blake3}, not {entry.digest}"
        yield _member_error(tarball, member.name, text)


def _harbor_findings(found: _Found, lock: Lock) -> Iterator[Finding]:
    by_task: dict[str, dict[str, archive.Member]] = {}
    for path, member in found.members.items():
        folder, _, rest = path.partition("/")
        name, _, below = rest.partition("/")
        if folder == "tasks" and below:
            by_task.setdefault(name, {})[below] = member
    for index, task in enumerate(lock.tasks):
        if _harbor_digest(by_task.get(task.id, {})) != task.harbor:
            text = f"isn't Harbor's digest of task {task.id} in the tarball"
            yield _error("verify/harbor", releases.LOCK, text, f"tasks[{index}].harbor")


def _harbor_digest(members: Mapping[str, archive.Member]) -> str:
    contents = {
        path: harbor.content_of(member.mode, member.sha256, member.data)
        for path, member in members.items()
    }
    ignore_files = {
        path: (member.data or b"").decode("utf-8", "replace")
        for path, member in members.items()
        if harbor.is_ignore_file(path)
    }
    return harbor.task_digest(contents, ignore_files)


def _image_findings(lock: Lock, labels: Labels) -> Iterator[Finding]:
    """Every image that is there against its recipe; one that isn't is only noted."""
    images = {b.image: b.recipe for b in lock.bases} | {t.image: t.recipe for t in lock.tasks}
    for image, recipe in images.items():
        found = labels(image) if image and recipe else {LABEL_RECIPE: recipe}
        if found is None:
            yield Finding(
                rule="verify/image-missing",
                severity="note",
                file=image,
                message="the engine holds no such image, so it wasn't checked",
                mend="Build it: `doit build_images`.",
            )
        elif found.get(LABEL_RECIPE) != recipe:
            yield Finding(
                rule="verify/image",
                severity="error",
                file=image,
                message=f"wasn't made from the recipe of the lock, {recipe}",
                mend="Build it from this release: `doit build_images`.",
            )


def _member_error(tarball: str, member: str, message: str) -> Finding:
    shown = finding_rules.printable(member)
    return Finding(
        rule="verify/member",
        severity="error",
        file=tarball,
        where=shown,
        message=message,
        mend=_AGAIN,
    )


def _error(rule: str, file: str, message: str, where: str = "") -> Finding:
    return Finding(
        rule=rule, severity="error", file=file, where=where, message=message, mend=_AGAIN
    )
