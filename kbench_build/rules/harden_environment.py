"""The variables that an image sets, as far as Dockerfiles say.

Promises: values in, values out. An image from elsewhere, whose variables aren't known, is named.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbench_build.rules.dockerfile import Instruction, parse_dockerfile, stages
from kbench_build.rules.shell_lines import filled_in

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# They steer the installation of packages, not tests.
_OF_THE_BUILD = frozenset({"DEBIAN_FRONTEND"})


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Variables by name, and the image from elsewhere that all of it stands on (empty: none)."""

    values: Mapping[str, str]
    outside: str


def image_settings(recipe: str, own: Mapping[str, str]) -> ImageSettings:
    """What the image of a Dockerfile's text sets; `own` are the bases' Dockerfiles, by image."""
    layers, outside = layers_of(recipe, own)
    values: dict[str, str] = {}
    for layer in layers:
        _apply(layer, values)
    return ImageSettings(
        values={name: v for name, v in values.items() if name not in _OF_THE_BUILD},
        outside="" if outside == "scratch" else outside,
    )


def layers_of(
    recipe: str, own: Mapping[str, str]
) -> tuple[tuple[tuple[Instruction, ...], ...], str]:
    """The instructions that make an image, the lowest Dockerfile first; the image below all."""
    layers: list[tuple[Instruction, ...]] = []
    text: str | None = recipe
    outside, seen = "", set[str]()
    while text is not None:
        instructions, outside = _final_stage(parse_dockerfile(text))
        layers.insert(0, instructions)
        text = None if outside in seen else own.get(outside)
        seen.add(outside)
    return tuple(layers), outside


def _final_stage(instructions: tuple[Instruction, ...]) -> tuple[tuple[Instruction, ...], str]:
    """The instructions of the last stage and of those that it stands on; the image below them."""
    found = stages(instructions)
    chosen: tuple[Instruction, ...] = ()
    wanted = found[-1] if found else None
    while wanted is not None:
        start = wanted.line
        after = [s.line for s in found if s.line > start]
        end = min(after, default=instructions[-1].line + 1)
        chosen = tuple(i for i in instructions if start <= i.line < end) + chosen
        if wanted.image is not None:
            return chosen, wanted.image
        name = _alias_of(instructions, start)
        wanted = next((s for s in found if s.line < start and s.alias == name), None)
    return chosen, ""


def _alias_of(instructions: tuple[Instruction, ...], line: int) -> str:
    words = next(i.arguments.split() for i in instructions if i.line == line)
    return next((word.lower() for word in words if not word.startswith("--")), "")


def _apply(layer: Sequence[Instruction], values: dict[str, str]) -> None:
    """Add what a layer's ENV lines set; a value that nothing here explains is left out."""
    for instruction in layer:
        for name, text in _pairs(instruction.arguments) if instruction.name == "ENV" else ():
            value = _filled(text, {"PATH": DEFAULT_PATH, **values})
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value


def _pairs(arguments: str) -> list[tuple[str, str]]:
    """`A=1 B="2 3"`, or the older `A 1`."""
    name, space, rest = arguments.partition(" ")
    if "=" not in name:
        return [(name, rest.strip())] if space else []
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    return [(n, value) for n, equals, value in (w.partition("=") for w in words) if equals]


def _filled(value: str, known: Mapping[str, str]) -> str | None:
    names = [match[1] or match[2] for match in _REFERENCE.finditer(value)]
    if "$" in _REFERENCE.sub("", value):
        return None
    return filled_in(value, names, known, _REFERENCE)
