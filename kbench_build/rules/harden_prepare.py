"""Recognises a prepare.sh and a solve.sh of the older shape.

Promises: every statement is explained, or named with its line and the reason why it isn't; what is
kept of prepare.sh keeps its bytes. Leaves the Dockerfile that calls it to `harden_recipe`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbench_build.rules.harden_tests import Refusal, applies, only
from kbench_build.rules.shell_lines import Command, Statement, statements, substituted, value_of

CHECKER = "check_git_changes.sh"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BUILD_TOOLS = frozenset({"gradlew", "gradle", "mvnw", "mvn", "amper", "make", "bazel"})
_FREE = ("set", "export", "echo", "readonly")
# What makes a clone look clean before the base is checked out. A sealed checkout is the base.
_TIDYING_KEYS = frozenset(
    f"core.{key}" for key in ("autocrlf", "eol", "filemode", "ignorecase", "longpaths", "safecrlf")
)
_TIDYING_FILES = (".git/info/exclude", ".git/info/attributes", ".gitattributes")


@dataclass(frozen=True, kw_only=True)
class PrepareScript:
    """What a prepare.sh of the older shape says, or why it isn't one.

    `checks` are the lines that call check_git_changes.sh, each with whether the base is checked out
    there. `tidying` are lines before that which make the clone look clean: a sealed checkout is so.
    `swallowed` are lines whose command may fail unnoticed.
    """

    workdir: str = ""
    base: str = ""
    checks: tuple[tuple[int, bool], ...] = ()
    tidying: tuple[int, ...] = ()
    swallowed: tuple[int, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def read_prepare(text: str, command: tuple[str, ...]) -> PrepareScript:
    """Read a prepare.sh of the older shape. `command` is the test command of test.sh."""
    reader, refusals = _Reader(command), []
    found = statements(text)
    for statement in found:
        problem = statement.problem or reader.read(statement)
        if problem:
            refusals.append(Refusal(line=statement.line, reason=problem))
    going = [*reader.tidying, *(line for line, at_base in reader.checks if not at_base)]
    refusals += [
        Refusal(line=line, reason="is to go, but something else stands on the line")
        for line in going
        if not _is_alone(line, found, text)
    ]
    if not refusals and not reader.base:
        refusals = [Refusal(line=0, reason="checks out no commit, so the base isn't known")]
    return PrepareScript(
        workdir=reader.workdir,
        base=reader.base,
        checks=tuple(reader.checks),
        tidying=tuple(reader.tidying),
        swallowed=tuple(reader.swallowed),
        refusals=tuple(refusals),
    )


def _is_alone(line: int, found: Sequence[Statement], text: str) -> bool:
    """Whether one statement is all that its line holds, and that it needs no further line."""
    starts = [statement.line for statement in found]
    return starts.count(line) == 1 and not text.split("\n")[line - 1].rstrip().endswith("\\")


class _Reader:
    def __init__(self, command: tuple[str, ...]) -> None:
        self.program = next((w for w in command if w not in ("bash", "sh")), "")
        self.workdir = ""
        self.base = ""
        self.checks: list[tuple[int, bool]] = []
        self.tidying: list[int] = []
        self.swallowed: list[int] = []
        self.known: dict[str, str] = {}

    def read(self, statement: Statement) -> str:
        """Why the statement isn't recognised; empty where it is."""
        first = statement.commands[0]
        if statement.grouped or first.keywords or any(map(substituted, statement.commands)):
            return "is more than a plain command"
        if not self.base and _tidies(first):
            self.tidying.append(statement.line)
            return only(statement.commands[1:], "true", ":")
        if not first.words or first.name in _FREE:
            return self._remember(first) or only(statement.commands[1:])
        if first.name in ("cd", "git"):
            reader = self._folder if first.name == "cd" else self._git
            return reader(first) or only(statement.commands[1:], "exit")
        if any(w.strip("'\"").rpartition("/")[2] == CHECKER for w in first.words[:2]):
            self.checks.append((statement.line, bool(self.base)))
            return only(statement.commands[1:], "exit")
        return self._warm_up(statement)

    def _remember(self, command: Command) -> str:
        pairs = [(n, v) for n, _, v in (w.partition("=") for w in command.words[1:]) if v]
        for name, word in (*command.assignments, *pairs):
            value = value_of(word, self.known)
            if value is not None:
                self.known[name] = value
        return "writes to a file" if command.redirects else ""

    def _folder(self, command: Command) -> str:
        folder = value_of(command.words[1], self.known) if len(command.words) == 2 else None
        if folder is None or not folder.startswith("/"):
            return "goes to a folder that isn't given as an absolute path"
        if self.workdir and folder.rstrip("/") != self.workdir:
            return f"leaves the checkout {self.workdir}"
        self.workdir = folder.rstrip("/")
        return ""

    def _git(self, command: Command) -> str:
        verb, *words = [value_of(w, self.known) or w for w in command.words[1:]] or [""]
        plain = [word for word in words if not word.startswith("-")]
        if verb in ("checkout", "switch") or (verb == "reset" and plain):
            return self._checked_out(plain)
        if verb == "submodule":
            return "fetches submodules, which the sealed checkout would need before"
        known = verb in ("reset", "clean", "status")
        known = known or (verb == "config" and "safe.directory" in words)
        return "" if known else "runs git in a way that this doesn't recognise"

    def _checked_out(self, plain: list[str]) -> str:
        if len(plain) != 1 or not _COMMIT.fullmatch(plain[0]):
            return "checks out something else than one full commit id"
        if self.base and self.base != plain[0]:
            return f"checks out another commit than {self.base}"
        self.base = plain[0]
        return ""

    def _warm_up(self, statement: Statement) -> str:
        first, *rest = statement.commands
        program = next((w for w in first.words if w not in ("bash", "sh")), "")
        if program != self.program and program.rpartition("/")[2] not in _BUILD_TOOLS:
            return f"runs {program}: the seal puts back whatever it changes in the checkout"
        if not self.base:
            return "builds before the base is checked out"
        for other in rest:
            if other.joint == "||" and other.name in ("true", ":"):
                self.swallowed.append(statement.line)
            elif not (other.joint == "|" and other.name in ("tee", "tail")):
                return f"joins the build to another command by {other.joint}"
        return ""


