"""Builds that take on trust what they shouldn't, and what nothing uses any more."""

from pathlib import Path

from tests.defects.kit import DATASET, Row, small
from tests.samples import DIGEST, Sample

PINNED = f"FROM debian:12.5@{DIGEST}\n"
SUM = "2" * 64
TOOLS = "RUN apt-get update && apt-get install -y tmux python3{}\nWORKDIR"


def base(folder: Path, dockerfile: str) -> None:
    """A dataset whose one base is made like this."""
    small(folder)
    path = folder / DATASET / "bases/adder/Dockerfile.jdk17"
    path.write_text(dockerfile, encoding="utf-8")


def with_line(folder: Path, line: str) -> Sample:
    """A task whose Dockerfile has this in front of its last line."""
    sample = small(folder)
    sample.edit("environment/Dockerfile", "WORKDIR", line)
    return sample


def moving_clone(folder: Path) -> None:
    base(folder, PINNED + "RUN git clone https://example.org/acme/adder.git /home/adder\n")


def fixed_clone(folder: Path) -> None:
    base(
        folder,
        PINNED + "RUN git clone https://example.org/acme/adder.git /home/adder \\\n"
        f" && git -C /home/adder checkout --detach {'3' * 40}\n",
    )


def unchecked(folder: Path) -> None:
    base(folder, PINNED + "RUN curl -fsSLo /jdk.tgz https://example.org/jdk.tgz\n")


def checked(folder: Path) -> None:
    base(
        folder,
        PINNED + "RUN curl -fsSLo /jdk.tgz https://example.org/jdk.tgz \\\n"
        f" && echo '{SUM}  /jdk.tgz' | sha256sum --check -\n",
    )


COMPOSE = "services:\n  main:\n    image: {}\n"
BASE = (
    PINNED + "ENV LANG=C.UTF-8\nRUN apt-get update\nUSER root\nENV CI=true\nWORKDIR /home/adder\n"
)


def compose(folder: Path, image: str) -> None:
    """A task with a compose file that names this image."""
    small(folder).write("environment/docker-compose.yaml", COMPOSE.format(image))


def copied(folder: Path, text: str) -> None:
    """A task with another Dockerfile beside its own, on a base made by BASE."""
    base(folder, BASE)
    task = next((folder / DATASET / "tasks").iterdir())
    (task / "environment/Dockerfile.base").write_text(text, encoding="utf-8")
    (task / "environment/docker-compose.yaml").write_text("services: {}\n", encoding="utf-8")


ROWS: tuple[Row, ...] = (
    Row(
        row="floating base",
        rule="bases/floating-tag",
        defect=lambda folder: base(folder, "FROM debian:latest\n"),
        twin=lambda folder: base(folder, PINNED),
    ),
    Row(
        row="floating base",
        rule="bases/unpinned-image",
        defect=lambda folder: base(folder, "FROM debian:bookworm\n"),
        twin=lambda folder: base(folder, f"FROM debian:bookworm@{DIGEST}\n"),
    ),
    Row(row="moving clone", rule="bases/moving-clone", defect=moving_clone, twin=fixed_clone),
    Row(row="no checksum", rule="bases/download", defect=unchecked, twin=checked),
    Row(
        row="compose leftover",
        rule="layout/compose-image",
        defect=lambda folder: compose(folder, "kotlin-bench/acme_adder:dev"),
        twin=lambda folder: compose(folder, "kotlin-bench/task:acme_adder-7"),
    ),
    Row(
        row="dockerfile leftover",
        rule="layout/base-copy",
        defect=lambda folder: copied(folder, BASE),
        twin=lambda folder: copied(folder, "FROM redis:7\nENV LANG=C.UTF-8\n"),
    ),
    Row(
        row="dockerfile leftover",
        rule="layout/base-copy",
        defect=lambda folder: copied(folder, BASE.replace("update", "upgrade")),
        twin=lambda folder: copied(folder, PINNED),
    ),
    Row(
        row="tools may be missing",
        rule="recipe/optional-tool",
        defect=lambda folder: with_line(folder, TOOLS.format(" || true")),
        twin=lambda folder: with_line(folder, TOOLS.format("")),
    ),
)
