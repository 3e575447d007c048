"""What a Dockerfile takes from its context, and what in it needs BuildKit."""

import pytest

from kbench_build.rules.build_context import (
    buildkit_lines,
    ignores,
    label_stages,
    sources,
    takes,
)
from kbench_build.rules.dockerfile import parse_dockerfile, stages


def _sources(text: str) -> tuple[str, ...]:
    return sources(parse_dockerfile(text))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("COPY a b/ /x", ("a", "b")),
        ("COPY --chown=1:1 ./a /x", ("a",)),
        ('COPY ["a b", "/x"]', ("a b",)),
        ("ADD rootfs.tar /", ("rootfs.tar",)),
        ("ADD https://example.invalid/x /x", ()),
        ("COPY --from=stage /a /b", ()),
        ("COPY . /x", (".",)),
        ("COPY / /x", (".",)),
        ("COPY $WHAT /x", (".",)),
        ("COPY ../up /x", (".",)),
        ("COPY 'a b' /x", (".",)),
        ("RUN --mount=type=bind,target=/c true", (".",)),
        ("RUN cp a b", ()),
        ("COPY a \\\n  # why\n  b \\\n  /x", ("a", "b")),
    ],
)
def test_sources(line: str, expected: tuple[str, ...]) -> None:
    assert _sources(f"FROM x\n{line}\n") == expected


@pytest.mark.parametrize(
    ("source", "path", "taken"),
    [
        (".", "any/thing", True),
        ("a", "a", True),
        ("a", "a/b/c", True),
        ("a", "ab", False),
        ("a/b", "a", False),
        ("*.tar", "x.tar", True),
        ("*.tar", "d/x.tar", False),
        ("a/*/c", "a/b/c/d", True),
        ("[^a]", "b", True),
        ("[^a]", "a", False),
    ],
)
def test_a_source_takes_a_file_or_all_below_a_folder(source: str, path: str, taken: bool) -> None:
    assert takes([source], path) is taken


@pytest.mark.parametrize(
    ("patterns", "path", "out"),
    [
        ("*.log", "a.log", True),
        ("*.log", "d/a.log", False),
        ("**/*.log", "d/e/a.log", True),
        ("**/*.log", "a.log", True),
        ("d", "d/e", True),
        ("/d/", "d/e", True),
        ("d\n!d/keep", "d/keep", False),
        ("d\n!d/keep", "d/other", True),
        ("# d", "# d", False),
        ("d/**", "d/e/f", True),
        ("a?c", "abc", True),
        ("*", "x/y", True),
        ("[ab].c", "a.c", True),
        ("a.c", "abc", False),
    ],
)
def test_dockerignore(patterns: str, path: str, out: bool) -> None:
    assert ignores(patterns.splitlines(), path) is out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a\nRUN --mount=type=cache,target=/c x", ((2, "RUN --mount"),)),
        ("FROM a\nCOPY --chmod=755 a /a", ((2, "COPY --chmod"),)),
        ("FROM a\nCOPY --link a /a", ((2, "COPY --link"),)),
        ("FROM a\nADD --checksum=sha256:0 http://h/f /a", ((2, "ADD --checksum"),)),
        ("FROM a\nRUN <<EOF\ntrue\nEOF", ((2, "RUN with a here-document"),)),
        ("FROM a\nCOPY <<f.txt /x\nFROM fake\nf.txt", ((2, "COPY with a here-document"),)),
        ("# syntax=docker/dockerfile:1\nFROM a", ((1, "# syntax=docker/dockerfile:1"),)),
        ("FROM a\n# syntax=docker/dockerfile:1\n", ()),
        ("FROM a\nCOPY --from=b --chown=1 /a /a\nRUN echo --mount", ()),
        ("FROM a\nRUN echo $((1<<N)) && cat <<< word", ()),
        ("FROM a\nENV X=<<EOF", ()),
    ],
)
def test_lines_that_need_buildkit(text: str, expected: tuple[tuple[int, str], ...]) -> None:
    assert buildkit_lines(text, parse_dockerfile(text)) == expected


def test_every_stage_but_the_last_is_labelled_at_its_end() -> None:
    text = "ARG V=1\nFROM a AS x\nRUN one\n\nFROM b AS y\nFROM c\nRUN two\n"
    froms = [stage.line for stage in stages(parse_dockerfile(text))]
    assert label_stages(text, froms, "k", "v:w") == (
        'ARG V=1\nFROM a AS x\nRUN one\n\nLABEL k="v:w"\n'
        'FROM b AS y\nLABEL k="v:w"\nFROM c\nRUN two\n'
    )
    assert label_stages("FROM a\nRUN x", [1], "k", "v") == "FROM a\nRUN x"
