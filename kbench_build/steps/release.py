"""Make a release: `dist/<name>-<version>/`, from a dataset and the reports about it.

Promises: everything that stands against the release is said at once, and then nothing is written;
a release appears whole (written beside its place, then renamed) and is never modified afterwards;
the tarball depends on the dataset's files and on what was proved, not on the machine, the user, the
clock or earlier releases. The same version with the same content is nothing to do.

Leaves to others the order of work, and what the reports' `inputs` must be: the graph passes both.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from kbench_build import __version__, digest, runtime
from kbench_build.errors import KbenchError
from kbench_build.model import DATASET, FileEntry, Finding, Report
from kbench_build.rim import archive, releases, schemas
from kbench_build.rim.config import CONFIG
from kbench_build.rim.dataset import BASES, TASKS, Dataset
from kbench_build.rim.tree import files_of, ignored, scan_tree
from kbench_build.rules import findings as finding_rules
from kbench_build.rules import harbor, harbor_dataset, release_gate
from kbench_build.rules.about_task import TASK_TOML, AboutTask, about_task
from kbench_build.rules.card import card, gate
from kbench_build.rules.changelog import changelog
from kbench_build.rules.changes import (
    GENERATED,
    Changes,
    changes_between,
    changes_bytes,
    other_files,
)
from kbench_build.rules.checksums import parse_sums, sums_text
from kbench_build.rules.draft import Proof, Title, draft_lock, finished
from kbench_build.rules.lock import (
    Archive,
    Lock,
    LockHead,
    Policy,
    Verifier,
    folder_name,
    lock_bytes,
    parse_head,
    parse_lock,
    verifier_of,
)
from kbench_build.rules.parsing import Flaw, parse_toml
from kbench_build.rules.records import FormatError
from kbench_build.rules.shipped import SHIPPED
from kbench_build.rules.versions import Version, VersionError, parse_version, previous_of

STEP = "release"

_DATASET_TOML = f"{TASKS}/{harbor_dataset.NAME}"
_ALONE = re.compile(
    rf"{re.escape(CONFIG)}|(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS|CITATION)(?:[.-][\w.-]*)?"
)
_FOLDERS = (BASES, "schemas", TASKS)


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A dataset's files, sorted, and what its tasks say of themselves.

    `template` is a hand-written `tasks/dataset.toml`, empty where there is none.
    """

    files: tuple[FileEntry, ...]
    about: Mapping[str, AboutTask]
    template: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class _Earlier:
    """The releases that there are: content hashes by version, and the one to compare with.

    `changelog` is that of `previous`.
    """

    contents: Mapping[Version, str]
    previous: Lock | None
    changelog: str


@dataclass(frozen=True, kw_only=True)
class _Packed:
    """What the tarball holds: its members below its one folder, and digests of Harbor's."""

    files: tuple[FileEntry, ...]
    harbor: str | None
    harbor_tasks: Mapping[str, str]
    stream: archive.Stream


def inputs(dataset: Dataset, trees: Mapping[str, str], proof: Proof) -> str:
    """Digest of all that a release is made from, as far as digests are known already.

    `trees` are the digests of the tasks and bases, by any names. Reports count by what they must
    have been made from, so that none is read here. Earlier releases don't count: they never change,
    and the new one appears beside them.
    """
    config = dataset.config
    return digest.of_json(
        {
            "tool": __version__,
            "zstd": archive.ZSTD_VERSION,
            "title": [config.name, config.version, config.namespace, config.description],
            "policy": [config.require, config.runs],
            "suppress": [[s.rule, s.task, s.reason] for s in config.suppress],
            "trees": dict(trees),
            "manifest": dataset.manifest,
            "recipes": {r.image: r.digest for r in proof.recipes},
            "expected": {step: dict(of_step) for step, of_step in proof.expected.items()},
        }
    )


def release_folder(dataset: Dataset) -> Path:
    """Where the release of the dataset's version stands, or will."""
    name = folder_name(dataset.config.name, dataset.config.version)
    return dataset.root / releases.DIST / name


