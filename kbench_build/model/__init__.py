"""The words of the house: frozen values that travel between the floors.

Dictionaries exist only while a file is read or written; between functions these travel.
Paths inside a dataset are POSIX strings relative to its root. Times are seconds, sizes bytes
(memory limits: mebibytes, as in Harbor's `memory_mb`).
"""

from collections.abc import Mapping
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
