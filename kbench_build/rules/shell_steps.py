"""What becomes of the failures in a shell script: command by command, in the order of the text.

Promises: what is called dropped, or always 0, is so by the script's own text; where that can't be
told nothing is said. Leaves the meaning of commands to others. A function's body counts where it is
written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kbench_build.rules.shell import Block, Chain, Command, Node, Pipe, Script

# They end with 0 whatever happens around them.
_CONSTANT = frozenset({"true", ":", "echo", "printf", "export", "local", "declare", "readonly"})
# As the last part of a pipe they end with 0 whatever came in.
_PASSING = frozenset({"tee", "cat", "tail", "head", "sort", "uniq", "tr", "cut", "wc"})
# They fail where nothing works.
_EASY = frozenset({*_CONSTANT, "cd", "mkdir", "touch", "rm", "set"})
_ALTERNATIVES = frozenset({"true", ":", "echo", "printf"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The shell's own settings: stop at a failure, and count a failure anywhere in a pipe."""

    errexit: bool = False
    pipefail: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A simple command and where it stands.

    `dropped` says how its failure is dropped, empty where it isn't or where that can't be told;
    `tested`: something depends on its exit code. `zero` says why the `$?` that it reads is always
    0. `sure`: it runs whenever the script gets that far (no branch, no loop, no function).
    `before` are the commands whose output it reads, `after` those that read its own; `writes` the
    files that its output goes to, redirections of blocks around it included.
    """

    command: Command
    dropped: str = ""
    tested: bool = False
    zero: str = ""
    sure: bool = True
    background: bool = False
    errexit: bool = False
    before: tuple[Command, ...] = ()
    after: tuple[Command, ...] = ()
    writes: tuple[str, ...] = ()


def first_options(text: str) -> Options:
    """The settings that a script's first line gives, as `#!/bin/bash -e` does."""
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return Options()
    return _set(Options(), first.split()[1:])


def option_words(words: tuple[str, ...]) -> Options:
    """The settings in the words that start a shell, as in `bash -eo pipefail -c`."""
    return _set(Options(), list(words))


def steps(script: Script, options: Options) -> Iterator[Step]:
    """The simple commands of a script in order; those inside `$(…)` are left to their command."""
    yield from _Walk(options).statements(script, _Place())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """What the structure around a statement says of it."""

    dropped: str = ""
    tested: bool = False
    zero: str = ""
    sure: bool = True
    background: bool = False
    # Whether what is here last also gives the exit code of the whole.
    last: bool = True
    before: tuple[Command, ...] = ()
    after: tuple[Command, ...] = ()
    writes: tuple[str, ...] = ()