def release(
    dataset: Dataset,
    proof: Proof,
    *,
    inputs: str,
    known: Mapping[str, str] = MappingProxyType({}),
    previous: Path | None = None,
    threads: int = 2,
) -> Report:
    """Make the release, or say everything that stands against it.

    `inputs` is what `inputs()` gave; `known` the listings of folders whose files' digests needn't
    be taken again before they are packed; `previous` the folder of an earlier release outside
    `dist/`.
    The report's data has `folder` and `archive` (paths relative to the root), `content` (the hash),
    `is_new`, and `findings`.
    """
    began = time.monotonic()
    source = _source(dataset, known)
    draft = _draft(dataset, proof, source)
    earlier = _earlier(dataset, previous)
    changes = changes_between(earlier.previous, draft)
    findings = [
        *release_gate.nothing_to_release(dataset.tasks),
        *release_gate.unusable_name(draft.name),
        *source.findings,
        *release_gate.unproved(
            draft.policy.require, proof.reports, proof.expected, frozenset(dataset.tasks)
        ),
        *_version_problems(dataset, draft, earlier, changes),
    ]
    errors = [f for f in findings if f.severity == "error"]
    is_new = not errors and not release_folder(dataset).exists()
    if is_new:
        _write(dataset, source, draft=draft, earlier=earlier, changes=changes, threads=threads)
    folder = f"{releases.DIST}/{draft.folder}"
    return Report(
        step=STEP,
        subject=DATASET,
        inputs=inputs,
        ok=not errors,
        summary=_summary(draft, findings, is_new=is_new),
        seconds=time.monotonic() - began,
        data={
            "folder": folder,
            "archive": f"{folder}/{draft.folder}{releases.TARBALL_ENDING}",
            "content": draft.content,
            "is_new": is_new,
            "findings": [finding_rules.to_json(f) for f in finding_rules.in_order(findings)],
        },
    )


def _summary(draft: Lock, findings: Iterable[Finding], *, is_new: bool) -> str:
    errors = [f for f in findings if f.severity == "error"]
    if errors:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f"{draft.folder} can't be released: {errors[0].message}{more}"
    state = "released" if is_new else "was released already, with the same content"
    return f"{draft.folder} {state}: {len(draft.tasks)} tasks, content {draft.content[:16]}"


def _source(dataset: Dataset, known: Mapping[str, str]) -> _Source:
    files = tuple(sorted(_files(dataset.root, known), key=lambda f: os.fsencode(f.path)))
    about, findings = {}, list(release_gate.unusable_files(files))
    for task in dataset.tasks:
        about[task], flaws = _about(dataset.root, task)
        findings += flaws
    template = _text(dataset.root / _DATASET_TOML)
    findings += _dataset_toml_problems(dataset, template, files, about)
    findings += _escaping_links(dataset.root, files)
    return _Source(files=files, about=about, template=template, findings=tuple(findings))


def _files(root: Path, known: Mapping[str, str]) -> Iterator[FileEntry]:
    """The files that are released, except those that the release makes."""
    for folder, text in known.items():
        yield from files_of(text, f"{folder}/")
    for folder in _FOLDERS:
        if (root / folder).is_dir():
            without = frozenset(k.removeprefix(f"{folder}/") for k in known)
            for entry in scan_tree(root / folder, f"{folder}/", without=without):
                if entry.path not in GENERATED:
                    yield entry
    for file in root.iterdir():
        is_wanted = _ALONE.fullmatch(file.name) and not ignored(file.name)
        if is_wanted and file.is_file() and not file.is_symlink():
            sums = releases.sums_of(file)
            yield FileEntry(mode="100644", path=file.name, digest=sums.blake3, size=sums.size)


def _about(root: Path, task: str) -> tuple[AboutTask, list[Finding]]:
    path = f"{TASKS}/{task}/{TASK_TOML}"
    data = releases.read_if_there(root / path)
    value = parse_toml(path, data) if data is not None else Flaw(file=path, message="is missing")
    if not isinstance(value, Flaw):
        return about_task(value), []
    message = f"{value.where}: {value.message}" if value.where else value.message
    problem = release_gate.finding("release/task-toml", path, message, "Mend the file.")
    return about_task({}), [problem]


def _text(path: Path) -> str:
    return (releases.read_if_there(path) or b"").decode("utf-8", "replace")


