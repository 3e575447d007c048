"""Recognises blocks of a test.sh that make way for the hidden patch, and that apply it or stop.

Some scripts read the patch's paths, put those files back as they were committed, and refuse to go
on where the patch doesn't apply. The shipped verifier does all of that itself, by blob ids.
Promises: a block that does anything else is named. Leaves plain statements to `harden_tests`.
"""

import re
from typing import Literal

from kbench_build.rules.shell_lines import Command, Statement, substituted

_PATCH = "/tests/test.patch"
_EACH = re.compile(r'"\$\{(\w+)\[@\]\}"')
_ALSO = frozenset({"", "fi", "done", "true", ":", "continue", "break", "exit", "echo", "printf"})
_ASKING = frozenset({"[", "[[", "test"})
_COMMIT = re.compile(r"--source=(?:HEAD|[0-9a-f]{40})|HEAD|[0-9a-f]{40}")
_FORCE = frozenset({"-f", "-q", "--force", "--quiet", "--cached", "--ignore-unmatch", "-rf", "-r"})


class PutBack:
    """Goes through a script's statements up to the test command.

    `applied` says that a block applied the hidden patch.
    """

    def __init__(self) -> None:
        """Nothing is seen yet."""
        self.applied = False
        self._kind: Literal["", "paths", "files", "patch"] = ""
        self._depth = 0
        self._variable = ""
        self._lists: set[str] = set()

    def take(self, statement: Statement, *, applies: bool) -> str | None:
        """Why a statement of a block isn't recognised; empty where it is, None outside of blocks.

        `applies` says that the statement applies the whole hidden patch, and only that.
        """
        if not self._depth:
            return "" if self._begins(statement, applies=applies) else None
        for command in statement.commands:
            if {"while", "until"} & {*command.keywords} or command.name == "for":
                return "has a loop in a loop"
            self._depth += "if" in command.keywords
            self._depth -= command.name in ("fi", "done")
            if problem := self._inside(command):
                return problem
        return "" if self._depth else self._ended(statement.commands[0])

    def _begins(self, statement: Statement, *, applies: bool) -> bool:
        """Whether a block begins, or the list that one fills."""
        first = statement.commands[0]
        if not first.words:
            # An empty list of bash: `paths=()`.
            return statement.grouped and [text for _, text in first.assignments] == [""]
        if first.keywords == ("while",) and first.name == "read":
            self._kind = "paths"
        elif first.keywords == ("if", "!") and applies:
            self._kind = "patch"
        elif first.name == "for" and len(first.words) == 4 and first.words[2] == "in":
            each = _EACH.fullmatch(first.words[3])
            self._kind = "files" if each and each[1] in self._lists else ""
            self._variable = first.words[1]
        self._depth = 1 if self._kind else 0
        return bool(self._kind)

    def _inside(self, command: Command) -> str:
        """Why a command doesn't belong into the block; empty where it does."""
        if substituted(command):
            return "runs a command in a block before the tests"
        name = command.name
        if self._kind == "paths" and name.endswith("+="):
            self._lists.add(name.removesuffix("+="))
            return ""
        if self._kind == "files" and name in ("git", "rm"):
            return "" if self._puts_back(command) else "changes other files than the hidden patch's"
        known = name in _ALSO or (self._kind == "paths" and name in _ASKING)
        return "" if known else f"runs {name} in a block before the tests"

    def _puts_back(self, command: Command) -> bool:
        """Whether the file of the loop is put back as committed, or removed."""
        *words, last = command.words[1:] or ("",)
        if last not in (f'"${self._variable}"', f'"${{{self._variable}}}"'):
            return False
        if command.name == "rm":
            return all(word in _FORCE or word == "--" for word in words)
        verb, *rest = words or [""]
        if verb == "rm":
            return all(word in _FORCE or word == "--" for word in rest)
        commits = all(_COMMIT.fullmatch(word) or word in ("-q", "--") for word in rest)
        return verb in ("restore", "checkout") and commits

    def _ended(self, closing: Command) -> str:
        kind, self._kind = self._kind, ""
        self.applied = self.applied or kind == "patch"
        if kind == "paths" and closing.redirects != (("<", _PATCH),):
            return f"reads names from something else than {_PATCH}"
        return ""
