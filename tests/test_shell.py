"""Shell is read as far as checks need it: commands, structure, lines; hostile text in no time."""

import subprocess
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench_build.rules.shell import Block, Chain, Command, Pipe, commands, parse_shell
from kbench_build.rules.shell_steps import Options, first_options, option_words, steps


def words(text: str) -> list[tuple[int, tuple[str, ...]]]:
    return [(c.line, c.words) for c in commands(parse_shell(text))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b\nc", [(1, ("a", "b")), (2, ("c",))]),
        ("a \\\n  b; c", [(1, ("a", "b")), (2, ("c",))]),
        ("a 'b c'\"d $e\"f\\ g", [(1, ("a", "b cd $ef g"))]),
        ("a # b\n#c\nd#e", [(1, ("a",)), (3, ("d#e",))]),
        ("a && b || c | d &", [(1, (w,)) for w in "abcd"]),
        ("if a; then b; elif c\nthen d; else e; fi", [(1 + (w in "de"), (w,)) for w in "abcde"]),
        ("while a; do b; done", [(1, ("a",)), (1, ("b",))]),
        ("for x in y; do c; done", [(1, ("for", "x", "in", "y")), (1, ("c",))]),
        ("case $x in a|b) c;; *) d ;; esac; e", [(1, ("c",)), (1, ("d",)), (1, ("e",))]),
        ("f() {\n  a\n}\nfunction g { b; }\n( c )", [(2, ("a",)), (4, ("b",)), (5, ("c",))]),
        ("cat <<'E' >x\nif (\nE\na", [(1, ("cat",)), (4, ("a",))]),
        ("cat <<-E | b\n\tc '\n\tE\nd", [(1, ("cat",)), (1, ("b",)), (4, ("d",))]),
        ("x=$(a \"$(b)\") c=`d`", [(1, ()), (1, ("a", "$(b)")), (1, ("b",)), (1, ("d",))]),
        ("[[ a && b ]] && c", [(1, ("[[", "a", "&&", "b", "]]")), (1, ("c",))]),
        ("((i++)); a=(b c) d", [(1, ("((", "i++")), (1, ("d",))]),
        ("a >b 2>&1 <c &>d", [(1, ("a",))]),
        ("! a; time b; { c; } >d", [(1, ("a",)), (1, ("b",)), (1, ("c",))]),
        ("fi; then; a ) b", [(1, ("a",)), (1, ("b",))]),
        ("a\r\nb\r\n", [(1, ("a",)), (2, ("b",))]),
    ],
)  # fmt: skip
def test_commands_are_found_with_their_lines(
    text: str, found: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert words(text) == found


def test_redirections_assignments_and_documents_belong_to_their_command() -> None:
    (command,) = parse_shell("A=1 B='x y' cat <in >out 2>>err <<E <<<'now'\nbody\nE\n")
    assert isinstance(command, Command)
    assert (command.words, command.assigns) == (("cat",), (("A", "1"), ("B", "x y")))
    assert (command.reads, command.writes) == (("in",), ("out", "err"))
    assert command.text == "body\nnow"


def test_structure_is_kept() -> None:
    chain, pipe, block = parse_shell("a && b || c\n! a | b\nif a; then b; else c; fi >x")
    assert isinstance(chain, Chain)
    assert chain.operators == ("&&", "||")
    assert isinstance(pipe, Pipe)
    assert (len(pipe.parts), pipe.negated, pipe.line) == (2, True, 2)
    assert isinstance(block, Block)
    assert (block.kind, len(block.bodies), block.writes) == ("if", 3, ("x",))


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("a || true", {"a": "`|| true`"}),
        ("a || exit 1", {"a": ""}),
        ("a; b", {"a": "the next command", "b": ""}),
        ("set -e\na\nb", {"a": "", "b": ""}),
        ("set -e\nset +e\na\nb", {"a": "the next command"}),
        ("a | b", {"a": "the pipe", "b": ""}),
        ("set -o pipefail; a | b", {"a": ""}),
        ("a\nif [ $? -ne 0 ]; then exit 1; fi", {"a": ""}),
        ("if a; then b; fi", {"a": ""}),
        ("a && b; c", {"a": "the next command", "b": "the next command"}),
        ("(a; b)", {"a": "the next command", "b": ""}),
    ],
)
def test_what_becomes_of_a_failure(text: str, dropped: dict[str, str]) -> None:
    found = {s.command.name: s.dropped for s in steps(parse_shell(text), Options())}
    assert {name: found[name] for name in dropped} == dropped


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("a || true\nx=$?", True),
        ("a | tee b\nx=$?", True),
        ("echo a\nx=$?", True),
        ("export b=$(a)\nx=$?", True),
        ("a &\nx=$?", True),
        ("b=$(a)\nx=$?", False),
        ("a\nx=$?", False),
        ("a || b\nx=$?", False),
        ("set -o pipefail\na | tee b\nx=$?", False),
        ("a | tee b\nx=${PIPESTATUS[0]}", False),
        ("{ a || :; }\nif [ $? = 0 ]; then b; fi", True),
    ],
)
def test_an_exit_code_that_is_always_0(text: str, zero: bool) -> None:
    found = [s for s in steps(parse_shell(text), Options()) if s.zero]
    assert bool(found) is zero


