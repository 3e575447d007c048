"""Write Harbor tasks of the changes of a repository that are proved and have a statement.

Promises: a change without both isn't written, and the reason is said; a task that is there already
and differs is left as it is unless asked for; a new task appears whole; nothing is written before
`write`. Leaves running and stating to other steps, the base that holds the upstream to
`hold_upstream`, and what `verify.json` takes from upstream to the caller (`Fill`).
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kbench_build.errors import KbenchError
from kbench_build.model import Base, Finding
from kbench_build.rim.dataset import TASKS
from kbench_build.rim.git import ObjectStore, last_line
from kbench_build.rim.licences import LARGEST, recognised
from kbench_build.rim.mine_environments import Environment, read_copies
from kbench_build.rim.mine_pieces import Pieces
from kbench_build.rim.process import ProcessError
from kbench_build.rim.shipped_files import shipped_file
from kbench_build.rim.store import write_whole
from kbench_build.rim.task_files import unlinked, unlinked_text
from kbench_build.rim.upstream import objects_of
from kbench_build.rules import clone_base, statements
from kbench_build.rules.emit import (
    Setting,
    Source,
    Texts,
    task_files,
    task_id,
    task_toml,
    unknown,
    verify_draft,
)
from kbench_build.rules.forge_urls import change_url, commit_url, home_of, issue_url
from kbench_build.rules.harden_environment import image_settings
from kbench_build.rules.images import base_image
from kbench_build.rules.licence import Licence, is_text, licence_of, wanted
from kbench_build.rules.merges import Candidate
from kbench_build.rules.patch_split import Split
from kbench_build.rules.records import FormatError, from_json
from kbench_build.rules.shipped import SHIPPED
from kbench_build.rules.trial_commands import given_files, with_files
from kbench_build.rules.trials import OUTCOMES, Trial

TRIAL, STATEMENT = "trial.json", "statement.json"
State = Literal["new", "same", "differs", "left-out"]
_MOST_RECORD = 256 << 20

# Completes verify.json: (task, its value, hidden patch, fix) to its bytes and what is wrong.
Fill = Callable[[str, Mapping[str, Any], bytes, bytes], tuple[bytes, tuple[Finding, ...]] | None]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A candidate with its parted patch."""

    change: Candidate
    split: Split


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Where the changes come from: `owner/name`, a clone of it, and the clone's origin."""

    repository: str
    clone: Path
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the dataset says: its bases, its environments, and pieces of `task.toml`."""

    namespace: str
    manifest: str
    bases: tuple[Base, ...]
    environments: tuple[Environment, ...]
    pieces: Pieces = field(default_factory=Pieces)


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """What is to become of one change.

    `files` are the task's, by place; `differs` those that stand there with other content, or are
    missing, in a task that is there already; `strange` files there that aren't ours. `reason` says
    why a change is left out, `notes` what a person should know.
    """

    change: str
    task: str
    state: State
    files: Mapping[str, bytes] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What tasks need of an image that holds the upstream: a commit, and an image with git."""

    commit: str
    image: str


@dataclass(frozen=True, kw_only=True)
class Emission:
    """All tasks of a run, newest change first.

    `needs`: some of them take their checkout from the base that `hold_upstream` makes.
    """

    tasks: tuple[Emitted, ...]
    needs: Needs | None = None


class _LeftOutError(Exception):
    """Why a change becomes no task."""


def emit(
    root: Path,
    folder: Path,
    upstream: Upstream,
    changes: Sequence[Change],
    *,
    options: Options,
    fill: Fill,
) -> Emission:
    """Make the files of every change's task. `folder` holds what is known of the changes.

    Raises nothing for what is wrong with a change.
    """
    algorithm = "sha256" if changes and len(changes[0].change.base) == 64 else "sha1"
    with _opened(upstream.clone, algorithm) as store:
        work = _Work(root, folder, upstream, options=options, fill=fill, store=store)
        tasks = tuple(work.emitted(each) for each in changes)
        return Emission(tasks=tasks, needs=next(iter(work.needs), None))


@contextmanager
def _opened(clone: Path, algorithm: str) -> Iterator[ObjectStore]:
    with tempfile.TemporaryDirectory(prefix="kbench-emit-") as scratch:
        store = ObjectStore(Path(scratch) / "store", algorithm)
        store.borrow(objects_of(clone))
        yield store


