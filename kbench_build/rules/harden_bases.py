"""Makes of a base image with a checkout another one, which has everything but the checkout.

Promises: the same settings as the base's (variables, entry point, user…), in one layer on the image
that the base stands on in the end; the base itself stays. So a sealed checkout can be put on it,
and no layer of a task's image holds the upstream's history. Leaves to the caller which bases need
one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kbench_build.model import Base
from kbench_build.rules.dockerfile import Instruction
from kbench_build.rules.harden_environment import layers_of
from kbench_build.rules.harden_recipe import without_checkout
from kbench_build.rules.manifest import MANIFEST

_SETTINGS = frozenset(
    {"ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "SHELL", "STOPSIGNAL"}
    | {"USER", "WORKDIR"}
)
_FILES = frozenset({"FROM", "RUN", "COPY", "ADD", "MAINTAINER"})
_PLACE = re.compile(r"/[\w./-]+")


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A base without its checkout: the text of its Dockerfile, or the reason why there is none."""

    text: str = ""
    reason: str = ""


def twin_of(image: str, recipes: Mapping[str, str], workdir: str) -> Twin:
    """The Dockerfile of a base's twin. `recipes` are those of the bases, by image."""
    if image not in recipes:
        return Twin(reason=f"stands on {image}, which no line of {MANIFEST} builds")
    layers, outside = layers_of(recipes[image], recipes)
    instructions = [instruction for layer in layers for instruction in layer]
    unknown = {i.name for i in instructions} - _SETTINGS - _FILES
    if unknown:
        return Twin(reason=f"stands on {image}, whose Dockerfile has {min(unknown)}")
    if not outside or "$" in outside or not _PLACE.fullmatch(workdir):
        return Twin(reason=f"stands on {image}, of which no twin without {workdir} can be made")
    kept = [i for i in instructions if i.name in _SETTINGS and not _is_below(i, workdir)]
    lines = (
        f"# Everything of {image} but the checkout, in one layer: a sealed checkout is put on it.",
        "# Written by `kbench harden`.",
        f"FROM {image} AS whole",
        f"RUN rm -rf {workdir}",
        "",
        f"FROM {outside}",
        "COPY --from=whole / /",
        *(f"{i.name} {i.arguments}" for i in kept),
    )
    return Twin(text="".join(f"{line}\n" for line in lines))


def _is_below(instruction: Instruction, workdir: str) -> bool:
    """Whether it is a WORKDIR in the checkout, which would make the folder."""
    place = instruction.arguments.strip("\"'")
    return instruction.name == "WORKDIR" and f"{place}/".startswith(f"{workdir}/")


def twin_place(base: Base) -> str:
    """Where the twin's Dockerfile stands: beside the base's."""
    return f"{base.dockerfile}-tools"


def with_twins(manifest: str, bases: tuple[Base, ...]) -> str:
    """The manifest with a line for the twin of each of these bases, below the base's own line."""
    lines = manifest.splitlines(keepends=True)
    for base in bases:
        line = lines[base.line - 1]
        ended = line if line.endswith("\n") else f"{line}\n"
        lines[base.line - 1] = ended + _twin_line(ended)
    return "".join(lines)


def _twin_line(line: str) -> str:
    """A manifest line in the style of the base's: the same gaps, the other tag and Dockerfile."""
    fields = re.split(r"(\s+)", line.partition("#")[0].strip())
    fields[2] = without_checkout(fields[2])
    fields[4] = f"{fields[4]}-tools"
    return "".join(fields) + ("\r\n" if line.endswith("\r\n") else "\n")
