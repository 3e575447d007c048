"""Recognises a test.sh of the older shape: what the shipped verifier's data needs of it.

Promises: every statement is explained, or named with its line and the reason why it isn't. Leaves
to others where reports are (`harden_reports`) and what is made of it (`harden`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbench_build.rules.harden_put_back import PutBack
from kbench_build.rules.shell_lines import Command, Statement, statements, substituted, value_of

COLLECTOR, COMPARER = "kotlin_logs_collector.sh", "junit_compare.py"
_OURS = (COLLECTOR, COMPARER)
# What only looks, says something, or moves results about once the tests have run.
_HARMLESS = frozenset(
    {"mkdir", "rm", "cp", "mv", "find", "ls", "cat", "echo", "printf", "tee", "exit", "return"}
    | {"test", "[", "[[", "true", "false", ":", "fi", "for", "done", "break", "continue", "read"}
    | {"shopt", "set", "local", "wait", "sort", "head", "tail", "wc", "grep", "sed", "awk", "cd"}
    | {"basename", "dirname", "chmod", "touch", "export", "date", "pwd", "mktemp"}
)
# What prepares something that the shipped verifier's data has no word for.
_NO_TESTS = frozenset(
    {"source", ".", "eval", "exec", "unset", "ulimit", "trap", "alias", "pushd", "popd", "sleep"}
    | {"cp", "mv", "sed", "chown", "ln", "sudo", "su", "apt-get", "apt", "pip", "curl", "wget"}
    | {"tar", "unzip", "cat", "ls", "pwd", "service", "for", "case", "function", "[", "[[", "test"}
    | {"exit", "return", "true", ":", "unzip", "rsync", "install", "tee"}
)
_LOGS = ("/logs/", "/tmp/", "/dev/")  # noqa: S108 - read, not written
_OLD_REPORTS = ("test-results", "surefire-reports", "failsafe-reports", "/reports")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A line that isn't recognised: its number from 1 (0: the whole file) and why."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class TestScript:
    """What a test.sh of the older shape says, or why it isn't one.

    `settings` are the variables that the command gets, with those of the image and earlier ones
    filled in.
    """

    workdir: str = ""
    command: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()


def read_test(text: str, known: Mapping[str, str]) -> TestScript:
    """Read a test.sh of the older shape. `known` are the variables that the image sets."""
    reader, refusals = _Reader(known), []
    for statement in statements(text):
        problem = statement.problem or reader.read(statement)
        if problem:
            refusals.append(Refusal(line=statement.line, reason=problem))
    return TestScript(
        workdir=reader.workdir,
        command=reader.command,
        settings=reader.settings,
        refusals=tuple(refusals or reader.missing()),
    )


class _Reader:
    """Goes through test.sh, statement by statement: up to the test command, and after it."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = dict(known)
        self.settings: dict[str, str] = {}
        self.workdir = ""
        self.patched = False
        self.made_runnable = ""
        self.blocks = PutBack()
        self.command: tuple[str, ...] = ()
        self.readers: Mapping[str, Callable[[Statement], str]] = {
            "cd": self._folder,
            "chmod": self._runnable,
            "echo": self._logs,
            "export": self._exported,
            "find": self._old_reports,
            "git": self._git,
            "mkdir": self._logs,
            "patch": self._patch,
            "printf": self._logs,
            "rm": self._old_reports,
            "set": lambda _: "",
            "touch": self._logs,
        }

    def read(self, statement: Statement) -> str:
        """Why the statement isn't recognised; empty where it is."""
        if self.command:
            return after(statement)
        first = statement.commands[0]
        taken = self.blocks.take(statement, applies=self._takes_the_patch(statement))
        self.patched = self.patched or self.blocks.applied
        if taken is not None:
            return taken
        if statement.grouped or first.keywords:
            return "makes what runs before the tests depend on a condition, or groups it"
        inner = [s for c in statement.commands for s in substituted(c)]
        if problem := next(filter(None, map(after, inner)), ""):
            return problem
        if not first.words:
            return self._assigned(first.assignments)
        return self.readers.get(first.name, self._tests)(statement)

    def missing(self) -> Iterator[Refusal]:
        """What no statement of the script said."""
        there = {
            "goes to no folder (cd), so the checkout isn't known": self.workdir,
            "applies no hidden patch (/tests/test.patch)": self.patched,
            "runs no test command": self.command,
        }
        yield from (Refusal(line=0, reason=reason) for reason, found in there.items() if not found)

    def _value(self, word: str) -> str | None:
        return value_of(word, self.known)

    def _values(self, words: Iterable[str]) -> list[str]:
        return [word if (value := self._value(word)) is None else value for word in words]

    def _assigned(self, assignments: Iterable[tuple[str, str]]) -> str:
        for name, word in assignments:
            value = self._value(word)
            if value is not None:
                self.known[name] = value
            elif name in self.settings:
                return f"sets {name}, which the tests get, to what can't be known from the script"
            else:
                # Whatever uses it can't be known either, and says so.
                self.known.pop(name, None)
            if name in self.settings and value is not None:
                self.settings[name] = value
        return ""

    def _folder(self, statement: Statement) -> str:
        words = statement.commands[0].words
        folder = self._value(words[1]) if len(words) == 2 else None
        if folder is None or not folder.startswith("/"):
            return "goes to a folder that isn't given as an absolute path"
        if self.workdir and folder.rstrip("/") != self.workdir:
            return f"leaves the checkout {self.workdir}: the shipped verifier runs the tests there"
        self.workdir = self.known["PWD"] = folder.rstrip("/")
        return only(statement.commands[1:], "exit", "true", ":")

    def _exported(self, statement: Statement) -> str:
        for word in statement.commands[0].words[1:]:
            name, equals, text = word.partition("=")
            value = self._value(text) if equals else self.known.get(name)
            if value is None:
                return f"exports {name}, whose value can't be known from the script"
            self.known[name] = self.settings[name] = value
        return only(statement.commands[1:])

    def _runnable(self, statement: Statement) -> str:
        first = statement.commands[0]
        if first.words[1:2] != ("+x",) or len(first.words) != 3:
            return "changes modes other than that of the program that runs the tests"
        self.made_runnable = first.words[2]
        return only(statement.commands[1:], "true", ":")

    def _git(self, statement: Statement) -> str:
        words = statement.commands[0].words
        if words[1:2] == ("config",) and "safe.directory" in words:
            return only(statement.commands[1:], "true", ":")
        return self._applied(statement) if "apply" in words else "runs git for another end"

    def _patch(self, statement: Statement) -> str:
        return self._applied(statement)

    def _takes_the_patch(self, statement: Statement) -> bool:
        commands = [c for c in statement.commands if c.name in ("git", "patch")]
        return bool(commands) and all(applies(c, "test.patch") for c in commands)

    def _applied(self, statement: Statement) -> str:
        if not self._takes_the_patch(statement):
            return "applies something else than /tests/test.patch, or only a part of it"
        self.patched = True
        return only(statement.commands[1:], "exit", "true", ":", "echo", "git", "patch")

    def _logs(self, statement: Statement) -> str:
        """Making folders and saying things, where nothing but logs is written."""
        commands = statement.commands
        targets = [target for c in commands for _, target in c.redirects]
        targets += [w for c in commands if c.name in ("mkdir", "touch", "tee") for w in c.words[1:]]
        for target in self._values(targets):
            if not target.startswith(("-", "1", "2", *_LOGS)):
                return f"writes to {target}, which is no log, before the tests run"
        return only(commands[1:], "echo", "printf", "mkdir", "touch", "tee", "true", ":")

    def _old_reports(self, statement: Statement) -> str:
        """Removing old reports and logs: the shipped verifier does that itself, by its globs."""
        for command in statement.commands:
            words = self._values(command.words[1:])
            if command.name == "find":
                words = [w for before, w in zip(["", *words], words, strict=False)
                         if before in ("-path", "-name", "-wholename", "-exec")]  # fmt: skip
            else:
                words = [word for word in words if not word.startswith("-")]
            if not words or not all(_is_old_report(word) for word in words):
                return "removes or changes other files than old reports before the tests run"
        return only(statement.commands[1:], "rm", "find", "mkdir", "true", ":")

    def _tests(self, statement: Statement) -> str:
        first, *rest = statement.commands
        if first.name in _NO_TESTS:
            return f"runs {first.name}, for which tests/verify.json has no word"
        if not self.patched:
            return "runs a command before the hidden patch is applied"
        for other in rest:
            swallows = other.joint == "||" and other.name in ("true", ":")
            if not swallows and not (other.joint == "|" and other.name == "tee"):
                return f"joins the test command to another one by {other.joint}"
        if any(operator in ("<", "<<<", "<&") for operator, _ in first.redirects):
            return "gives the test command an input"
        return self._own_settings(first.assignments) or self._command(first.words)

    def _own_settings(self, assignments: Iterable[tuple[str, str]]) -> str:
        for name, word in assignments:
            value = self._value(word)
            if value is None:
                return f"sets {name} to what can't be known from the script"
            self.settings[name] = value
        return ""

    def _command(self, words: Sequence[str]) -> str:
        values = [self._value(word) for word in words]
        for word, value in zip(words, values, strict=True):
            if value is None:
                return f"has {word} in the test command, which only a shell can fill in"
        # A program that had to be made runnable first runs through its shell instead.
        shell = ("bash",) if self.made_runnable == words[0] else ()
        self.command = (*shell, *(value for value in values if value))
        return ""


