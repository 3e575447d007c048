"""Free space: look at what an engine stores and what is kept of its layers, remove what was chosen.

Promises: removes what it was handed and nothing else, images by id, so that what got a tag
meanwhile is left to it. What goes is decided by `rules/clean.py` and `rules/clean_layers.py`.
"""

import time
from collections.abc import Collection, Iterator
from pathlib import Path

from kbench_build.rim.engines import ContainerEngine
from kbench_build.rim.layers import LayerStore
from kbench_build.rules.clean import Choice, Going, Owner, Wish, choose
from kbench_build.rules.clean_layers import LayerChoice, choose_layers


def look(engine: ContainerEngine, owner: Owner, wish: Wish) -> Choice:
    """What would go of the engine's images."""
    return choose(engine.stored(), owner, wish, now=time.time())


def remove(engine: ContainerEngine, choice: Choice) -> Iterator[tuple[Going, str]]:
    """Remove images, each in its turn; with each comes why the engine wouldn't, or nothing."""
    for going in choice.going:
        yield going, engine.discard(going.image.id)


def look_at_layers(
    root: Path, engine: ContainerEngine, wish: Wish, *, without: Collection[str] = ()
) -> LayerChoice:
    """What would go of what `.kbench/layers` keeps, once the images with these ids are gone."""
    kept = LayerStore(root).kept()
    images = [image.id for image in engine.stored() if image.id not in without] if kept else []
    present = {layer for image in images for layer in engine.layers(image)}
    return choose_layers(kept, present, wish, now=time.time())


def forget_layers(root: Path, choice: LayerChoice) -> None:
    """Remove what was chosen of what is kept; waits for a process that reads layers."""
    store = LayerStore(root)
    if choice.going:
        with store.held():
            for kept in choice.going:
                store.forget(kept)
