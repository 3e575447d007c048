"""What a recipe takes from the world as it is that day: images, clones, downloads, packages.

Promises: asks what validation asks (see `recipe_trust`), and of packages besides. Nothing here is
wrong by itself; it is what may make a rebuild differ while no file of the dataset changes.
"""

from collections.abc import Iterator

from kbench_build.rules.drift import Floating
from kbench_build.rules.recipe_trust import (
    Recipe,
    downloads,
    floating,
    installs,
    moving,
    unpinned,
)

# Where a distribution keeps its archive as it was at a date.
_SNAPSHOTS = "snapshot."
_MOST_NAMES = 5


def floating_sources(recipe: Recipe, namespace: str) -> Iterator[Floating]:
    """Every place of a recipe that nothing pins."""
    for asked in (
        floating(recipe, namespace),
        unpinned(recipe, namespace),
        moving(recipe),
        downloads(recipe),
    ):
        for file, where, message in asked:
            yield Floating(file=file, where=where, message=message)
    yield from _packages(recipe)


def _packages(recipe: Recipe) -> Iterator[Floating]:
    """Installations from an archive that no snapshot stands for, unless versions are named."""
    if any(_SNAPSHOTS in word for line in recipe.lines for word in line.words):
        return
    for line in recipe.lines:
        free = [package for package in installs(line) if "=" not in package]
        if free:
            more = f" and {len(free) - _MOST_NAMES} more" if len(free) > _MOST_NAMES else ""
            names = ", ".join(free[:_MOST_NAMES]) + more
            message = f"installs {names} in the version that the archive has that day"
            yield Floating(file=line.file, where=line.where, message=message)
