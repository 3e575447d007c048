"""Of a git repository: its commits, what a checkout in an image holds, what patches make of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


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
