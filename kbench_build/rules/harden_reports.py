"""Finds the JUnit reports that scripts of the older shape collect, as the verifier's globs.

Promises: a pattern is at least as wide as the one it is read from. Leaves to the verifier what the
globs mean: `**` is any number of folders, `!` in front takes paths out again.
"""

import re
from collections.abc import Iterator, Sequence

from kbench_build.rules.shell_lines import Command, statements, substituted

_FOLDERS = ("/test-results/", "-reports/", "/reports/")
# No script that people wrote comes near.
_MOST_PAIRS = 400
_PATHS = ("-path", "-wholename")


def report_globs(text: str, workdir: str) -> tuple[str, ...]:
    """The patterns in a script's words, and in the -path and -name of its find commands."""
    found: list[str] = []
    for statement in statements(text):
        for command in statement.commands:
            found += _of_command(command, workdir)
            inner = [c for s in substituted(command) for c in s.commands]
            found += [glob for each in inner for glob in _of_command(each, workdir)]
    return tuple(dict.fromkeys(found))


def _of_command(command: Command, workdir: str) -> Iterator[str]:
    words = [word.strip("'\"") for word in command.words]
    if command.name == "find":
        yield from _of_find(words)
    else:
        yield from (glob for word in words if (glob := _of_shell(word, workdir)))


def _of_find(words: Sequence[str]) -> Iterator[str]:
    """What `find` is asked for: paths, names below a path, and what `!` or -not takes out."""
    wanted: list[str] = []
    unwanted: list[str] = []
    names: list[str] = []
    for at, word in enumerate(words[1:], start=1):
        before, negated = words[at - 1], at > 1 and words[at - 2] in ("-not", "!")
        if before in _PATHS:
            (unwanted if negated else wanted).append(_whole_path(word))
        elif before == "-name" and word.endswith(".xml"):
            names.append(word)
    whole = [glob for glob in wanted if glob.endswith(".xml")]
    folders = [glob.removesuffix("/**") for glob in wanted if not glob.endswith(".xml")]
    if not folders and not whole and not _is_elsewhere(words):
        folders = ["**"] if any(name.startswith("TEST") for name in names) else []
    if len(folders) * len(names) > _MOST_PAIRS:
        return
    yield from whole
    yield from (_tidy(f"{folder}/**/{name}") for folder in folders for name in names)
    yield from (f"!{glob}" for glob in unwanted)


def _is_elsewhere(words: Sequence[str]) -> bool:
    return any(word.startswith(("/logs", "/tests")) for word in words[1:2])


def _whole_path(pattern: str) -> str:
    """A pattern of find -path, whose `*` takes folders too."""
    return _tidy(re.sub(r"(^|/)\*(?=/|$)", r"\1**", pattern.removeprefix("./")))


def _of_shell(word: str, workdir: str) -> str:
    """A pattern of the shell below the checkout; empty where it leads elsewhere."""
    inner = re.sub(r"^\"?\$(?:\{\w+\}|\w+)\"?/", "", word)
    inner = inner.removeprefix(f"{workdir}/").removeprefix("./")
    is_report = inner.endswith(".xml") and any(folder in f"/{inner}" for folder in _FOLDERS)
    if "*" not in inner or inner.startswith("/") or "$" in inner or not is_report:
        return ""
    return _tidy(re.sub(r"^\*/", "**/", inner))


def _tidy(glob: str) -> str:
    return re.sub(r"(?:\*\*/)+", "**/", glob)