def _tidies(command: Command) -> bool:
    """Whether a command only makes a clone look clean: settings, exclusions, and adding it all."""
    verb, *words = command.words[1:] or ("",)
    if command.name == "git" and verb == "config":
        plain = [word for word in words if not word.startswith("-")]
        return not {*words} - {*plain, "--local"} and plain[:1] != [] and plain[0] in _TIDYING_KEYS
    if command.name == "git" and verb == "add":
        return all(word in (".", "-A", "--all", "-u") for word in words)
    targets = [target.strip("'\"") for _, target in command.redirects]
    return command.name in ("echo", "printf") and bool(targets) and {*targets} <= {*_TIDYING_FILES}


def prepared(text: str, script: PrepareScript) -> str:
    """prepare.sh with its calls of check_git_changes.sh as the shipped one wants them.

    That one asserts that a checkout is one commit exactly: a call before the base is there goes,
    and so does what made a clone pass an older one.
    """
    lines = text.splitlines(keepends=True)
    for number in script.tidying:
        lines[number - 1] = ""
    for number, at_base in script.checks:
        line = lines[number - 1]
        if not at_base:
            lines[number - 1] = ""
        elif f"{CHECKER} {script.workdir} " not in line:
            call = f"{CHECKER} {script.workdir} {script.base}"
            lines[number - 1] = line.replace(CHECKER, call, 1)
    return "".join(lines)


def solve_refusals(text: str, workdir: str) -> tuple[Refusal, ...]:
    """The lines of a solve.sh that do more than apply the gold patch in the checkout."""
    found = [Refusal(line=n, reason=reason) for n, reason in _solve_problems(text, workdir)]
    if not found and "fix.patch" not in text:
        found = [Refusal(line=0, reason="doesn't apply fix.patch")]
    return tuple(found)


def _solve_problems(text: str, workdir: str) -> Iterator[tuple[int, str]]:
    for statement in statements(text):
        problem = statement.problem or _solve_problem(statement, workdir)
        if problem:
            yield statement.line, problem


def _solve_problem(statement: Statement, workdir: str) -> str:
    first = statement.commands[0]
    if statement.grouped or first.keywords or any(map(substituted, statement.commands)):
        return "is more than a plain command"
    if first.name == "cd":
        there = value_of(first.words[1], {}) if len(first.words) == 2 else None
        return "" if there and there.rstrip("/") == workdir else f"leaves the checkout {workdir}"
    if first.name in ("git", "patch"):
        others = [c for c in statement.commands if c.name in ("git", "patch")]
        if all(applies(command, "fix.patch") for command in others):
            return only(statement.commands[1:], "git", "patch", "exit", "echo")
        return "applies something else than fix.patch, or only a part of it"
    return only(statement.commands, "set", "echo", "exit") and "does more than apply fix.patch"
