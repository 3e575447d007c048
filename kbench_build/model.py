"""The words of the house: frozen values that travel between the floors.

Dictionaries exist only while a file is read or written; between functions these travel.
Paths inside a dataset are POSIX strings relative to its root. Times are seconds, sizes bytes
(memory limits: mebibytes, as in Harbor's `memory_mb`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]

Outcome = Literal[
    "resolved",
    "unresolved",
    "timeout",
    "agent-error",
    "verifier-error",
    "infra-error",
    "invalid",
]
# The subject of a step about the dataset as a whole; no task's folder is called that.
DATASET = "@dataset"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check has to say.

    `file` is relative to the dataset root, `where` a spot in it ("line 3, column 9",
    "f2p_tests[3]", or empty), `mend` what to do about it.
    """

    rule: str
    severity: Severity
    file: str
    where: str = ""
    message: str
    mend: str

    def __str__(self) -> str:
        """`file: where: message (rule)`, the line that people read."""
        spot = f"{self.file}: {self.where}" if self.where else self.file
        return f"{spot}: {self.message} [{self.rule}]"


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """A finding that a maintainer answers for: its rule, the task (or `*`), and why."""

    rule: str
    task: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file of a tree: git's mode, POSIX path relative to the tree, BLAKE3 of its content."""

    mode: Literal["100644", "100755", "120000"]
    path: str
    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class FolderEntry:
    """One entry below a folder as `lstat` shows it; folders themselves aren't entries.

    For a link `target` is its text and `inside` says whether it leads to something that exists
    inside the folder. `error` says why an entry, or a folder, can't be looked at.
    """

    path: str
    kind: Literal["file", "link", "other"]
    size: int = 0
    executable: bool = False
    target: str = ""
    inside: bool = True
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A tar archive to unpack in a container, at the absolute path `into`, before the job runs."""

    into: str
    archive: bytes


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an engine is asked to run: one command in one fresh container of `image`.

    `outputs` are absolute paths fetched after the run, each as a tar archive (a missing one is left
    out). `changes_under` asks which files below that path the run changed, `keep` for an image of
    what a run that ends with 0 leaves. A run that writes more than `disk_mb` is killed within
    seconds. More CPUs than the host has are clamped.
    """

    name: str
    image: str
    command: tuple[str, ...]
    timeout_sec: float
    network: Literal["none", "public"] = "none"
    workdir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    uploads: tuple[Upload, ...] = ()
    outputs: tuple[str, ...] = ()
    changes_under: str | None = None
    keep: bool = False


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a run changed below a folder: a tar archive of new and edited files, and deleted paths.

    Members (files and symbolic links) and paths are relative to the folder; `.git` is no part of
    it. A member may stand where a folder was, or below what was a file.
    """

    archive: bytes
    deleted: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What came back. An engine never raises for a failing job: `status` says how it ended.

    `exited`: the command ended by itself, with `exit_code`. `timeout`: the container was killed at
    the limit. `oom`: it was killed for memory. `disk`: it was killed for what it wrote.
    `engine-error`: the engine failed, see `error`. `image` is the id of the one that was kept.
    `output` is the tail of both streams, `seconds` the command's run time, `notes` what else a
    reader must know: a limit that was clamped, an output too large to keep.
    """

    status: Literal["exited", "timeout", "oom", "disk", "engine-error"]
    exit_code: int | None = None
    seconds: float = 0.0
    output: str = ""
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    changes: Changes | None = None
    error: str = ""
    notes: tuple[str, ...] = ()
    image: str = ""


Engine = Callable[[Job], JobResult]