class _Walk:
    """One way through a script, which knows what `set` said before."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def statements(self, script: Script, place: _Place) -> Iterator[Step]:
        for index, node in enumerate(script):
            last = index == len(script) - 1
            zero = always_zero(script[index - 1], self.options) if index else place.zero
            zero = zero if _asks(node) else ""
            dropped = place.dropped
            if not last and not dropped and not self.options.errexit:
                dropped = "" if _asks(script[index + 1]) else "the next command"
            yield from self._node(
                node, replace(place, zero=zero, last=place.last and last, dropped=dropped)
            )

    def _node(self, node: Node, place: _Place) -> Iterator[Step]:
        if isinstance(node, Command):
            yield self._step(node, place)
        elif isinstance(node, Pipe):
            yield from self._pipe(node, place)
        elif isinstance(node, Chain):
            yield from self._chain(node, place)
        else:
            yield from self._block(node, place)

    def _step(self, command: Command, place: _Place) -> Step:
        if command.name == "set":
            self.options = _set(self.options, list(command.words[1:]))
        return Step(
            command=command,
            dropped="" if place.tested else place.dropped,
            tested=place.tested,
            zero=place.zero if _names(command, "$?") else "",
            sure=place.sure,
            background=place.background,
            errexit=self.options.errexit,
            before=place.before,
            after=place.after,
            writes=(*command.writes, *place.writes),
        )

    def _pipe(self, pipe: Pipe, place: _Place) -> Iterator[Step]:
        tested = place.tested or pipe.negated
        for index, part in enumerate(pipe.parts):
            near = pipe.parts[max(0, index - 3) : index], pipe.parts[index + 1 : index + 4]
            before, after = (tuple(p for p in ps if isinstance(p, Command)) for ps in near)
            inner = replace(place, tested=tested, before=before, after=(*after, *place.after))
            if index < len(pipe.parts) - 1:
                dropped = place.dropped if self.options.pipefail else "the pipe"
                inner = replace(
                    inner,
                    tested=tested and self.options.pipefail,
                    dropped=dropped,
                    last=False,
                )
            yield from self._node(part, inner)

    def _chain(self, chain: Chain, place: _Place) -> Iterator[Step]:
        sure = place.sure
        takers = _takers(chain)
        for index, part in enumerate(chain.parts):
            inner = replace(place, sure=sure, background=place.background or chain.background)
            yield from self._node(part, self._in_chain(takers[index], inner))
            # After `||` it runs sometimes, and after `&&` too, unless nothing can go wrong.
            sure = sure and chain.operators[index : index + 1] == ("&&",) and _is_easy(part)

    def _in_chain(self, taker: Node | None, place: _Place) -> _Place:
        if taker is not None:
            words = _harmless(taker)
            if words:
                return replace(place, dropped=f"`|| {words}`", tested=False)
            return replace(place, tested=True)
        # In `a && b` the failure of a is that of the whole, except that errexit doesn't see it.
        return place

    def _block(self, block: Block, place: _Place) -> Iterator[Step]:
        sure = place.sure and block.kind in ("group", "subshell")
        inner = replace(place, sure=sure, writes=(*block.writes, *place.writes))
        kept = self.options
        for index, body in enumerate(block.bodies):
            condition = _is_condition(block, index)
            yield from self.statements(
                body, replace(inner, tested=True, sure=place.sure) if condition else inner
            )
            inner = replace(inner, zero="")
        if block.kind == "subshell":
            self.options = kept


def _takers(chain: Chain) -> list[Node | None]:
    """For each part what runs when it fails: the part behind the next `||`."""
    found: list[Node | None] = [None] * len(chain.parts)
    for index in range(len(chain.operators) - 1, -1, -1):
        is_or = chain.operators[index] == "||"
        found[index] = chain.parts[index + 1] if is_or else found[index + 1]
    return found


def _is_condition(block: Block, index: int) -> bool:
    if block.kind == "loop":
        return index == 0
    return block.kind == "if" and index % 2 == 0 and index < len(block.bodies) - 1


def _harmless(node: Node) -> str:
    """The words of an alternative that changes nothing: `true`, `echo …`, `exit 0`."""
    if not isinstance(node, Command) or not node.words:
        return ""
    if node.name in _ALTERNATIVES or node.words[:2] in (("exit", "0"), ("return", "0")):
        return " ".join(node.words[:2])[:30] if node.name in ("exit", "return") else node.name
    return ""


def _is_easy(node: Node) -> bool:
    return isinstance(node, Command) and node.name in _EASY


def _asks(node: Node) -> bool:
    """Whether a statement looks at the exit code of the one before it."""
    if isinstance(node, Command):
        return _names(node, "$?") or _names(node, "PIPESTATUS")
    if isinstance(node, (Pipe, Chain)):
        return _asks(node.parts[0])
    return bool(node.bodies and node.bodies[0]) and _asks(node.bodies[0][0])


def _names(command: Command, text: str) -> bool:
    return any(text in word for word in (*command.words, *(v for _, v in command.assigns)))


def always_zero(node: Node, options: Options) -> str:
    """Why a statement always ends with 0; empty where it may end otherwise, or can't be told."""
    if isinstance(node, Command):
        return _constant(node)
    if isinstance(node, Pipe):
        return _passing(node, options)
    if isinstance(node, Chain):
        harmless = _harmless(node.parts[-1]) if node.operators[-1:] == ("||",) else ""
        return "`&`" if node.background else f"`|| {harmless}`" if harmless else ""
    if node.kind in ("group", "subshell") and node.bodies[0]:
        return always_zero(node.bodies[0][-1], options)
    return ""


def _passing(pipe: Pipe, options: Options) -> str:
    last = pipe.parts[-1]
    if pipe.negated or options.pipefail or len(pipe.parts) < 2 or not isinstance(last, Command):
        return ""
    return f"`| {last.name}`" if last.name in _PASSING else ""


def _constant(command: Command) -> str:
    if command.name in _CONSTANT:
        return f"`{command.name}`"
    assigns_only = not command.words and bool(command.assigns) and not command.inner
    return "an assignment" if assigns_only else ""


def _set(options: Options, words: list[str]) -> Options:
    """The settings after `set` with these words."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word[:1] not in ("-", "+") or word in ("--", "-", "-c"):
            continue
        on = word[0] == "-"
        if "e" in word[1:]:
            options = replace(options, errexit=on)
        if word.endswith("o") and at < len(words):
            options = _named(options, words[at], on=on)
            at += 1
    return options


def _named(options: Options, name: str, *, on: bool) -> Options:
    if name == "errexit":
        return replace(options, errexit=on)
    return replace(options, pipefail=on) if name == "pipefail" else options
