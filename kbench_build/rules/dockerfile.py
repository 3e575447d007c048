"""Reads Dockerfiles as far as checks need it: instructions, images stood on, what is copied.

Promises: never raises, whatever the text; line numbers are those of the file. Leaves to others what
a `RUN` does, and to the engine whether the file builds.
"""

import json
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_HEREDOC = re.compile(r"<<-?([\"']?)([A-Za-z_]\w*)\1")
_MOST_HEREDOCS = 20
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ESCAPE_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*`\s*$", re.IGNORECASE)
_REMOTE = re.compile(r"(?:https?|ftp|ssh|git)://|git@|[^/]+\.git(?:#|$)")


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction: its first line (from 1), its upper-case name, its joined arguments.

    `source` are its lines as the shell would read them, each where it was: without the name, with
    comments between them left out. `bodies` are its here-documents, each with its first line.
    """

    line: int
    name: str
    arguments: str
    source: str = field(default="", compare=False, repr=False)
    bodies: tuple[tuple[int, str], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One `FROM`: the image, arguments filled in, and the stage's own name if it has one.

    `image` is None when it is an earlier stage; it keeps a `$` where an argument has no default.
    """

    line: int
    image: str | None
    alias: str | None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Sources that a `COPY` or `ADD` takes from the build context."""

    line: int
    sources: tuple[str, ...]


def parse_dockerfile(text: str) -> tuple[Instruction, ...]:
    """The instructions in order; comments, empty lines and the bodies of heredocs left out."""
    return tuple(_instructions(text.splitlines()))


def _instructions(lines: list[str]) -> Iterator[Instruction]:
    mark = "`" if lines and _ESCAPE_DIRECTIVE.match(lines[0]) else "\\"
    ends = _ends(lines)
    at = 0
    while at < len(lines):
        start = at
        parts: list[str] = []
        source: list[str] = []
        while at < len(lines):
            line = lines[at].strip()
            at += 1
            if not line or line.startswith("#"):
                if not parts:
                    break
                source.append("\\")
                continue
            parts.append(line.removesuffix(mark).strip())
            goes_on = line.endswith(mark)
            source.append(f"{line.removesuffix(mark)}\\" if goes_on else line)
            if not goes_on:
                break
        name, _, arguments = " ".join(parts).partition(" ")
        if name:
            at, bodies = _heredocs(lines, ends, at, name, arguments)
            yield Instruction(
                line=start + 1,
                name=name.upper(),
                arguments=arguments.strip(),
                source="\n".join(source)[len(name) :],
                bodies=bodies,
            )


def _heredocs(
    lines: list[str], ends: Mapping[str, Sequence[int]], at: int, name: str, arguments: str
) -> tuple[int, tuple[tuple[int, str], ...]]:
    """The line after the heredocs that an instruction opens, and (first line, text) of each."""
    bodies: list[tuple[int, str]] = []
    if name.upper() not in {"RUN", "COPY", "ADD"}:
        return at, ()
    for _, word in _HEREDOC.findall(arguments)[:_MOST_HEREDOCS]:
        places = ends.get(word, ())
        following = bisect_left(places, at)
        if following < len(places):
            bodies.append((at + 1, "\n".join(lines[at : places[following]])))
            at = places[following] + 1
    return at, tuple(bodies)


def _ends(lines: list[str]) -> Mapping[str, Sequence[int]]:
    """Where each line that may end a heredoc stands; nothing where there are no heredocs."""
    found: dict[str, list[int]] = {}
    for index, line in enumerate(lines) if any("<<" in line for line in lines) else ():
        found.setdefault(line.strip(), []).append(index)
    return found


def stages(instructions: tuple[Instruction, ...]) -> tuple[Stage, ...]:
    """Every `FROM`, with the defaults of the `ARG`s before the first one filled in."""
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    aliases: set[str | None] = set()
    for instruction in instructions:
        if instruction.name == "ARG" and not found:
            name, _, value = instruction.arguments.partition("=")
            arguments[name.strip()] = value.strip().strip("\"'")
        elif instruction.name == "FROM":
            found.append(_stage(instruction, arguments, aliases))
            aliases.add(found[-1].alias)
    return tuple(found)


def _stage(instruction: Instruction, arguments: dict[str, str], earlier: set[str | None]) -> Stage:
    words = [w for w in instruction.arguments.split() if not w.startswith("--")]
    image = _filled(words[0], arguments) if words else ""
    named = len(words) == 3 and words[1].upper() == "AS"
    is_stage = image.lower() in earlier
    return Stage(
        line=instruction.line,
        image=None if is_stage else image,
        alias=words[2].lower() if named else None,
    )


def _filled(text: str, arguments: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return arguments.get(match[1] or match[3]) or match[2] or match[0]

    return _VARIABLE.sub(value, text)


def images(instructions: tuple[Instruction, ...]) -> tuple[str, ...]:
    """The images that a Dockerfile stands on: of `FROM`, and of `COPY --from` a foreign image."""
    found = stages(instructions)
    names = {stage.alias for stage in found}
    foreign = [
        image
        for instruction in instructions
        if instruction.name == "COPY"
        for image in _from_flags(instruction.arguments)
        if image.lower() not in names and not image.isdigit()
    ]
    return tuple(dict.fromkeys([s.image for s in found if s.image is not None] + foreign))


def _from_flags(arguments: str) -> Iterator[str]:
    for word in arguments.split():
        if not word.startswith("--"):
            return
        if word.startswith("--from="):
            yield word.removeprefix("--from=")


def copies(instructions: tuple[Instruction, ...]) -> tuple[Copy, ...]:
    """What `COPY` and `ADD` take from the build context: no stages, URLs, heredocs or variables."""
    return tuple(
        Copy(line=instruction.line, sources=tuple(sources))
        for instruction in instructions
        if instruction.name in {"COPY", "ADD"}
        if (sources := list(_sources(instruction.arguments)))
    )


def _sources(arguments: str) -> Iterator[str]:
    words = arguments.split()
    while words and words[0].startswith("--"):
        if words[0].startswith("--from="):
            return
        words.pop(0)
    for source in _words(" ".join(words))[:-1]:
        if "$" not in source and not source.startswith("<<") and not _REMOTE.match(source):
            yield source


def _words(text: str) -> list[str]:
    """The operands, whether in JSON or in shell form."""
    if text.startswith("["):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, list):
            return [str(item) for item in value]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
