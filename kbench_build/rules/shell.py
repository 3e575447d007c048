"""Reads shell scripts as far as checks need it: which commands, in which structure, on which lines.

Promises: never raises, whatever the text; time and memory in proportion to its length; line numbers
are those of the text. What isn't shell gives some commands or none. Leaves to others what a command
means (see `shell_steps`). Words come without their quotes; expansions stay as they are written, and
commands inside `$(…)` are found too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

# Deeper nesting than any person writes is left out, so that no text exhausts the stack.
_DEEPEST = 40
_SUBSTITUTIONS = 4
# As much of a script as is read: the longest in use are a tenth of it.
_LONGEST = 256 << 10

_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|[;&|()<>\n]")
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_NUMBER = re.compile(r"(?:\d{1,4}|\{[A-Za-z_]\w*\})(?=[<>])")
_PLAIN = re.compile(r"[^ \t\r\n;&|()<>\"'`$\\]+")
_SIMPLE_EXPANSION = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_FUNCTION = re.compile(r"([^\s;&|()<>\"'`$\\=]+)[ \t]*\([ \t]*\)")
# What changes how the text after it is read, in each kind of nesting.
_SPECIAL = {
    '"': re.compile(r'\\.|"|\$\(|\$\{|`', re.DOTALL),
    ")": re.compile(r"\\.|'|\"|\$\(|\$\{|`|\(|\)|(?<=\s)#[^\n]*", re.DOTALL),
    "}": re.compile(r"\\.|'|\"|\$\(|\$\{|`|\}", re.DOTALL),
    "`": re.compile(r"\\.|`", re.DOTALL),
    "'": re.compile("'"),
}
_OPENERS = {'"': '"', "'": "'", "$(": ")", "${": "}", "`": "`", "(": ")"}
_UNESCAPED = re.compile(r"\\([\\\"$`\n])")
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>"})
_REDIRECTS = frozenset({*_WRITES, "<", "<>", ">&", "<&", "<<", "<<-", "<<<"})
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A simple command: its line, words, assignments in front, and where its output goes.

    `assigns` are (name, value); `writes` and `reads` the files of its redirections; `text` what its
    here-documents hold; `inner` the scripts of its `$(…)`.
    """

    line: int
    words: tuple[str, ...] = ()
    assigns: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    text: str = ""
    inner: tuple["Script", ...] = ()

    @property
    def name(self) -> str:
        """The program's name without its folder, empty where there is none."""
        return self.words[0].rpartition("/")[2] if self.words else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipe:
    """Commands joined by `|`, at least two, or one with `!` in front."""

    line: int
    parts: tuple["Node", ...]
    negated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """Parts joined by `&&` and `||`; `background`: with `&` at its end."""

    line: int
    parts: tuple["Node", ...]
    operators: tuple[str, ...] = ()
    background: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A compound command, and its redirections.

    `kind` and `bodies`: `group`, `subshell`, `function`: one; `if`: condition, branch, condition,
    branch…, and the `else` branch if there is one; `loop`: condition and body; `for`: its words, as
    a command of that name, and the body; `case`: the branches.
    """

    line: int
    kind: str
    bodies: tuple["Script", ...]
    name: str = ""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


Node = Command | Pipe | Chain | Block
Script = tuple[Node, ...]


@lru_cache(maxsize=64)
def parse_shell(text: str, line: int = 1) -> Script:
    """The statements of a script (its first 256 KiB) whose first line has this number.

    Tasks of a dataset share scripts, so the last ones that were read are remembered.
    """
    return _Parser(text[:_LONGEST], line, 0).script()


class _Token(NamedTuple):
    """`kind`: word, operator or end. `value` has quotes taken off, `raw` is as written."""

    kind: str
    value: str
    raw: str
    line: int
    inner: tuple[Script, ...] = ()


class _Lexer:
    """Tokens one after the other, and bodies of here-documents beside them."""

    def __init__(self, text: str, line: int, nesting: int) -> None:
        self.text = text
        self.at = 0
        self._nesting = nesting
        self._line = line
        self._counted = 0
        # Where the next here-document of this line begins; after the line, reading goes on there.
        self._bodies_at: int | None = None

    def line(self) -> int:
        """The number of the line that is being read."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def token(self) -> _Token:
        """The next token."""
        self._skip()
        line = self.line()
        if self.at >= len(self.text):
            return _Token("end", "", "", line)
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
        if operator := _OPERATOR.match(self.text, self.at):
            self.at = operator.end()
            if operator[0] == "\n" and self._bodies_at is not None:
                self.at, self._bodies_at = self._bodies_at, None
            return _Token("operator", operator[0], operator[0], line)
        return self._word(line)

    def _skip(self) -> None:
        if blank := _BLANK.match(self.text, self.at):
            self.at = blank.end()
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def _word(self, line: int) -> _Token:
        start, pieces, inner = self.at, list[str](), list[Script]()
        while self.at < len(self.text):
            before = self.at
            piece = self._piece(inner, first=before == start)
            if self.at == before:
                break
            pieces.append(piece)
        return _Token("word", "".join(pieces), self.text[start : self.at], line, tuple(inner))

    def _piece(self, inner: list[Script], *, first: bool) -> str:
        """One part of a word, quotes taken off; where the word ends, nothing is read."""
        text, at = self.text, self.at
        if plain := _PLAIN.match(text, at):
            self.at = plain.end()
            # `name=(…)` and patterns such as `@(a|b)` go on in parentheses.
            if plain[0][-1] in "=@?*+!" and text.startswith("(", self.at):
                self.at = self._balanced(self.at)
            return text[at : self.at]
        if text.startswith(("'", "$'"), at):
            return self._single(text.index("'", at) + 1)
        if text.startswith(('"', "`", "$(", "${", '$"'), at):
            return self._nested(inner)
        if text[at] == "\\":
            self.at = min(at + 2, len(text))
            return "" if text.startswith("\n", at + 1) else text[at + 1 : self.at]
        return self._expansion(at, first=first)

    def _expansion(self, at: int, *, first: bool) -> str:
        """A variable, or a process substitution; nothing where neither begins."""
        if self.text[at] == "$":
            simple = _SIMPLE_EXPANSION.match(self.text, at)
            self.at = simple.end() if simple else at + 1
        elif self.text[at] in "<>" and first and self.text.startswith("(", at + 1):
            self.at = self._balanced(at + 1)
        return self.text[at : self.at]

    def _single(self, start: int) -> str:
        end = self.text.find("'", start)
        end = len(self.text) if end < 0 else end
        self.at = min(end + 1, len(self.text))
        return self.text[start:end]

    def _nested(self, inner: list[Script]) -> str:
        """A part in double quotes, `$(…)`, `${…}` or backquotes."""
        start = self.at + (self.text.startswith('$"', self.at))
        line = self.line()
        self.at = self._balanced(start)
        body = self.text[start : self.at]
        if body[0] == '"':
            inside = body[1:-1] if len(body) > 1 and body[-1] == '"' else body[1:]
            self._substitutions(inside, line, inner)
            return _UNESCAPED.sub(lambda m: "" if m[1] == "\n" else m[1], inside)
        self._substitutions(body, line, inner)
        return body

    def _substitutions(self, text: str, line: int, inner: list[Script]) -> None:
        """Read the scripts of the `$(…)` and backquotes in a part of a word."""
        at = 0
        while self._nesting < _SUBSTITUTIONS and (match := _COMMANDS.search(text, at)):
            if match[0][0] == "\\" or match[0] == "$((":
                at = match.end()
                continue
            opener = match.end() - 1
            at = balanced(text, opener)
            line_here = line + text.count("\n", 0, opener)
            inner.append(_Parser(text[opener + 1 : at - 1], line_here, self._nesting + 1).script())

    def _balanced(self, at: int) -> int:
        return balanced(self.text, at)

    def here_document(self, word: str, *, tabs: bool) -> str:
        """The body of a here-document that ends at this word."""
        text, start = self.text, self._bodies_at
        if start is None:
            end_of_line = text.find("\n", self.at)
            start = len(text) if end_of_line < 0 else end_of_line + 1
        at = start
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            found = text[at:end]
            if (found.lstrip("\t") if tabs else found).rstrip("\r") == word:
                self._bodies_at = min(end + 1, len(text))
                return text[start:at]
            at = end + 1
        self._bodies_at = len(text)
        return text[start:]