def only(commands: Iterable[Command], *names: str) -> str:
    """Why these commands aren't only such ones; empty where they are."""
    for command in commands:
        if command.name not in names:
            return f"goes on with {command.name or 'something'} on the same line"
    return ""


def applies(command: Command, patch: str) -> bool:
    """Whether a git apply or patch command takes that patch, all of it and nothing else."""
    texts = [*command.words, *(target for _, target in command.redirects)]
    plain = [t for t in texts if not t.startswith("-") and t not in ("git", "apply", "patch")]
    narrowed = any(t.startswith(("--exclude", "--include", "--directory")) for t in texts)
    return not narrowed and [t.strip("'\"").rpartition("/")[2] for t in plain] == [patch]


def _is_old_report(word: str) -> bool:
    return word == "rm" or word.startswith(_LOGS) or any(name in word for name in _OLD_REPORTS)


def after(statement: Statement) -> str:
    """Why a statement after the test command does more than collect, compare and reward."""
    if statement.problem:
        return statement.problem
    for command in statement.commands:
        inner = next(filter(None, map(after, substituted(command))), "")
        if problem := inner or _after_one(command):
            return problem
    return ""


def _after_one(command: Command) -> str:
    words = command.words
    if "-exec" in words or "-execdir" in words:
        at = next(i for i, word in enumerate(words) if word.startswith("-exec"))
        words = words[at + 1 :]
    name = words[0].strip("'\"").rpartition("/")[2] if words else ""
    if not words or name in _HARMLESS or name in _OURS:
        return ""
    if name in ("bash", "sh", "python3", "python"):
        script = next((w for w in words[1:] if not w.startswith("-")), "")
        if "-c" not in words and script.strip("\"'").rpartition("/")[2] in _OURS:
            return ""
    return f"runs {' '.join(words[:2])} after the tests, which has no counterpart in what ships"
