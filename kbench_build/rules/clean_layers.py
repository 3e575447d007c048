"""Which layers' search results go when space is wanted: those that no image stands on any more.

Promises: pure. What is kept of a layer that a present image has stays, so that no proof is made
twice; of the others the oldest go first. Leaves to others: which images are present.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbench_build.model.layers import KeptLayer
from kbench_build.rules.clean import SETTLED_SEC, Wish


@dataclass(frozen=True, kw_only=True)
class LayerChoice:
    """What goes, in this order, and of how many layers what is kept stays, for which reason."""

    going: tuple[KeptLayer, ...]
    staying: dict[str, int]

    @property
    def frees(self) -> int:
        """Bytes on this machine's disk."""
        return sum(kept.size for kept in self.going)


def choose_layers(
    kept: Sequence[KeptLayer], present: Collection[str], wish: Wish, *, now: float
) -> LayerChoice:
    """What goes of what is kept; `present` are the diff ids of all layers that images have."""
    going: list[KeptLayer] = []
    staying: Counter[str] = Counter()
    freed = 0
    for each in sorted(kept, key=lambda k: (bool(k.name), k.written, k.name)):
        reason = _stays(each, present, wish, now)
        if not reason and wish.free is not None and freed >= wish.free:
            reason = "not needed for what is to be freed"
        if reason:
            staying[reason] += 1
        else:
            going.append(each)
            freed += each.size
    return LayerChoice(going=tuple(going), staying=dict(staying))


def _stays(kept: KeptLayer, present: Collection[str], wish: Wish, now: float) -> str:
    if kept.name in present:
        return "in an image"
    settled = 0.0 if kept.name else SETTLED_SEC
    if now - kept.written < (settled if wish.older_than is None else wish.older_than):
        return "too new"
    return ""