def _escaping_links(root: Path, files: Iterable[FileEntry]) -> Iterator[Finding]:
    for entry in files:
        # The name in the tarball has one more folder in front, which a link mustn't leave.
        if entry.mode == "120000" and archive.leads_out(
            f"top/{entry.path}", os.fspath((root / entry.path).readlink())
        ):
            yield release_gate.finding(
                "release/link",
                entry.path,
                "the link leads out of the dataset",
                "Put the file in its place, or point the link at a file of the dataset.",
            )


def _dataset_toml_problems(
    dataset: Dataset,
    template: str,
    files: Iterable[FileEntry],
    about: Mapping[str, AboutTask],
) -> Iterator[Finding]:
    nameless = [task for task, facts in about.items() if facts.harbor_name is None]
    if nameless:
        yield release_gate.note(
            "release/harbor-name",
            f"{TASKS}/{nameless[0]}/{TASK_TOML}",
            f"{len(nameless)} of {len(about)} tasks have no [task] name that Harbor accepts, "
            f"so the release has no {harbor_dataset.NAME}",
            'Name each task: [task] name = "organisation/name".',
        )
        return
    for name, number in Counter(facts.harbor_name for facts in about.values()).items():
        if number > 1:
            text = f"{number} tasks have the [task] name {name}, which Harbor tells them apart by"
            yield release_gate.finding("release/harbor-name", TASKS, text, "Name each differently.")
    try:
        _dataset_toml(dataset, template, about, dict.fromkeys(about, ""), _beside(files))
    except harbor_dataset.DatasetTomlError as error:
        yield release_gate.finding("release/dataset-toml", _DATASET_TOML, str(error), "Mend it.")


def _beside(files: Iterable[FileEntry]) -> dict[str, str]:
    """The files that lie in `tasks/` itself, each without a digest yet."""
    return {f.path.removeprefix(f"{TASKS}/"): "" for f in files if f.path.count("/") == 1}


def _dataset_toml(
    dataset: Dataset,
    template: str,
    about: Mapping[str, AboutTask],
    digests: Mapping[str, str],
    beside: Mapping[str, str],
) -> str:
    config = dataset.config
    return harbor_dataset.dataset_toml(
        template,
        name=f"{config.namespace.rpartition('/')[2]}/{config.name}",
        version=config.version,
        description=config.description,
        tasks={facts.harbor_name or "": digests[task] for task, facts in about.items()},
        files=beside,
    )


def _draft(dataset: Dataset, proof: Proof, source: _Source) -> Lock:
    config = dataset.config
    title = Title(
        tool=f"kbench-build {__version__}",
        name=config.name,
        version=config.version,
        namespace=config.namespace,
        description=config.description,
        policy=Policy(require=config.require, runs=config.runs),
    )
    return draft_lock(
        title,
        proof,
        files=source.files,
        about=source.about,
        verifier=shared_verifier(),
        schemas=_schemas(),
    )


def shared_verifier() -> Verifier:
    """The verifier that this version ships, by the files' places in a task."""
    folder = Path(runtime.__file__).parent
    files = {
        place: digest.of_bytes((folder / name).read_bytes())
        for place, name in SHIPPED.items()
        if place.startswith("tests/")
    }
    return verifier_of(__version__, files)


def _schemas() -> dict[str, str]:
    found = sorted(schemas.folder().glob("*.schema.json"))
    return {path.name: digest.of_bytes(path.read_bytes()) for path in found}


def _earlier(dataset: Dataset, previous: Path | None) -> _Earlier:
    """The earlier releases of this dataset. Raises `KbenchError` where one can't be read."""
    folders = releases.locks_in(dataset.root / releases.DIST)
    if previous is not None:
        data = releases.read_if_there(previous / releases.LOCK)
        if data is None:
            raise KbenchError(f"{previous}: holds no {releases.LOCK}: name a release's folder")
        folders[previous] = data
    heads = {folder: _head(folder, data) for folder, data in folders.items()}
    mine = {
        _read_version(folder, head.version): folder
        for folder, head in heads.items()
        if head.name == dataset.config.name
    }
    version = _version(dataset)
    before = previous_of(version, mine) if version else None
    folder = mine[before] if before else None
    return _Earlier(
        contents={v: heads[f].content for v, f in mine.items()},
        previous=_read_lock(folder, folders[folder]) if folder else None,
        changelog=_text(folder / releases.CHANGELOG) if folder else "",
    )


