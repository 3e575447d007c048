"""Free space in the engine: look at what it stores, and remove what was chosen, one by one.

Promises: removes what it was handed and nothing else, and by id, so that what got a tag meanwhile
is left to it. Which images go is decided by `rules/clean.py`.
"""

import time
from collections.abc import Iterator

from kbench_build.rim.engines import ContainerEngine
from kbench_build.rules.clean import Choice, Going, Owner, Wish, choose


def look(engine: ContainerEngine, owner: Owner, wish: Wish) -> Choice:
    """What would go of the engine's images."""
    return choose(engine.stored(), owner, wish, now=time.time())


def remove(engine: ContainerEngine, choice: Choice) -> Iterator[tuple[Going, str]]:
    """Remove images, each in its turn; with each comes why the engine wouldn't, or nothing."""
    for going in choice.going:
        yield going, engine.discard(going.image.id)