class _Work:
    """One run: what all of its tasks share."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        upstream: Upstream,
        *,
        options: Options,
        fill: Fill,
        store: ObjectStore,
    ) -> None:
        self.root, self.folder, self.upstream = root, folder, upstream
        self.options, self.fill, self.store = options, fill, store
        names = {base.name: base_image(options.namespace, base) for base in options.bases}
        self.images: Mapping[str, str] = names
        self.environments = {each.name: each for each in options.environments}
        self.recipes: Mapping[str, str] | None = None
        self.licences: dict[tuple[tuple[str, str], ...], Licence] = {}
        # The newest change comes first, and its base reaches those of all others.
        self.needs: list[Needs] = []
        self.shipped = {place: shipped_file(name) for place, name in SHIPPED.items()}

    def emitted(self, each: Change) -> Emitted:
        """What becomes of one change."""
        change = each.change
        task = task_id(self.upstream.repository, change.id)
        try:
            trial, statement = self._proof(change), self._statement(change)
            setting = self._setting(trial, each.split)
            files, notes = self._files(task, each, trial, statement, setting)
            if setting.clone == self._own_clone():
                self.needs.append(Needs(commit=change.base, image=setting.image))
        except (_LeftOutError, KbenchError) as error:
            return Emitted(change=change.id, task=task, state="left-out", reason=str(error))
        return _compared(
            self.root, Emitted(change=change.id, task=task, state="new", files=files, notes=notes)
        )

    def _proof(self, change: Candidate) -> Trial:
        value = _record(self._place(change) / TRIAL)
        if value is None:
            raise _LeftOutError("wasn't tried yet: --run")
        try:
            trial = from_json(Trial, value)
        except FormatError as error:
            raise _LeftOutError(f"{TRIAL}: {error}") from error
        if trial.outcome != "valid" or trial.expected is None:
            raise _LeftOutError(f"{OUTCOMES[trial.outcome]}: {trial.reason}".rstrip(": "))
        return trial

    def _statement(self, change: Candidate) -> statements.Statement:
        value = _record(self._place(change) / STATEMENT)
        if value is None:
            raise _LeftOutError("has no statement yet: --statements")
        try:
            found = statements.from_json(value)
        except FormatError as error:
            raise _LeftOutError(f"{STATEMENT}: {error}") from error
        if found.outcome != "accepted" or not found.text.strip():
            raise _LeftOutError(f"its statement is {found.outcome}: {found.reason}".rstrip(": "))
        return found

    def _place(self, change: Candidate) -> Path:
        return self.folder / change.id.removeprefix("#")

    def _setting(self, trial: Trial, split: Split) -> Setting:
        found = self.environments.get(trial.environment)
        if found is None:
            message = f"it was tried in {trial.environment!r}, which kbench.toml has no more"
            raise _LeftOutError(message)
        own = clone_base.place_of(self.upstream.repository)
        return Setting(
            image=self._image(found.image),
            clone=self._image(found.clone) if found.clone else self._own_clone(),
            place=found.workdir if found.clone else own,
            workdir=found.workdir,
            command=trial.command
            or with_files(found.command, given_files(split.paths("test"), found.files)),
            reports=found.reports,
            history=found.history,
            environment=found.environment,
            protected=found.protected,
            prepare=found.prepare,
            exported=self._exported(found),
            files=read_copies(self.root, found),
            timeout_sec=found.timeout_sec,
            cpus=found.cpus,
            memory_mb=found.memory_mb,
        )

    def _image(self, name: str) -> str:
        return self.images.get(name, name)

    def _exported(self, found: Environment) -> Mapping[str, str]:
        """The variables that a build in the image doesn't have anyhow."""
        if self.recipes is None:
            self.recipes = {
                base_image(self.options.namespace, base): unlinked_text(self.root / base.dockerfile)
                for base in self.options.bases
            }
        recipe = self.recipes.get(self._image(found.image), "")
        held = image_settings(recipe, self.recipes).values
        return {n: value for n, value in found.environment.items() if held.get(n) != value}

    def _own_clone(self) -> str:
        repo = clone_base.repo_name(self.upstream.repository)
        return f"{self.options.namespace}/{repo}:{clone_base.TAG}"

    def _files(
        self,
        task: str,
        each: Change,
        trial: Trial,
        statement: statements.Statement,
        setting: Setting,
    ) -> tuple[dict[str, bytes], tuple[str, ...]]:
        change, split = each.change, each.split
        fix, test = split.patch("source", "build"), split.patch("test")
        hidden, fixed = (_sides(split, *kinds) for kinds in (("test",), ("source", "build")))
        draft = verify_draft(setting, change.base, hidden, fixed)
        verify, notes = self._filled(task, draft, test, fix)
        value = self._task_toml(task, change, statement, setting)
        texts = Texts(statement=statement.text, fix=fix, test=test, expected=trial.expected or {})
        files = task_files(
            value,
            base=change.base,
            setting=setting,
            texts=texts,
            verify=verify,
            shipped=self.shipped,
        )
        return files, notes

    def _filled(
        self, task: str, draft: Mapping[str, Any], test: bytes, fix: bytes
    ) -> tuple[bytes, tuple[str, ...]]:
        filled = self.fill(task, draft, test, fix)
        if filled is None:
            raise _LeftOutError(f"the clone lacks its base {draft['base_commit']}")
        data, findings = filled
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            raise _LeftOutError(f"{errors[0].where}: {errors[0].message}".lstrip(": "))
        return data, tuple(str(finding) for finding in findings)

    def _task_toml(
        self, task: str, change: Candidate, statement: statements.Statement, setting: Setting
    ) -> Mapping[str, Any]:
        licence = self._licence(change.base)
        value = task_toml(
            task,
            namespace=self.options.namespace,
            title=change.title,
            source=self._source(change, statement, licence.spdx),
            setting=setting,
            pieces=self.options.pieces.of(self.upstream.repository, change.id),
        )
        lacking = unknown(value)
        if lacking:
            why = f" ({licence.reason})" if "license" in lacking else ""
            place = "[mine.emit.metadata.source] of kbench.toml"
            raise _LeftOutError(f"{', '.join(lacking)} not known{why}: say it in {place}")
        return value

    def _source(self, change: Candidate, statement: statements.Statement, licence: str) -> Source:
        home, is_pull = home_of(self.upstream.origin, change.url), change.number is not None
        shown = (
            change_url(home, change.number)
            if change.number is not None
            else commit_url(home, change.merge)
        )
        return Source(
            repository=self.upstream.repository,
            url=home,
            license=licence,
            type="pull_request" if is_pull else "commit",
            id=str(change.number) if is_pull else change.merge,
            change_url=change.url or shown,
            issue_urls=statement.issues or tuple(self._issue_urls(change, home)),
            base=change.base,
        )

    def _issue_urls(self, change: Candidate, home: str) -> Iterator[str]:
        for issue in change.issues:
            if issue.repository.lower() == self.upstream.repository.lower():
                url = issue_url(home, issue.number, change.url)
                if url:
                    yield url

    def _licence(self, base: str) -> Licence:
        """The licence at a commit; asked once for the same files."""
        listing = self._listed(base)
        key = tuple(sorted(listing.items()))
        if key not in self.licences:
            by_id = dict(self.store.blobs(listing.values(), LARGEST))
            data = {name: by_id.get(blob, b"") for name, blob in listing.items()}
            texts = {name: each for name, each in data.items() if is_text(name)}
            rest = {name: each for name, each in data.items() if name not in texts}
            self.licences[key] = licence_of(recognised(texts), rest)
        return self.licences[key]

    def _listed(self, base: str) -> Mapping[str, str]:
        """Files of the root that may say the licence, with their blobs' ids."""
        try:
            listing = self.store.git("ls-tree", "-z", "--full-tree", base).stdout
        except ProcessError as error:
            raise _LeftOutError(f"its base can't be read: {last_line(error.stderr)}") from error
        lines = listing.decode("utf-8", "surrogateescape").split("\0")[:-1]
        entries = {p: head.split(" ") for head, _, p in (line.partition("\t") for line in lines)}
        files = {path: head[2] for path, head in entries.items() if head[0].startswith("100")}
        return {name: files[name] for name in wanted(files)}