def _head(folder: Path, data: bytes) -> LockHead:
    try:
        return parse_head(data)
    except FormatError as error:
        raise _unreadable(folder, error) from error


def _read_lock(folder: Path, data: bytes) -> Lock:
    try:
        return parse_lock(data)
    except FormatError as error:
        raise _unreadable(folder, error) from error


def _read_version(folder: Path, text: str) -> Version:
    try:
        return parse_version(text)
    except VersionError as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> KbenchError:
    return KbenchError(
        f"{folder / releases.LOCK}: {error}; without it nothing can be said about the next version"
    )


def _version(dataset: Dataset) -> Version | None:
    try:
        return parse_version(dataset.config.version)
    except VersionError:
        return None


def _version_problems(
    dataset: Dataset, draft: Lock, earlier: _Earlier, changes: Changes
) -> Iterator[Finding]:
    try:
        version = parse_version(draft.version)
    except VersionError as error:
        mend = "Set [dataset] version."
        yield release_gate.finding("release/version", CONFIG, str(error), mend)
        return
    folder = release_folder(dataset)
    if folder.exists():
        yield from _existing_problems(folder, draft)
        return
    newest = max(earlier.contents, default=None)
    content = earlier.contents[newest] if newest else ""
    behind = list(release_gate.not_moved(version, draft.content, newest, content))
    yield from behind
    if earlier.previous and not behind:
        before = parse_version(earlier.previous.version)
        yield from release_gate.too_small(before, version, changes)


def _existing_problems(folder: Path, draft: Lock) -> Iterator[Finding]:
    """What is wrong with a release of this version that is there already."""
    place = f"{releases.DIST}/{folder.name}"
    data = releases.read_if_there(folder / releases.LOCK)
    if data is None:
        yield release_gate.finding(
            "release/not-a-release",
            place,
            f"there is something here already, without a {releases.LOCK}",
            "Move it away, or raise [dataset] version in kbench.toml.",
        )
    elif (lock := _read_lock(folder, data)).content != draft.content:
        yield release_gate.taken(place, draft.version)
    else:
        yield from _tampered(folder, place)
        if other_files(lock) != other_files(draft):
            yield release_gate.note(
                "release/packed-before",
                place,
                "files outside tasks and bases changed since; the release keeps its own",
                "Raise the last number of [dataset] version to release them.",
            )


def _tampered(folder: Path, place: str) -> Iterator[Finding]:
    """Whether a file of a release isn't what its checksum file says."""
    stated, _ = parse_sums(releases.read_if_there(folder / releases.B3SUMS) or b"")
    present, _ = releases.entries_of(folder)
    for name, value in stated.items():
        if name not in present or releases.sums_of(folder / name).blake3 != value:
            yield release_gate.finding(
                "release/modified",
                f"{place}/{name}",
                f"isn't the file that was released; {releases.B3SUMS} says so",
                "Get the released file back, or remove the folder to make the release again.",
            )


def _write(
    dataset: Dataset,
    source: _Source,
    *,
    draft: Lock,
    earlier: _Earlier,
    changes: Changes,
    threads: int,
) -> None:
    with releases.new_release(dataset.root / releases.DIST, draft.folder) as folder:
        readme = card(draft).encode("utf-8")
        documents = {
            releases.CARD: readme,
            releases.CHANGES: changes_bytes(changes),
            releases.CHANGELOG: changelog(changes, gate(draft), earlier.changelog).encode("utf-8"),
        }
        for name, data in documents.items():
            releases.write_new(folder / name, data)
        tarball = folder / f"{draft.folder}{releases.TARBALL_ENDING}"
        packed = _pack(dataset, source, tarball, top=draft.folder, readme=readme, threads=threads)
        lock = finished(
            draft,
            archive=_archive(tarball, packed.stream),
            files=packed.files,
            harbor=packed.harbor,
            harbor_tasks=packed.harbor_tasks,
            documents={name: digest.of_bytes(data) for name, data in documents.items()},
            previous=changes.previous,
        )
        releases.write_new(folder / releases.LOCK, lock_bytes(lock))
        _write_sums(folder)


