"""Which licence a repository has, from what stands in its root: known texts and declarations.

Promises: an SPDX expression that packagers would accept, or the reason why none is known; nothing
is guessed from a name or a badge. Texts that were recognised have to fit what is declared. Leaves
recognising a text to the rim.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kbench_build import toml
from kbench_build.rules.provenance import canonical

_TEXT = re.compile(r"(?:LICEN[CS]E|COPYING|UNLICENSE)(?:[._-][\w.-]*)?", re.IGNORECASE | re.ASCII)
# Where a repository's root says its own licence as an expression.
_DECLARED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Cargo.toml": (("package", "license"), ("workspace", "package", "license")),
    "composer.json": (("license",),),
    "package.json": (("license",),),
    "pyproject.toml": (("project", "license"), ("project", "license", "text")),
}
# Their text is the same for "only" and "or later".
_GNU = re.compile(r"(?:A|L)?GPL-\d\.\d")
_WORD = re.compile(r"[A-Za-z0-9.+-]+")
_JOINTS = frozenset({"AND", "OR", "WITH"})


@dataclass(frozen=True, kw_only=True)
class Licence:
    """An SPDX expression, or (where it is empty) why none is known."""

    spdx: str = ""
    reason: str = ""


def wanted(names: Iterable[str]) -> tuple[str, ...]:
    """Those files of a repository's root that may say its licence."""
    return tuple(sorted(name for name in names if is_text(name) or name in _DECLARED))


def is_text(name: str) -> bool:
    """Whether a file's name says that it is a licence's text."""
    return _TEXT.fullmatch(name) is not None


def licence_of(known: Mapping[str, str], declaring: Mapping[str, bytes]) -> Licence:
    """Decide.

    `known` are the texts' files with the SPDX id that each was recognised as, empty where it wasn't
    any; `declaring` the contents of the other files that `wanted` names.
    """
    said = {name: spdx for name, data in declaring.items() if (spdx := _declared(name, data))}
    if len(set(said.values())) > 1:
        told = ", ".join(f"{name} says {spdx}" for name, spdx in sorted(said.items()))
        return Licence(reason=told)
    recognised = {spdx for spdx in known.values() if spdx}
    if said:
        name, spdx = next(iter(said.items()))
        strange = sorted(r for r in recognised if not _fits(r, spdx))
        if strange:
            return Licence(reason=f"{name} says {spdx}, the text is that of {', '.join(strange)}")
        return Licence(spdx=spdx)
    return _of_texts(known, recognised)


def _of_texts(known: Mapping[str, str], recognised: set[str]) -> Licence:
    if not known:
        return Licence(reason="no licence file in the root, and nothing declares one")
    if not recognised or not all(known.values()):
        names = ", ".join(sorted(name for name, spdx in known.items() if not spdx))
        return Licence(reason=f"{names}: not the text of a licence that is known here")
    if len(recognised) > 1:
        return Licence(reason=f"texts of several: {', '.join(sorted(recognised))}")
    (spdx,) = recognised
    if _GNU.fullmatch(spdx):
        return Licence(reason=f"the text of {spdx}, which doesn't tell -only from -or-later")
    return Licence(spdx=spdx)


def _fits(recognised: str, declared: str) -> bool:
    """Whether a text's id stands in an expression, `-only` and `-or-later` aside."""
    words = {w.removesuffix("+") for w in _WORD.findall(declared)} - _JOINTS
    return recognised in {w.removesuffix("-only").removesuffix("-or-later") for w in words}


def _declared(name: str, data: bytes) -> str:
    """The expression that a file declares, in its usual spelling; empty where it has none."""
    try:
        text = data.decode("utf-8")
        value: Any = json.loads(text) if name.endswith(".json") else toml.loads(text)
    except (ValueError, RecursionError):
        return ""
    for path in _DECLARED[name]:
        here = value
        for key in path:
            here = here.get(key) if isinstance(here, Mapping) else None
        if isinstance(here, str) and (found := canonical(here)):
            return found
    return ""
