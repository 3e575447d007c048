"""What a build runs: the commands of a Dockerfile and of the scripts that it calls, line by line.

Promises: never raises; a command's words have the values of `ARG`, `ENV` and earlier assignments
filled in, as far as they are written down; of more than 2,000 commands the first ones. Leaves to
others what a command does. Scripts count once, where they are first called.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kbench_build.rules.dockerfile import Instruction
from kbench_build.rules.shell import Command, Script, commands, parse_shell
from kbench_build.rules.shell_steps import Options, Step, first_options, option_words, steps

_FLAGS = re.compile(r"\s*(?:--\w+=\S*\s+(?:\\\s)?)+")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh"})
_DECLARES = frozenset({"readonly", "export", "local", "declare", "typeset"})
_LONGEST_VALUE = 500
# Ten times as many as the longest recipes and verifiers in use have.
_MOST_LINES = 2000


@dataclass(frozen=True, kw_only=True)
class Line:
    """A command of a build: the file that it stands in, and its words with values filled in.

    `nested`: it stands in a `$(…)`, so what becomes of its failure isn't known.
    """

    file: str
    step: Step
    words: tuple[str, ...]
    nested: bool = False

    @property
    def command(self) -> Command:
        """The command as it is written."""
        return self.step.command

    @property
    def name(self) -> str:
        """The program's name without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def where(self) -> str:
        """Its line, as findings name it."""
        return f"line {self.command.line}"

    @property
    def shown(self) -> str:
        """The command's beginning, as messages quote it."""
        text = " ".join(self.words)
        return f"`{text[:59]}…`" if len(text) > 60 else f"`{text}`"


@dataclass
class _Build:
    """What is known on the way through a Dockerfile."""

    scripts: Mapping[str, tuple[str, str]]
    values: dict[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    seen: set[str] = field(default_factory=set)


def build_lines(
    file: str, instructions: Iterable[Instruction], scripts: Mapping[str, tuple[str, str]]
) -> tuple[Line, ...]:
    """The commands of a Dockerfile in order; `scripts` of its context: last name → (file, text)."""
    return tuple(islice(_lines(file, instructions, _Build(scripts=scripts)), _MOST_LINES))


def script_lines(file: str, text: str, scripts: Mapping[str, tuple[str, str]]) -> tuple[Line, ...]:
    """The commands of a script, and of those that it calls (see `build_lines`)."""
    build = _Build(scripts=scripts, seen={file.rpartition("/")[2]})
    found = _of_script(file, parse_shell(text), first_options(text), build)
    return tuple(islice(found, _MOST_LINES))


def _lines(file: str, instructions: Iterable[Instruction], build: _Build) -> Iterator[Line]:
    for instruction in instructions:
        if instruction.name == "FROM":
            build.options = Options()
        elif instruction.name == "SHELL":
            build.options = option_words(tuple(_json_words(instruction.arguments)))
        elif instruction.name == "ARG":
            _define(build, instruction.arguments)
        elif instruction.name == "ENV":
            _environment(build, instruction.arguments)
        elif instruction.name == "RUN":
            for script in _run(instruction):
                yield from _of_script(file, script, build.options, build)


def _run(instruction: Instruction) -> Iterator[Script]:
    source = instruction.source
    if flags := _FLAGS.match(source):
        source = "".join("\\\n" for c in flags[0] if c == "\n") + source[flags.end() :]
    words = _json_words(source.strip()) if source.lstrip().startswith("[") else []
    if words:
        source = shlex.join(words)
    if instruction.bodies and source.strip().startswith("<<"):
        yield from (parse_shell(text, line) for line, text in instruction.bodies)
    else:
        yield parse_shell(source, instruction.line)


def _json_words(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [str(word) for word in value] if isinstance(value, list) else []


def _define(build: _Build, arguments: str) -> None:
    name, has_value, value = arguments.partition("=")
    if has_value:
        build.values[name.strip()] = _filled(value.strip().strip("\"'"), build.values)


def _environment(build: _Build, arguments: str) -> None:
    found = parse_shell(arguments)
    if found and isinstance(found[0], Command):
        for name, value in found[0].assigns:
            build.values[name] = _filled(value, build.values)


def _filled(text: str, values: Mapping[str, str]) -> str:
    if "$" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[3]) or match[2] or match[0]

    return _VARIABLE.sub(value, text)[:_LONGEST_VALUE]


def _of_script(file: str, script: Script, options: Options, build: _Build) -> Iterator[Line]:
    for step in steps(script, options):
        command = step.command
        for name, value in assignments(command):
            build.values[name] = _filled(value, build.values)
        words = tuple(_filled(word, build.values) for word in command.words)
        yield Line(file=file, step=step, words=words)
        for inner in command.inner:
            for nested in commands(inner):
                filled = tuple(_filled(word, build.values) for word in nested.words)
                yield Line(file=file, step=Step(command=nested), words=filled, nested=True)
        yield from _called(words, build)


def assignments(command: Command) -> Iterator[tuple[str, str]]:
    """(name, value) that a command sets, by itself or through `readonly`, `export` and the like."""
    yield from command.assigns
    if command.name in _DECLARES:
        for word in command.words[1:]:
            name, equals, value = word.partition("=")
            if equals:
                yield name, value


def _called(words: tuple[str, ...], build: _Build) -> Iterator[Line]:
    """The commands of a script of the context that a command runs."""
    if not words:
        return
    shell = words[0].rpartition("/")[2] in _SHELLS
    rest = [w for w in words[1:] if not w.startswith(("-", "+"))] if shell else list(words)
    name = rest[0].rpartition("/")[2] if rest else ""
    if name in build.scripts and name not in build.seen:
        build.seen.add(name)
        file, text = build.scripts[name]
        options = option_words(words[1:-1]) if shell else first_options(text)
        yield from _of_script(file, parse_shell(text), options, build)