def test_options_come_from_the_first_line_and_from_arguments() -> None:
    assert first_options("#!/bin/bash -e\na") == Options(errexit=True)
    assert first_options("a -e") == Options()
    both = Options(errexit=True, pipefail=True)
    assert option_words(("/bin/bash", "-eo", "pipefail", "-c")) == both


MANY = 20_000
HOSTILE = {
    "brackets": "(" * MANY,
    "substitutions": "$(" * MANY,
    "quoted substitutions": '"$(' * MANY,
    "closed substitutions": '"$(a "$(b "$(c)")")" ' * (MANY // 10),
    "backquotes": "`a " * MANY,
    "documents": "cat <<A\n" * MANY,
    "documents on one line": "cat " + "<<A " * MANY,
    "quotes": '"' * (MANY + 1),
    "ifs": "if a; then " * MANY,
    "braces": "{ " * MANY,
    "pipes": "a|" * MANY,
    "chains": "a&&" * MANY,
    "functions": "f() " * MANY,
    "cases": "case a in b) " * MANY,
    "arrays": "a=(" * MANY,
    "tests": "[[ (" * MANY,
    "closers": "fi ) ;; } " * MANY,
    "arithmetic": "((" * MANY,
    "zeros": "\0" * MANY,
    "backslashes": "\\" * (MANY + 1),
    "apostrophes in brackets": "$('" * MANY,
    "noise": Random(7).randbytes(4 * MANY).decode("latin-1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_little_time(name: str) -> None:
    began = time.process_time()
    sum(1 for _ in commands(parse_shell(HOSTILE[name])))
    sum(1 for _ in steps(parse_shell(HOSTILE[name]), Options()))
    assert time.process_time() - began < 10


SHELL = st.lists(
    st.sampled_from(
        [*"abc;|&(){}<>'\"`$\\\n# =", "$(", "${", "&&", "||", "<<E\n", "\nE\n", "if ", "then ",
         "fi", "case x in ", "esac", "do ", "done", "for ", "while ", "[[ ", "]]", "$?", "f() "]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(SHELL)
def test_any_text_is_read(text: str) -> None:
    lines = text.count("\n") + 1
    assert all(1 <= command.line <= lines for command in commands(parse_shell(text)))
    list(steps(parse_shell(text), Options()))


SIMPLE = st.lists(st.sampled_from(["a", "'b c'", '"d e"', "f\\ g", "$'h'", "i''j", "--k=l"]))


@given(SIMPLE)
def test_words_are_those_that_a_shell_sees(parts: list[str]) -> None:
    text = " ".join(["x", *parts])
    script = f"x() {{ printf '%s\\0' \"$@\"; }}\n{text}\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=10)
    seen = done.stdout.decode().split("\0")[:-1] if parts else []
    (command,) = parse_shell(text)
    assert isinstance(command, Command)
    assert list(command.words[1:]) == seen
