"""What a build takes from its context folder, and which lines of a Dockerfile only BuildKit builds.

`sources` errs on the side of everything: a path that can't be told is the whole context.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from kbench_build.rules.dockerfile import Instruction

WHOLE_CONTEXT = "."
# No name has more bytes than 255, and reading a pattern takes the square of its length.
_LONGEST_PART = 500
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?['\"]?[A-Za-z_]")
_SYNTAX = re.compile(r"#\s*(syntax)\s*=\s*(\S+)\s*$", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[A-Za-z]+\s*=\s*\S+\s*$")
_BUILDKIT_FLAGS: Mapping[str, frozenset[str]] = {
    "RUN": frozenset({"mount", "network", "security"}),
    "COPY": frozenset({"chmod", "link", "parents", "exclude"}),
    "ADD": frozenset({"chmod", "link", "exclude", "checksum", "keep-git-dir"}),
}


def sources(instructions: Iterable[Instruction]) -> tuple[str, ...]:
    """The context paths and patterns that a Dockerfile copies; `.` is all of the context."""
    return tuple(dict.fromkeys(s for item in instructions for s in _sources(item)))


def takes(sources: Iterable[str], path: str) -> bool:
    """Whether one of the sources names the context path, or a folder above it."""
    return any(_names(source, path) for source in sources)


def ignores(patterns: Iterable[str], path: str) -> bool:
    """Whether `.dockerignore` lines leave the path out of the context; the last match decides."""
    out = False
    for raw in patterns:
        line = raw.strip()
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").strip().removeprefix("./").strip("/")
            if _covers(pattern.split("/"), path.split("/")):
                out = not line.startswith("!")
    return out


def buildkit_lines(text: str, instructions: Iterable[Instruction]) -> tuple[tuple[int, str], ...]:
    """(line, what stands there) for everything that the classic builder can't build."""
    found = [*_syntax_directive(text)]
    for item in instructions:
        known = _BUILDKIT_FLAGS.get(item.name, frozenset())
        flags, rest = _flags(item.arguments)
        found += [(item.line, f"{item.name} --{flag}") for flag in flags if flag in known]
        if known and _HEREDOC.search(rest):
            found.append((item.line, f"{item.name} with a here-document"))
    return tuple(found)


def label_stages(text: str, froms: Sequence[int], key: str, value: str) -> str:
    """The Dockerfile with a label at the end of every stage but the last one.

    `froms` are the lines where stages begin. The builder labels the last stage alone; an image of
    another stage stays behind without a tag, and the label says whose it is. It stands at the end,
    so that the steps before it are shared with other images' builds.
    """
    lines = text.splitlines(keepends=True)
    for line in sorted(froms, reverse=True)[:-1]:
        lines.insert(line - 1, f'LABEL {key}="{value}"\n')
    return "".join(lines)


def _sources(item: Instruction) -> Iterator[str]:
    flags, rest = _flags(item.arguments)
    if item.name in ("COPY", "ADD") and "from" not in flags:
        yield from map(_source, (w for w in _words(rest)[:-1] if not _is_elsewhere(w)))
    elif item.name == "RUN" and "mount" in flags:
        yield WHOLE_CONTEXT


def _source(word: str) -> str:
    unclear = "$" in word or "\\" in word or ".." in word.split("/")
    return WHOLE_CONTEXT if unclear else word.removeprefix("./").strip("/") or WHOLE_CONTEXT


def _is_elsewhere(word: str) -> bool:
    return "://" in word or word.startswith(("<<", "git@"))


def _words(rest: str) -> Sequence[str]:
    """The operands of COPY: a JSON list of strings, or words."""
    if not rest.startswith("["):
        return rest.split() if '"' not in rest and "'" not in rest else [WHOLE_CONTEXT, ""]
    try:
        return [str(word) for word in json.loads(rest)]
    except ValueError:
        return [WHOLE_CONTEXT, ""]


def _flags(arguments: str) -> tuple[Mapping[str, str], str]:
    flags: dict[str, str] = {}
    while match := _FLAG.match(arguments):
        flags[match[1]] = match[2] or ""
        arguments = arguments[match.end() :]
    return flags, arguments


def _names(source: str, path: str) -> bool:
    pattern = [part for part in source.split("/") if part not in ("", ".")]
    parts = path.split("/")
    return len(pattern) <= len(parts) and all(
        fnmatchcase(part, want.replace("[^", "[!"))
        for part, want in zip(parts, pattern, strict=False)
    )


def _covers(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a pattern's parts match the path or a folder above it; `**` is any number of folders.

    Part by part, so that no pattern takes long. (`**` beside other characters is taken for `*`,
    which covers less: more files go into the context, none is missing.)
    """
    reached = {0}
    for number, part in enumerate(pattern, start=1):
        if part == "**" and reached:
            below = min(reached) + (number == len(pattern))
            reached = set(range(below, len(path) + 1))
        else:
            want = part.replace("[^", "[!") if len(part) <= _LONGEST_PART else ""
            reached = {i + 1 for i in reached if i < len(path) and fnmatchcase(path[i], want)}
    return any(reached)


def _syntax_directive(text: str) -> Iterator[tuple[int, str]]:
    """`# syntax=…`, which counts only among the directives before anything else."""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _SYNTAX.match(line.strip()):
            yield number, f"# syntax={match[2]}"
        if not _DIRECTIVE.match(line.strip()):
            return
