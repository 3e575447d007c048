"""Reads shell scripts line by line, as far as simple commands go.

Promises: never raises and never runs anything; time is linear in the text, and a value's length is
bounded. It is strict where `shell`, which checks read with, is tolerant: a line that goes beyond (a
here-document, a quote over several lines, backquotes) is a statement with a `problem`, and words
keep their quotes, so that it is known what only a shell could fill in. Leaves to others what a
command means.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t]+)
  | (?P<comment>\#.*)
  | (?P<redirect>&>>?|\d*(?:>>|>&|>\||>|<<<|<<-?|<&|<))
  | (?P<operator>&&|\|\||;;|[|;&()])
  | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\((?:[^()]|\([^()]*\))*\)|\\.
      |[^\s;&|<>()'"\\$]++|\$)++)
    """,
    re.VERBOSE,
)
LONGEST_VALUE = 1 << 15
_KEYWORDS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!", "time", "{", "}"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PART = re.compile(
    r"""'(?P<single>[^']*)'
      | "(?P<double>(?:\\.|[^"\\])*)"
      | \\(?P<escaped>.)
      | (?P<bare>[^'"\\]+)""",
    re.VERBOSE | re.DOTALL,
)
_SUBSTITUTION = re.compile(r"\$\(((?:[^()]|\([^()]*\))*)\)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PATTERN = re.compile(r"[*?\[{~]")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One simple command. `joint` is what joins it to the one before: "", "|", "&&" or "||".

    `words` are as written, quotes and all; `assignments` stand before them. `redirects` are pairs
    of an operator and its target. `keywords` are those in front (`if`, `!`).
    """

    joint: str = ""
    keywords: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()
    redirects: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The first word without quotes; empty where there is none."""
        return value_of(self.words[0], {}) or self.words[0] if self.words else ""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What stands between two line ends or `;`: commands joined by `|`, `&&` and `||`.

    `line` is the first line, from 1. `grouped` says that parentheses or braces are in it. With a
    `problem` (why the line can't be read) there are no commands.
    """

    line: int
    commands: tuple[Command, ...] = ()
    grouped: bool = False
    problem: str = ""


def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a script in order; comments, empty lines and the `#!` line left out."""
    return tuple(s for number, line in _joined(text) for s in _of_line(number, line))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those joined that end in a backslash, and the number of the first of each."""
    start, parts = 1, []
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\") or line.lstrip().startswith("#"):
            yield start, " ".join(parts)
            start, parts = number + 1, []
    if parts:
        yield start, " ".join(parts)


def _of_line(number: int, line: str) -> Iterator[Statement]:
    tokens = _tokens(line)
    problem = "has a quote that doesn't end on its line" if tokens is None else _problem(tokens)
    if tokens is None or problem:
        yield Statement(line=number, problem=problem)
        return
    part: list[tuple[str, str]] = []
    for kind, text in [*tokens, ("operator", ";")]:
        if kind == "operator" and text in (";", ";;"):
            if part:
                yield _statement(number, part)
            part = []
        else:
            part.append((kind, text))


def _problem(tokens: list[tuple[str, str]]) -> str:
    for (kind, text), (_, after) in pairwise([*tokens, ("", "")]):
        if kind == "redirect" and text.lstrip("0123456789") in ("<<", "<<-"):
            return "begins a here-document"
        if kind == "redirect" and after == "(":
            return "reads from or writes to a command as if it were a file"
        if "`" in text:
            return "runs a command in backquotes"
    return ""


def _tokens(line: str) -> list[tuple[str, str]] | None:
    """The tokens of a line, comments and spaces left out; None where a quote stays open."""
    at, found = 0, []
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            return None
        kind, at = str(match.lastgroup), match.end()
        if kind not in ("space", "comment"):
            found.append((kind, match[0]))
    return found


@dataclass(kw_only=True)
class _Draft:
    joint: str = ""
    words: list[str] = field(default_factory=list)
    redirects: list[tuple[str, str]] = field(default_factory=list)

    def command(self) -> Command:
        words = list(self.words)
        keywords, assignments = [], []
        while words and words[0] in _KEYWORDS:
            keywords.append(words.pop(0))
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            assignments.append((match[1], match[2]))
            words.pop(0)
        return Command(
            joint=self.joint,
            keywords=tuple(keywords),
            assignments=tuple(assignments),
            words=tuple(words),
            redirects=tuple(self.redirects),
        )


def _statement(number: int, tokens: list[tuple[str, str]]) -> Statement:
    drafts, grouped, pending = [_Draft()], False, ""
    for kind, text in tokens:
        if kind == "redirect":
            pending = text
        elif kind == "word" and pending:
            drafts[-1].redirects.append((pending, text))
            pending = ""
        elif kind == "word":
            grouped = grouped or text in ("{", "}")
            drafts[-1].words.append(text)
        elif text in "()":
            grouped = True
        else:
            drafts.append(_Draft(joint=text))
    commands = tuple(draft.command() for draft in drafts)
    if commands[-1].joint == "&":
        return Statement(line=number, problem="runs a command in the background")
    return Statement(line=number, commands=commands, grouped=grouped)


def substituted(command: Command) -> tuple[Statement, ...]:
    """The statements in the command's own `$(…)`, which run wherever they stand."""
    texts = [*command.words, *(value for _, value in command.assignments)]
    texts += [target for _, target in command.redirects]
    found = (match[1] for text in texts for match in _SUBSTITUTION.finditer(text))
    return tuple(s for inner in found if not inner.startswith("(") for s in statements(inner))


def value_of(word: str, variables: Mapping[str, str]) -> str | None:
    """What the shell makes of a word; None where that can't be known from the script.

    Known are plain texts and the variables given. Patterns, `~`, braces and command substitutions
    outside quotes aren't.
    """
    parts = []
    for match in _PART.finditer(word):
        if match["single"] is not None:
            parts.append(match["single"])
            continue
        if match["escaped"] is not None:
            parts.append(match["escaped"])
            continue
        bare = match["bare"] is not None
        if not bare and "\\$" in match["double"]:
            return None
        text = match["bare"] if bare else re.sub(r'\\(["\\$`])', r"\1", match["double"])
        filled = _filled(text, variables)
        if filled is None or (bare and (_PATTERN.search(text) or " " in filled)):
            return None
        parts.append(filled)
    return "".join(parts)


def _filled(text: str, variables: Mapping[str, str]) -> str | None:
    """The text with its variables; None where one isn't known or a command would have to run."""
    names = [match[1] or match[2] for match in _VARIABLE.finditer(text)]
    if "`" in text or "$" in _VARIABLE.sub("", text):
        return None
    return filled_in(text, names, variables, _VARIABLE)


def filled_in(
    text: str, names: Sequence[str], known: Mapping[str, str], form: re.Pattern[str]
) -> str | None:
    """The text with its variables filled in; None where one isn't known or it would be too long.

    `names` are those that the text has in the given form, as its first or its second group.
    """
    if any(name not in known for name in names):
        return None
    # A value made of itself twice grows without end.
    if len(text) + sum(len(known[name]) for name in names) > LONGEST_VALUE:
        return None
    return form.sub(lambda match: known[match[1] or match[2]], text)