def _write_sums(folder: Path) -> None:
    sums = {path.name: releases.sums_of(path) for path in sorted(folder.iterdir())}
    ours = sums_text({name: value.blake3 for name, value in sums.items()})
    theirs = sums_text({name: value.sha256 for name, value in sums.items()})
    releases.write_new(folder / releases.B3SUMS, ours.encode("utf-8"))
    releases.write_new(folder / releases.SHA256SUMS, theirs.encode("utf-8"))


def _archive(tarball: Path, stream: archive.Stream) -> Archive:
    sums = releases.sums_of(tarball)
    return Archive(
        file=tarball.name,
        size=sums.size,
        blake3=sums.blake3,
        sha256=sums.sha256,
        tar=stream.blake3,
        tar_size=stream.size,
        format=archive.FORMAT,
        compression=archive.COMPRESSION,
        zstd=archive.ZSTD_VERSION,
    )


def _pack(
    dataset: Dataset, source: _Source, tarball: Path, *, top: str, readme: bytes, threads: int
) -> _Packed:
    """Write the tarball: the dataset's files sorted by path, then those that the release makes."""
    with releases.open_new(tarball) as file, archive.compressed(file, threads=threads) as stream:
        packer = _Packer(archive.ArchiveWriter(stream), dataset.root, top)
        for task, files in groupby(source.files, key=_task_of):
            packer.add(task, list(files))
        packer.add_made(releases.CARD, readme)
        value = None
        if all(facts.harbor_name for facts in source.about.values()):
            beside = packer.beside
            text = _dataset_toml(
                dataset, source.template, source.about, packer.harbor_tasks, beside
            )
            packer.add_made(_DATASET_TOML, text.encode("utf-8"))
            value = harbor_dataset.dataset_digest(source.template, packer.harbor_tasks, beside)
        return _Packed(
            files=packer.files(),
            harbor=value,
            harbor_tasks=packer.harbor_tasks,
            stream=packer.writer.finish(),
        )


def _task_of(entry: FileEntry) -> str:
    """The task that a file belongs to, empty for none."""
    folder, _, rest = entry.path.partition("/")
    task, _, path = rest.partition("/")
    return task if folder == TASKS and path else ""


class _Packer:
    """Adds files to a tarball, and takes Harbor's digests on the way, so that each is read once."""

    def __init__(self, writer: archive.ArchiveWriter, root: Path, top: str) -> None:
        self.writer = writer
        self.harbor_tasks: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        self._root = root
        self._top = top
        self._files: list[FileEntry] = []

    def add(self, task: str, entries: list[FileEntry]) -> None:
        """Add the files of a task, or (with an empty name) files of none."""
        members = [self._add(entry) for entry in entries]
        if task:
            self.harbor_tasks[task] = self._harbor_digest(f"{self._top}/{TASKS}/{task}/", members)
            return
        prefix = f"{self._top}/{TASKS}/"
        for member in members:
            if member.name.startswith(prefix):
                self.beside[member.name.removeprefix(prefix)] = f"sha256:{member.sha256}"

    def add_made(self, path: str, data: bytes) -> None:
        """Add a file that the release makes."""
        member = self.writer.add_data(f"{self._top}/{path}", data)
        self._files.append(
            FileEntry(mode="100644", path=path, digest=member.blake3, size=member.size)
        )

    def files(self) -> tuple[FileEntry, ...]:
        """All that was added, sorted by path."""
        return tuple(sorted(self._files, key=lambda f: os.fsencode(f.path)))

    def _add(self, entry: FileEntry) -> archive.Member:
        path = self._root / entry.path
        member = self.writer.add_file(f"{self._top}/{entry.path}", path, entry.mode)
        if (member.blake3, member.size) != (entry.digest, entry.size):
            raise KbenchError(f"{path}: changed while the release was made: run it again")
        self._files.append(entry)
        return member

    def _harbor_digest(self, prefix: str, members: Iterable[archive.Member]) -> str:
        contents, ignore_files = {}, {}
        for member in members:
            path = member.name.removeprefix(prefix)
            contents[path] = harbor.content_of(member.mode, member.sha256, member.data)
            if harbor.is_ignore_file(path):
                below_root = member.name.removeprefix(f"{self._top}/")
                ignore_files[path] = _text(self._root / below_root)
        return harbor.task_digest(contents, ignore_files)