@dataclass(frozen=True, kw_only=True)
class Base:
    """One line of `bases/manifest`: a shared image `<namespace>/<repo>:<tag>` and its Dockerfile.

    `dockerfile` and `context` are relative to the dataset root; `line` is where it stands.
    """

    repo: str
    tag: str
    dockerfile: str
    line: int

    @property
    def name(self) -> str:
        """`repo:tag`, the base's name in the graph."""
        return f"{self.repo}:{self.tag}"

    @property
    def context(self) -> str:
        """The folder that the build sees."""
        return f"bases/{self.repo}"


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """The repository that a task was cut from, as `task.toml` names it; empty where it doesn't."""

    owner: str = ""
    name: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What git makes of patches on a commit.

    `reason` is why it refuses them (empty: they apply), `said` all that git wrote then. `changed`
    are the paths that differ afterwards: (mode, id), None where there is no file any more.
    """

    reason: str
    said: bytes = b""
    changed: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """What the graph needs to know of a task without opening its files again.

    `parts` are digests of what a change can touch: `instruction`, `environment`, `solution`,
    `tests`, `settings` (what `task.toml` asks of a runner) and `metadata` (the rest). `froms` are
    the images its Dockerfile stands on, `has_image` whether there is an image to build at all.
    A `task.toml` that can't be read has no `base_commit`; validation says why. `checked_out` is the
    base commit, or where task.toml has none the one commit that the image's scripts name.
    """

    id: str
    digest: str
    parts: Mapping[str, str]
    froms: tuple[str, ...]
    has_image: bool
    base_commit: str | None
    upstream: Upstream = Upstream()
    checked_out: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a step left about one subject under `.kbench/<step>/<subject>.json`.

    `inputs` is the digest of everything that the step read: while it is unchanged the report holds.
    `ok` says whether the subject passed, `summary` is one line for people, `made` the id of what
    the step made (an image's, or a file's digest; empty where it makes nothing), `data` the step's
    own result (JSON values only).
    """

    step: str
    subject: str
    inputs: str
    ok: bool
    summary: str
    seconds: float
    made: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckoutFile:
    """A file of a checkout in an image: its path there, git's mode, and its blob id.

    `text_id` is the blob id with CRLF written as LF, as git stores text. `holds` says that the file
    begins as a pack or a bundle of git objects does.
    """

    path: str
    mode: str
    id: str
    text_id: str
    size: int
    holds: Literal["", "pack", "bundle"] = ""


@dataclass(frozen=True, kw_only=True)
class GitName:
    """A name below a checkout's .git and what stands there; `size` in bytes for files."""

    path: str
    kind: Literal["file", "folder", "other"]
    size: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFile:
    """A path that a commit changed against its first parent; a rename is a deletion and a new file.

    Modes are git's (`000000`: no file there), ids those of the blobs (all zeros: none).
    """

    path: str
    old_mode: str
    new_mode: str
    old_id: str
    new_id: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of a branch, newest to oldest along first parents; times in seconds since 1970."""

    id: str
    parents: tuple[str, ...]
    tree: str
    author: str
    author_email: str
    authored: int
    committer: str
    committer_email: str
    committed: int
    message: str
    files: tuple[ChangedFile, ...]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of an image, with all that lies below it: images that share it name it alike."""

    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the engine's store, tagged or not; `created` is in seconds since 1970.

    `layers` begin with the lowest. `in_use`: a container stands on it, whether it runs or not.
    """

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    created: float
    layers: tuple[Layer, ...]
    in_use: bool


@dataclass(frozen=True, kw_only=True)
class KeptLayer:
    """What is kept on disk of one layer that was searched; `name` is its diff id.

    `files` are the names of the files that keep it, `size` their bytes on disk, `written` when the
    newest was, in seconds since 1970. `name` is empty for files that nothing reads any more: those
    of an earlier version, and those that a killed run left half written.
    """

    name: str
    files: tuple[str, ...]
    size: int
    written: float


@dataclass(frozen=True, kw_only=True)
class GitTrace:
    """Something of git among an image layer's files.

    `repository`: a folder or file called `.git`, or a bare repository. `objects`: loose objects, or
    a pack with its index, whose `ids` are known. `pack`, `bundle`: such a file alone.
    """

    place: str
    kind: Literal["repository", "objects", "pack", "bundle"]
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """How many things weren't read for one reason, and where some of them are."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LayerHit:
    """A file of a layer, and the numbers of the texts that it holds.

    A file inside an archive is `archive!file`.
    """

    place: str
    numbers: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class LayerFound:
    """What was found in one image layer, by its diff id.

    `files` and `size` (bytes) count what stands in the layer itself, `members` and `unpacked` what
    its archives hold. `left_out` says by reason what wasn't read.
    """

    layer: str
    files: int
    size: int
    members: int
    unpacked: int
    hits: tuple[LayerHit, ...] = ()
    git: tuple[GitTrace, ...] = ()
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
