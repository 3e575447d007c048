"""Reads `bases/<repo>/inputs.toml`: the context files that a command makes, and their pins.

Every `[[input]]` names one `file` of the build context, the `command` (argument list, run in the
folder of `inputs.toml`) that writes it, the `sources` it is made from, and exactly one pin:

- `blake3`: the file's digest;
- `git_heads`: for a git bundle, the digest of its sorted `id ref` lines (see `heads_digest`), since
  pack bytes differ between git versions and commit ids don't;
- `unpinned`: the reason why no digest can be named; the file then counts by its content.

`bases` limits an input to some of the repository's tags.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbench_build import digest, toml
from kbench_build.model import FileEntry, Finding
from kbench_build.rules.build_context import takes
from kbench_build.rules.findings import bounded, printable

PinKind = Literal["blake3", "git_heads", "unpinned"]
PINS: tuple[PinKind, ...] = ("blake3", "git_heads", "unpinned")
_HEX = re.compile(r"[0-9a-f]{64}")
_KEYS = {"file", "command", "sources", "bases", *PINS}


@dataclass(frozen=True, kw_only=True)
class BaseInput:
    """One generated file of a repository's bases. `pin` is a digest, or the reason for none."""

    repo: str
    file: str
    command: tuple[str, ...]
    sources: tuple[str, ...]
    pin_kind: PinKind
    pin: str
    bases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`repo/file`, the input's name in the graph."""
        return f"{self.repo}/{self.file}"

    def serves(self, tag: str) -> bool:
        """Whether the base with this tag may take the file."""
        return not self.bases or tag in self.bases


def inputs_file(repo: str) -> str:
    """Where a repository's inputs are described, relative to the dataset's root."""
    return f"bases/{repo}/inputs.toml"


def parse_inputs(text: str, repo: str) -> tuple[tuple[BaseInput, ...], tuple[Finding, ...]]:
    """The inputs that can be read, and what is wrong with the others."""
    try:
        document = toml.loads(text)
    except toml.TOMLDecodeError as error:
        return (), (_finding(repo, "", str(error)),)
    tables = document.get("input", [])
    if not isinstance(tables, list) or set(document) - {"input"}:
        return (), (_finding(repo, "", "must hold [[input]] tables and nothing else"),)
    inputs: list[BaseInput] = []
    files: set[str] = set()
    findings: list[Finding] = []
    for index, table in enumerate(tables):
        problems = [*_problems(table, files)]
        findings += [_finding(repo, f"input[{index}]{spot}", what) for spot, what in problems]
        if not problems:
            inputs.append(_input(table, repo))
            files.add(inputs[-1].file)
    return tuple(inputs), bounded(findings)


def unread_inputs(repo: str, reason: str) -> Finding:
    """What is said where the file is there and can't be read."""
    return _finding(repo, "", printable(reason))


def made_from(item: BaseInput, files: Iterable[FileEntry]) -> str:
    """Digest of what an input is made from: its description and the files that its sources name."""
    sources = [f for f in files if takes(_folders(item.sources), f.path)]
    description = {"command": item.command, "pin": [item.pin_kind, item.pin], "file": item.file}
    return digest.of_json({**description, "sources": digest.of_tree(sources)})


def heads_digest(list_heads: str) -> str:
    """Digest of what `git bundle list-heads` prints: its `id ref` lines, sorted."""
    lines = sorted(line.strip() for line in list_heads.splitlines() if line.strip())
    return digest.of_text("".join(f"{line}\n" for line in lines))


def identity(item: BaseInput, made: str) -> str:
    """What a recipe counts of an input: the pin, or the digest of the file made (may be empty)."""
    return made if item.pin_kind == "unpinned" else item.pin


def _folders(sources: Iterable[str]) -> Iterator[str]:
    # `history/**` is everything below history, which naming the folder says as well.
    for source in sources:
        yield source.removesuffix("/**")


def _input(table: Mapping[str, Any], repo: str) -> BaseInput:
    kind = next(pin for pin in PINS if pin in table)
    return BaseInput(
        repo=repo,
        file=table["file"],
        command=tuple(table["command"]),
        sources=tuple(table.get("sources", ())),
        pin_kind=kind,
        pin=table[kind],
        bases=tuple(table.get("bases", ())),
    )


def _problems(table: Any, earlier: Collection[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(table, dict):
        yield "", "must be a table"
        return
    for key in sorted(set(table) - _KEYS):
        yield f".{key}", f"is no key here; known are {', '.join(sorted(_KEYS))}"
    yield from _file_problems(table.get("file"), earlier)
    for key in ("command", "sources", "bases"):
        if key in table and not _strings(table[key]):
            yield f".{key}", "must be a list of strings, not an empty one"
    if "command" not in table:
        yield ".command", "is missing: say how the file is made"
    yield from _pin_problems(table)


def _file_problems(file: Any, earlier: Collection[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(file, str) or not file:
        yield ".file", "must name a file of the build context"
    elif file.startswith("/") or ".." in file.split("/"):
        yield ".file", f"{file!r} lies outside the build context"
    elif file in earlier:
        yield ".file", f"{file!r} is made by an earlier input already"


def _pin_problems(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pins = [pin for pin in PINS if pin in table]
    if len(pins) != 1:
        yield "", f"must have exactly one of {', '.join(PINS)}, has {' and '.join(pins) or 'none'}"
        return
    value = table[pins[0]]
    if not isinstance(value, str) or not value.strip():
        yield f".{pins[0]}", "must be a string that isn't empty"
    elif pins[0] != "unpinned" and not _HEX.fullmatch(value):
        yield f".{pins[0]}", f"must be 64 lower-case hexadecimal digits, not {value!r}"


def _strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _finding(repo: str, where: str, message: str) -> Finding:
    return Finding(
        rule="bases/inputs",
        severity="error",
        file=inputs_file(repo),
        where=where,
        message=message,
        mend="See docs/engines.md for the keys of an input.",
    )