_COMMANDS = re.compile(r"\\.|\$\(\(|\$\(|`", re.DOTALL)


def balanced(text: str, at: int) -> int:
    """The place after what closes the quote or parenthesis that opens at a place of a text."""
    opener = text[at : at + 2] if text.startswith(("$(", "${"), at) else text[at]
    closers = [_OPENERS[opener]]
    at += len(opener)
    while closers:
        match = _SPECIAL[closers[-1]].search(text, at)
        if match is None:
            return len(text)
        at = match.end()
        if match[0] == closers[-1]:
            closers.pop()
        elif match[0] in _OPENERS:
            closers.append(_OPENERS[match[0]])
    return at


class _Parser:
    """Statements from tokens, by recursive descent of bounded depth."""

    def __init__(self, text: str, line: int, nesting: int) -> None:
        self._lexer = _Lexer(text, line, nesting)
        self._depth = 0
        self._next: _Token | None = None

    def script(self) -> Script:
        """All statements; what closes nothing is passed over."""
        found: list[Node] = []
        while self._peek().kind != "end":
            before = self._lexer.at
            found += self._statements(frozenset())
            if self._peek().kind != "end" and self._lexer.at == before:
                self._take()
        return tuple(found)

    def _peek(self) -> _Token:
        if self._next is None:
            self._next = self._lexer.token()
        return self._next

    def _take(self) -> _Token:
        token = self._peek()
        self._next = None
        return token

    def _at_operator(self, *values: str) -> bool:
        token = self._peek()
        return token.kind == "operator" and token.value in values

    def _at_word(self, *values: str) -> bool:
        token = self._peek()
        return token.kind == "word" and token.raw in values

    def _statements(self, ends: frozenset[str]) -> list[Node]:
        """Statements up to one of these words or operators, which isn't taken."""
        found: list[Node] = []
        while (token := self._peek()).kind != "end":
            if token.raw in ends:
                break
            if token.kind == "operator" and token.value in ("\n", ";", "&"):
                self._take()
            elif token.kind == "operator" and token.value not in ("(", *_REDIRECTS):
                if ends or token.value == ")":
                    break
                self._take()
            elif token.raw in _CLOSERS and not ends:
                self._take()
            elif token.raw in _CLOSERS:
                break
            else:
                found.append(self._chain())
        return found

    def _body(self, *ends: str) -> Script:
        return tuple(self._statements(frozenset(ends)))

    def _chain(self) -> Node:
        line = self._peek().line
        parts, operators = [self._pipe()], list[str]()
        while self._at_operator("&&", "||"):
            operators.append(self._take().value)
            self._skip_lines()
            parts.append(self._pipe())
        background = self._at_operator("&")
        if len(parts) == 1 and not background:
            return parts[0]
        return Chain(
            line=line, parts=tuple(parts), operators=tuple(operators), background=background
        )

    def _skip_lines(self) -> None:
        while self._at_operator("\n"):
            self._take()

    def _pipe(self) -> Node:
        line, negated = self._peek().line, False
        while self._at_word("!", "time"):
            negated ^= self._take().raw == "!"
        parts = [self._command()]
        while self._at_operator("|", "|&"):
            self._take()
            self._skip_lines()
            parts.append(self._command())
        if len(parts) == 1 and not negated:
            return parts[0]
        return Pipe(line=line, parts=tuple(parts), negated=negated)

    def _command(self) -> Node:
        """A simple or a compound command."""
        self._depth += 1
        try:
            token = self._peek()
            read = None
            if self._depth <= _DEEPEST:
                read = self._compound(token)
            elif token.kind == "operator" and token.value == "(":
                self._take()
            return read if read is not None else self._simple()
        finally:
            self._depth -= 1

    def _compound(self, token: _Token) -> Node | None:
        if token.kind == "operator":
            return self._in_parentheses(token) if token.value == "(" else None
        reader = self._readers.get(token.raw)
        return reader(self) if reader else self._function(token)

    def _group(self) -> Node:
        token = self._take()
        return self._block(token, "group", self._closed("}"))

    def _while(self) -> Node:
        token = self._take()
        condition = self._body("do")
        return self._block(token, "loop", (condition, *self._done()))

    def _block(self, token: _Token, kind: str, bodies: tuple[Script, ...], name: str = "") -> Block:
        """A block, with the redirections that follow it."""
        after = _Simple(token.line)
        while self._peek().kind == "operator" and self._peek().value in _REDIRECTS:
            self._redirect(after)
        return Block(
            line=token.line,
            kind=kind,
            bodies=bodies,
            name=name,
            writes=tuple(after.writes),
            reads=tuple(after.reads),
        )

    def _closed(self, closer: str) -> tuple[Script]:
        body = self._body(closer)
        if self._peek().raw == closer:
            self._take()
        return (body,)

    def _in_parentheses(self, token: _Token) -> Node:
        lexer = self._lexer
        if lexer.text.startswith("(", lexer.at):
            start, self._next = lexer.at - 1, None
            lexer.at = balanced(lexer.text, start)
            return Command(line=token.line, words=("((", lexer.text[start + 2 : lexer.at - 2]))
        self._take()
        return self._block(token, "subshell", self._closed(")"))

    def _if(self) -> Node:
        token, bodies = self._take(), list[Script]()
        bodies.append(self._body("then"))
        while self._at_word("then", "elif", "else"):
            self._take()
            bodies.append(self._body("then", "elif", "else", "fi"))
        if self._at_word("fi"):
            self._take()
        return self._block(token, "if", tuple(bodies))

    def _done(self) -> tuple[Script]:
        if self._at_word("do"):
            self._take()
        return self._closed("done")

    def _for(self) -> Node:
        token = self._take()
        words = _Simple(token.line)
        words.words.append("for")
        while not self._at_operator(";", "\n") and not self._at_word("do"):
            word = self._take()
            if word.kind == "end":
                break
            words.add(word)
        while self._at_operator(";", "\n"):
            self._take()
        return self._block(token, "for", ((words.command(),), *self._done()))

    def _case(self) -> Node:
        token, bodies = self._take(), list[Script]()
        while not self._at_word("in") and self._peek().kind != "end":
            self._take()
        self._take()
        while self._peek().kind != "end" and not self._at_word("esac"):
            while not self._at_operator(")") and self._peek().kind != "end":
                if self._at_word("esac"):
                    break
                self._take()
            if self._at_operator(")"):
                self._take()
                bodies.append(self._body(";;", ";&", ";;&", "esac"))
            if self._at_operator(";;", ";&", ";;&", ")", "&&", "||", "|"):
                self._take()
        self._take()
        return self._block(token, "case", tuple(bodies))

    def _function(self, token: _Token) -> Node | None:
        lexer, start = self._lexer, self._lexer.at - len(token.raw)
        if token.raw == "function":
            self._take()
            name = self._take().value
            if self._at_operator("("):
                self._take()
                self._take()
        elif (head := _FUNCTION.match(lexer.text, start)) and head[1] == token.raw:
            lexer.at, self._next, name = head.end(), None, token.raw
        else:
            return None
        self._skip_lines()
        body = self._command()
        return self._block(token, "function", ((body,),), name)

    _readers: ClassVar[Mapping[str, Callable[["_Parser"], Node]]] = {
        "{": _group,
        "if": _if,
        "while": _while,
        "until": _while,
        "for": _for,
        "select": _for,
        "case": _case,
    }

    def _simple(self) -> Command:
        made = _Simple(self._peek().line)
        while (token := self._peek()).kind != "end":
            if token.kind == "operator" and token.value in _REDIRECTS:
                self._redirect(made)
            elif token.kind == "word":
                made.add(self._take())
                if made.words == ["[["]:
                    self._condition(made)
            else:
                break
        return made.command()

    def _condition(self, made: "_Simple") -> None:
        """The rest of `[[ … ]]`, in which operators are words."""
        while (token := self._peek()).kind != "end":
            made.add(self._take())
            if token.raw in ("]]", "\n"):
                return

    def _redirect(self, made: "_Simple") -> None:
        operator = self._take().value
        if self._peek().kind != "word":
            return
        if operator in ("<<", "<<-"):
            # The body is looked for from the end of this line: nothing after the word is read yet.
            word = self._take()
            made.text.append(self._lexer.here_document(word.value, tabs=operator == "<<-"))
            return
        target = self._take()
        made.inner += target.inner
        if operator == "<<<":
            made.text.append(target.value)
        elif operator in _WRITES or (operator == ">&" and not target.value.isdigit()):
            made.writes.append(target.value)
        elif operator in ("<", "<>"):
            made.reads.append(target.value)


class _Simple:
    """A simple command while it is read."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.words: list[str] = []
        self.assigns: list[tuple[str, str]] = []
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.text: list[str] = []
        self.inner: tuple[Script, ...] = ()

    def add(self, token: _Token) -> None:
        """Take a word, or an assignment in front of the first word."""
        self.inner += token.inner
        match = None if self.words else _ASSIGNMENT.match(token.raw)
        if match:
            self.assigns.append((match[1], token.value[match.end() :]))
        else:
            self.words.append(token.value)

    def command(self) -> Command:
        """What was read."""
        return Command(
            line=self.line,
            words=tuple(self.words),
            assigns=tuple(self.assigns),
            writes=tuple(self.writes),
            reads=tuple(self.reads),
            text="".join(self.text),
            inner=self.inner,
        )


def commands(script: Script) -> Iterator[Command]:
    """Every simple command of a script in the order of its text, those inside `$(…)` too."""
    waiting: list[Node] = list(reversed(script))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Command):
            yield node
            waiting += (n for body in reversed(node.inner) for n in reversed(body))
        elif isinstance(node, Block):
            waiting += (n for body in reversed(node.bodies) for n in reversed(body))
        else:
            waiting += reversed(node.parts)