def _sides(split: Split, *kinds: str) -> tuple[str, ...]:
    """The paths of some kinds, as they are before and after the change."""
    chosen = (section for section in split.sections if section.kind in kinds)
    return tuple(path for s in chosen for path in (s.old, s.new) if path)


def _compared(root: Path, found: Emitted) -> Emitted:
    """The same, with what stands in its place already."""
    place = root / TASKS / found.task
    if not os.path.lexists(place):
        return found
    if place.is_symlink() or not place.is_dir():
        reason = f"{TASKS}/{found.task} is there already and is no folder"
        return Emitted(change=found.change, task=found.task, state="left-out", reason=reason)
    there = {p.relative_to(place).as_posix() for p in place.rglob("*") if not p.is_dir()}
    differs = tuple(sorted(f for f, data in found.files.items() if unlinked(place / f) != data))
    return Emitted(
        change=found.change,
        task=found.task,
        state="differs" if differs else "same",
        files=found.files,
        differs=differs,
        strange=tuple(sorted(there - found.files.keys())),
        notes=found.notes,
    )


def write(root: Path, emission: Emission, *, force: bool = False) -> tuple[str, ...]:
    """Write what is new, and with `force` what differs; returns the ids of the tasks written."""
    chosen = [t for t in emission.tasks if t.state == "new" or (force and t.state == "differs")]
    for task in chosen:
        _write_task(root / TASKS / task.task, task)
    return tuple(task.task for task in chosen)


def _write_task(place: Path, task: Emitted) -> None:
    if task.state == "differs":
        for name in task.differs:
            write_whole(place / name, task.files[name])
        return
    # A folder whose name begins with a dot is no task, so half a task is never one.
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name[:100]}."))
    try:
        for name, data in task.files.items():
            write_whole(scratch / name, data)
        scratch.chmod(0o755)
        scratch.rename(place)
    except OSError as error:
        raise KbenchError(f"{place}: can't be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(scratch)


def _record(path: Path) -> Any | None:
    """The JSON value of a record; None where there is none that can be read."""
    data = unlinked(path)
    if data is None or len(data) > _MOST_RECORD:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
