"""Recognises a task's Dockerfile of the older shape, and seals it.

Promises: every instruction is explained, or named with its line and the reason why it isn't. A new
stage comes in front, which seals the checkout of the base image; the old stage then stands on the
base image without a checkout and takes the sealed one, so that no layer of it holds the history.
An older seal's line goes, and lines that swallow that they failed stop doing so; all other bytes
stay. Leaves prepare.sh to `harden_prepare`, and the other base image to `harden_bases`.
"""

import json
import re
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kbench_build.rules.dockerfile import Instruction, parse_dockerfile, stages
from kbench_build.rules.harden_tests import Refusal
from kbench_build.rules.shell_lines import Command, statements, substituted

PREPARE, SEALER = "prepare.sh", "seal_git_history.sh"
_INSTALLERS = frozenset({"apt-get", "apt", "apk", "dnf", "yum", "microdnf", "pip", "pip3", "npm"})
# Packages that bring an installer which images rarely have from the start.
_BROUGHT_BY = {
    "pip": re.compile(r"\b(?:python3?-pip|py3-pip|ensurepip|get-pip)\b"),
    "pip3": re.compile(r"\b(?:python3?-pip|py3-pip|ensurepip|get-pip)\b"),
    "npm": re.compile(r"\b(?:npm\s+\S*npm|nodejs|nodejs-npm|(?:apt-get|apk)[^|;&]*\bnpm)\b"),
}
_INSTALL = frozenset({"add", "install", "ci"})
_BESIDE = frozenset({"rm", "echo", "true", ":", "set", "command", "which", "test", "[", "exit"})
_SWALLOWED = re.compile(r"\|\|\s*(?:true|:)$")
_KEPT = frozenset({"ARG", "ENV", "LABEL", "COPY", "ADD", "WORKDIR", "CMD", "ENTRYPOINT", "EXPOSE"})
_SEALED = re.compile(
    rf"{re.escape(SEALER)}\s+(/\S+)\s+([0-9a-f]{{40}})(?:\s+(?:ancestors|none))?\b"
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A task's Dockerfile: the image that it stood on, and its text sealed.

    The new text needs that image under `without_checkout` too. With refusals it is as it was.
    `louder` are the installations that could fail unnoticed until now: their lines, and the tools
    of theirs that no line of the file installs.
    """

    image: str = ""
    text: str = ""
    louder: tuple[tuple[int, tuple[str, ...]], ...] = ()
    refusals: tuple[Refusal, ...] = ()


def without_checkout(image: str) -> str:
    """The name of a base image's twin that has everything but the checkout."""
    return f"{image}-tools"


def is_sealed(text: str, base: str) -> bool:
    """Whether a Dockerfile has a line already that seals a checkout at that base."""
    found = _SEALED.search(text)
    return found is not None and found[2] == base


def sealed_recipe(text: str, *, workdir: str, base: str, history: str) -> Recipe:
    """Read a task's Dockerfile and seal it, unless a line isn't recognised."""
    reader = _Reader(text, workdir=workdir, base=base, history=history)
    for at, instruction in enumerate(reader.instructions):
        reason = reader.read(at, instruction)
        if reason:
            reader.refusals.append(Refusal(line=instruction.line, reason=reason))
    reader.finish()
    return Recipe(
        image=reader.image,
        text=text if reader.refusals else reader.written(),
        louder=tuple(reader.louder),
        refusals=tuple(reader.refusals),
    )


class _Reader:
    def __init__(self, text: str, *, workdir: str, base: str, history: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.end = "\r\n" if "\r\n" in text else "\n"
        self.instructions = parse_dockerfile(text)
        self.wanted, self.base, self.history = workdir, base, history
        self.image, self.workdir = "", ""
        self.copied: dict[str, str] = {}
        self.from_at, self.prepared = -1, False
        self.older: list[int] = []
        self.edits: dict[int, str] = {}
        self.louder: list[tuple[int, tuple[str, ...]]] = []
        self.refusals: list[Refusal] = []

    def read(self, at: int, instruction: Instruction) -> str:
        """Why an instruction isn't recognised; empty where it is."""
        if "<<" in instruction.arguments:
            return "begins a here-document"
        if instruction.name == "RUN":
            return self._run(at, instruction)
        if instruction.name == "FROM":
            return self._from(at, instruction)
        if instruction.name not in _KEPT:
            return f"has {instruction.name}, which may not fit the sealed checkout"
        if instruction.name == "WORKDIR":
            self.workdir = instruction.arguments.strip("\"'").rstrip("/")
        if instruction.name in ("COPY", "ADD"):
            return self._copy(at, instruction)
        return ""

    def _from(self, at: int, instruction: Instruction) -> str:
        found = stages((instruction,))[0]
        if self.image:
            return "begins another stage"
        if not found.image or "$" in found.image or found.alias:
            return "isn't a plain FROM of an image"
        self.image, self.from_at = found.image, at
        return ""

    def _copy(self, at: int, instruction: Instruction) -> str:
        words = [w for w in _operands(instruction.arguments) if not w.startswith("--")]
        if "--from" in instruction.arguments or len(words) < 2:
            return "copies from another image"
        if [word.removeprefix("./") for word in words[:-1]] == [SEALER]:
            self.older.append(at)
        for source in words[:-1]:
            name = source.removeprefix("./")
            folder = words[-1] if words[-1].endswith("/") or len(words) > 2 else ""
            self.copied[name] = f"{folder.rstrip('/')}/{name}" if folder else words[-1]
            if name in (PREPARE, SEALER) and not words[-1].startswith("/"):
                return f"copies {name} to a place that isn't an absolute path"
        return ""

    def _run(self, at: int, instruction: Instruction) -> str:
        called = _called(instruction.arguments)
        if _sets_modes(instruction.arguments, self.wanted):
            return ""
        if called == SEALER:
            self.older.append(at)
        elif called == PREPARE or _installs(instruction.arguments):
            self.prepared = self.prepared or called == PREPARE
            self._fail_loud(at)
        else:
            return "does something else than prepare.sh, a seal or an installation alone"
        return ""

    def _fail_loud(self, at: int) -> None:
        """Take `|| true` off the end of a RUN."""
        start, end = self._span(at)
        text = "".join(self.lines[start:end]).rstrip()
        swallowed = _SWALLOWED.search(text)
        if swallowed is None:
            return
        if _installs(self.instructions[at].arguments):
            lacking = _brought_by_nothing(self.instructions[at].arguments, "".join(self.lines))
            self.louder.append((self.instructions[at].line, lacking))
        loud = text[: swallowed.start()].rstrip().removesuffix("\\").rstrip()
        # Of commands joined by `;` only the last one's failure would count.
        stops = "RUN set -e; " if ";" in loud and "set -e" not in loud else "RUN "
        self._edit(start, end, re.sub(r"^(\s*)RUN\s+", rf"\1{stops}", loud, flags=re.I) + self.end)

    def _span(self, at: int) -> tuple[int, int]:
        """The lines of an instruction: index of the first, and of the one after the last."""
        start = self.instructions[at].line - 1
        more = at + 1 < len(self.instructions)
        end = self.instructions[at + 1].line - 1 if more else len(self.lines)
        while end > start + 1 and (
            not self.lines[end - 1].strip() or self.lines[end - 1].lstrip().startswith("#")
        ):
            end -= 1
        return start, end

    def _edit(self, start: int, end: int, text: str) -> None:
        self.edits[start] = text
        self.edits |= dict.fromkeys(range(start + 1, end), "")

    def finish(self) -> None:
        """What is decided by the whole file; then the seal's line."""
        lacking = {
            "stands on no image (FROM)": self.image,
            "calls no prepare.sh": self.prepared,
            f"ends in WORKDIR {self.workdir or '(none)'}, while test.sh works in {self.wanted}": (
                self.workdir == self.wanted
            ),
        }
        self.refusals += [
            Refusal(line=0, reason=why) for why, there in lacking.items() if not there
        ]
        if not self.refusals and not is_sealed("".join(self.lines), self.base):
            self._seal()

    def _seal(self) -> None:
        for at in self.older:
            self._remove(at)
        folder = self.copied.get(PREPARE, f"/home/{PREPARE}").rpartition("/")[0]
        start, end = self._span(self.from_at)
        lines = (
            f"FROM {self.image} AS sealed",
            f"COPY {SEALER} {folder}/",
            f"RUN bash {folder}/{SEALER} {self.wanted} {self.base} {self.history}",
            "",
            f"FROM {without_checkout(self.image)}",
            f"COPY --from=sealed {self.wanted} {self.wanted}",
        )
        self._edit(start, end, "".join(f"{line}{self.end}" for line in lines))

    def _remove(self, at: int) -> None:
        """Take an instruction out, and the empty lines after it where there are some before it."""
        start, end = self._span(at)
        before = start - 1
        while before in self.edits and not self.edits[before]:
            before -= 1
        if before < 0 or not self.lines[before].strip():
            while end < len(self.lines) and not self.lines[end].strip():
                end += 1
        self._edit(start, end, "")

    def written(self) -> str:
        """The file with its edits."""
        return "".join(self.edits.get(at, line) for at, line in enumerate(self.lines))


def _commands(arguments: str) -> list[Command] | None:
    """The commands of a RUN, those of its `$(…)` aside; None where it can't be read."""
    found = statements(arguments)
    if any(statement.problem for statement in found):
        return None
    return [c for statement in found for c in statement.commands if c.words]


def _called(arguments: str) -> str:
    """The one script of ours that a RUN calls, whatever it says of modes and of failing."""
    left = [c for c in _commands(arguments) or () if c.name not in ("chmod", "true", ":")]
    if len(left) != 1 or substituted(left[0]):
        return ""
    words = [w for w in left[0].words if w not in ("bash", "sh", "-e", "-x")]
    name = words[0].rpartition("/")[2] if words else ""
    return name if name in (PREPARE, SEALER) else ""


def _sets_modes(arguments: str, checkout: str) -> bool:
    """Whether a RUN changes the modes of files outside the checkout, and does nothing else."""
    commands = _commands(arguments) or []
    return bool(commands) and all(
        command.name == "chmod"
        and not command.redirects
        and len(command.words) > 2
        and re.fullmatch(r"[0-7]{3,4}|[ugoa]*[+=-][rwxX]+", command.words[1]) is not None
        and all(_is_outside(word, checkout) for word in command.words[2:])
        for command in commands
    )


def _is_outside(word: str, checkout: str) -> bool:
    """Whether a path, or a pattern that only its last part is, names nothing of the checkout."""
    folder, _, name = word.rpartition("/")
    plain = re.fullmatch(r"(?:/[\w.-]+)+", folder) and re.fullmatch(r"[\w.*-]+", name)
    parts = {*word.split("/")}
    inside = f"{word}/".startswith(f"{checkout}/") or fnmatchcase(checkout, word)
    return bool(plain) and not parts & {".", ".."} and not inside


def _installs(arguments: str) -> bool:
    """Whether a RUN installs packages, and does nothing else."""
    commands = _commands(arguments)
    if not commands or any(substituted(command) for command in commands):
        return False
    installs = any(c.name in _INSTALLERS and {*c.words} & _INSTALL for c in commands)
    return installs and all(c.name in _INSTALLERS | _BESIDE for c in commands)


def _brought_by_nothing(arguments: str, text: str) -> tuple[str, ...]:
    """The installers that a RUN calls and that no package named in the file brings."""
    called = {command.name for command in _commands(arguments) or ()}
    return tuple(
        name for name in sorted(called & _BROUGHT_BY.keys()) if not _BROUGHT_BY[name].search(text)
    )


def _operands(arguments: str) -> list[str]:
    """The words of a COPY, in JSON or in shell form."""
    try:
        return [str(word) for word in json.loads(arguments)]
    except (ValueError, TypeError):
        pass
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
