"""The two files that make a folder of bases and tasks a dataset: `dodo.py` and `kbench.toml`.

Promises: the same facts give the same bytes. Writing them is left to others.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kbench_build.model import Base

DODO = '''"""The dataset's graph: `doit list` shows it, `doit help` explains doit."""

from kbench_build.graph import load

load(globals())
'''
_DEFAULT_NAMESPACE = "kotlin-bench"
_STEPS = ("validate", "seal", "selfcheck")
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9._/:-]*")
_WHY_NOT_SEAL = """# Without "seal": {} of {} tasks don't name their base commit in task.toml.
# `kbench harden` adds it.
"""


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """What was seen of a folder: its name, its bases, the images that its tasks are FROM.

    Of all its tasks so many have an image to build, so many name their base commit.
    """

    folder: str
    bases: tuple[Base, ...]
    froms: Collection[str]
    tasks: int
    with_image: int
    with_base_commit: int


def starter(seen: Adopted) -> Mapping[str, str]:
    """The files, by name."""
    return {"dodo.py": DODO, "kbench.toml": _settings(seen)}


def _settings(seen: Adopted) -> str:
    """Few lines: what differs from the defaults, or will be wanted first."""
    namespace = namespace_of(seen.bases, seen.froms)
    lines = [
        "# Settings of the dataset. Every key has a default; delete what you don't need.\n\n",
        "[dataset]\n",
        f'name = "{dataset_name(seen.folder)}"\n',
        'version = "0.1.0"\n',
    ]
    if namespace != _DEFAULT_NAMESPACE:
        lines.append(f'namespace = "{namespace}"  # first part of the names of images\n')
    return "".join([*lines, "\n[release]\n", *_required(seen)])


def _required(seen: Adopted) -> Iterable[str]:
    """The evidence that a release can have as the tasks are now."""
    steps = [step for step in _STEPS if _can(step, seen)]
    if seen.with_image and "seal" not in steps:
        yield _WHY_NOT_SEAL.format(seen.tasks - seen.with_base_commit, seen.tasks)
    named = ", ".join(f'"{step}"' for step in steps)
    yield f"require = [{named}]  # the evidence that a release needs\n"


def _can(step: str, seen: Adopted) -> bool:
    if step == "seal":
        return 0 < seen.tasks == seen.with_base_commit and bool(seen.with_image)
    return step == "validate" or bool(seen.with_image)


def dataset_name(folder: str) -> str:
    """A name for a dataset, from its folder's: what can stand in the names of files and images."""
    return re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-") or "dataset"


def namespace_of(bases: Iterable[Base], froms: Iterable[str]) -> str:
    """The namespace that most tasks use in front of their bases' names; else the default."""
    names = {base.name for base in bases}
    parts = (image.rpartition("/") for image in froms)
    counted = Counter(
        before for before, _, last in parts if last in names and _NAMESPACE.fullmatch(before)
    )
    return counted.most_common(1)[0][0] if counted else _DEFAULT_NAMESPACE
