"""How a change's test files reach the test command of an environment.

Promises: `{files}` stands for the files, a word each; `{names}` for their names without folder and
ending, `{folders}` for their folders. Inside a longer word those are joined by commas, and the
singular (`{file}`, `{name}`, `{folder}`) repeats the word for each. No file's name is taken for an
option. A command that holds none of these runs whatever it runs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from posixpath import basename, dirname

from pathspec import GitIgnoreSpec

PLURALS = ("files", "names", "folders")
SINGULARS = tuple(name.removesuffix("s") for name in PLURALS)
_PLACE = re.compile(r"\{([a-z]+)\}")


def given_files(paths: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Those of the paths that a test command can be given, by patterns as in `.gitignore`."""
    spec = GitIgnoreSpec.from_lines(patterns)
    named = ((path, path.encode("utf-8", "replace").decode("utf-8")) for path in paths)
    return tuple(path for path, name in named if spec.match_file(name))


def unknown_places(command: Iterable[str]) -> tuple[str, ...]:
    """What stands in braces in a command and means nothing."""
    found = (name for word in command for name in _PLACE.findall(word))
    return tuple(name for name in found if name not in (*PLURALS, *SINGULARS))


def takes_files(command: Iterable[str]) -> bool:
    """Whether a command is given the files at all."""
    return any(_PLACE.search(word) for word in command)


def with_files(command: Sequence[str], files: Sequence[str]) -> tuple[str, ...]:
    """The command's words for these files."""
    return tuple(each for word in command for each in _words(word, files))


def _words(word: str, files: Sequence[str]) -> Iterator[str]:
    found = _PLACE.search(word)
    if found is None:
        yield word
        return
    plural = found[1] in PLURALS
    values = _values(found[1] if plural else f"{found[1]}s", files)
    if plural and found[0] != word:
        values = [",".join(values)]
    for value in values:
        # Only the first place counts: two of them would need every pair.
        plain = f"./{value}" if value.startswith("-") and word.startswith("{") else value
        yield word[: found.start()] + plain + word[found.end() :]


def _values(what: str, files: Sequence[str]) -> list[str]:
    made = {
        "files": lambda path: path,
        "names": lambda path: basename(path).rpartition(".")[0] or basename(path),
        "folders": lambda path: dirname(path) or ".",
    }[what]
    return list(dict.fromkeys(map(made, files)))
