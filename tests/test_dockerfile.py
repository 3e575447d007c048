"""Reading Dockerfiles: instructions with their lines, images, what the context gives."""

import pytest

from kbench_build.rules.dockerfile import copies, images, parse_dockerfile, stages

TEXT = """# syntax comment
ARG TAG=24.04
FROM ubuntu:${TAG} AS Builder
RUN apt-get update \\
    # a comment inside
 && apt-get install git
COPY --chown=1:1 a b/ /dest/
COPY ["c d", "/dest"]
COPY --from=builder /x /y
COPY --from=tools:1 /x /y
ADD https://example.org/a.tar e.tar /dest/
COPY <<EOF f /dest/
COPY inside /not/read
EOF
FROM builder
from scratch
RUN cat <<'END'
FROM nowhere
END
"""


def test_instructions_keep_their_lines() -> None:
    found = [(i.line, i.name) for i in parse_dockerfile(TEXT)]
    assert found == [
        (2, "ARG"),
        (3, "FROM"),
        (4, "RUN"),
        (7, "COPY"),
        (8, "COPY"),
        (9, "COPY"),
        (10, "COPY"),
        (11, "ADD"),
        (12, "COPY"),
        (15, "FROM"),
        (16, "FROM"),
        (17, "RUN"),
    ]


def test_continued_lines_are_joined_without_their_comments() -> None:
    run = parse_dockerfile(TEXT)[2]
    assert run.arguments == "apt-get update && apt-get install git"


def test_stages_and_images() -> None:
    instructions = parse_dockerfile(TEXT)
    assert [(s.line, s.image, s.alias) for s in stages(instructions)] == [
        (3, "ubuntu:24.04", "builder"),
        (15, None, None),
        (16, "scratch", None),
    ]
    assert images(instructions) == ("ubuntu:24.04", "scratch", "tools:1")


def test_copies_from_the_context_and_from_nowhere_else() -> None:
    found = copies(parse_dockerfile(TEXT))
    assert [(c.line, c.sources) for c in found] == [
        (7, ("a", "b/")),
        (8, ("c d",)),
        (11, ("e.tar",)),
        (12, ("f",)),
    ]


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("FROM --platform=linux/amd64 a:1", "a:1"),
        ("FROM ${A:-b:2}", "b:2"),
        ('ARG A="c:3"\nFROM $A', "c:3"),
        ("FROM $A", "$A"),
        ("FROM", ""),
        ("# escape=`\nFROM `\n  a:1", "a:1"),
    ],
)
def test_an_image_is_told(text: str, image: str) -> None:
    assert [s.image for s in stages(parse_dockerfile(text))] == [image]


@pytest.mark.parametrize(
    "text", ["", "\\", "FROM a \\\n\\\n", "COPY [", 'COPY "a', "RUN <<A", "\0"]
)
def test_nothing_makes_it_raise(text: str) -> None:
    instructions = parse_dockerfile(text)
    stages(instructions)
    images(instructions)
    copies(instructions)
