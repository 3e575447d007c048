"""Digests, and the texts that they are taken over.

The rules, so that `b3sum` and `sort` can recompute every digest:

- a file: BLAKE3 of its bytes (of a symbolic link: of its target's text);
- a tree (a task, a base): BLAKE3 of one line `mode SP path SP digest LF` a file, the lines sorted
  by path as bytes. Paths are POSIX and relative; the mode is git's: `100644`, `100755` (any run
  bit) or `120000` (symbolic link);
- a dataset: BLAKE3 of one line `name SP digest LF` a part, sorted by name as bytes.

All digests are 64 lower-case hexadecimal digits. Nothing else enters: no time, owner, umask,
compression, machine or locale.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from blake3 import blake3

from kbench_build.model import FileEntry

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def of_bytes(data: bytes) -> str:
    """BLAKE3 of the bytes, 64 hexadecimal digits."""
    return blake3(data).hexdigest()


def of_text(text: str) -> str:
    """BLAKE3 of the text as UTF-8 (names that aren't UTF-8 on disk keep their surrogate bytes)."""
    return of_bytes(text.encode("utf-8", "surrogateescape"))


def of_tree(files: Iterable[FileEntry]) -> str:
    """Digest of a tree, from its files' entries in any order."""
    ordered = sorted(files, key=lambda f: f.path.encode("utf-8", "surrogateescape"))
    return of_text("".join(f"{f.mode} {f.path} {f.digest}\n" for f in ordered))


def of_parts(parts: Mapping[str, str]) -> str:
    """Digest of named digests, for instance of a dataset's tasks and bases."""
    ordered = sorted(parts.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape"))
    return of_text("".join(f"{name} {digest}\n" for name, digest in ordered))


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8, one final newline."""
    return _CANONICAL.encode(value).encode("utf-8", "surrogateescape") + b"\n"


def of_json(value: Any) -> str:
    """Digest of a JSON value, however it was written down."""
    return of_bytes(canonical_json(value))
