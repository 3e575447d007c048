"""Which images go when space is wanted, in which order, and how much that frees.

Promises: pure, from what an engine stores. Only an image whose tag is the one that our labels say
it was given goes, or one without a tag that carries our labels; images made from ours inherit their
labels, so a label alone says nothing. An image on which one that stays stands stays too: removing
it would free nothing. Nothing is counted twice, however many images share a layer.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kbench_build.model.layers import StoredImage
from kbench_build.rules.images import (
    LABEL_DATASET,
    LABEL_KIND,
    LABEL_RECIPE,
    LABEL_STAGE,
    LABEL_SUBJECT,
)

Why = Literal["leftover", "outdated", "current", "other"]

DAY = 86_400.0
# An image without a tag may be a step of a build that runs, so the newest are left alone.
SETTLED_SEC = 600.0
# What goes first, from what nobody can find again to what a run would have to make again.
_TURNS: Mapping[Why, int] = {"leftover": 0, "outdated": 1, "current": 2, "other": 2}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A dataset: its name, its namespace, and the recipe's digest of each image that it makes now.

    A digest is empty where it can't be told yet: the image may be the current one. `subjects` are
    the bases (`repo:tag`) and tasks that the images are of.
    """

    name: str
    namespace: str
    recipes: Mapping[str, str]
    subjects: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What may go. `older_than` is in seconds, `free` in bytes; None: whatever its age, and all."""

    keep_current: bool = False
    all_datasets: bool = False
    older_than: float | None = None
    free: int | None = None


@dataclass(frozen=True, kw_only=True)
class Going:
    """An image that goes: what to call it, why it may, and what goes with it alone."""

    image: StoredImage
    name: str
    why: Why
    frees: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What goes, in this order, and how many images stay for which reason."""

    going: tuple[Going, ...]
    staying: Mapping[str, int]

    @property
    def frees(self) -> int:
        """The bytes of layers that no other image holds; the builder's cache may hold some."""
        return sum(going.frees for going in self.going)


def parse_size(text: str) -> int | None:
    """`20GB`, `1.5g` or `300000000` in bytes (a kilobyte has 1,000); None where it is no size."""
    found = _SIZE.fullmatch(text.strip())
    return round(float(found[1]) * 1000 ** _POWERS[found[2].lower()]) if found else None


def choose(images: Sequence[StoredImage], owner: Owner, wish: Wish, *, now: float) -> Choice:
    """What goes of all the images that an engine stores."""
    why: dict[str, Why] = {}
    staying: Counter[str] = Counter()
    for image in images:
        reason = _why(image, owner)
        stays = _stays(image, reason, wish, now) if reason else ""
        if stays:
            staying[stays] += 1
        elif reason:
            why[image.id] = reason
    going = tuple(_in_turn(images, why, wish.free))
    stood_on = len(why) - len(going)
    if stood_on and (wish.free is None or sum(g.frees for g in going) < wish.free):
        staying["below an image that stays"] = stood_on
    elif stood_on:
        staying["not needed for what is to be freed"] = stood_on
    return Choice(going=going, staying=staying)


def _why(image: StoredImage, owner: Owner) -> Why | None:
    """Why an image may go; None where it isn't ours at all."""
    labels = image.labels
    if not image.tags:
        ours = {LABEL_RECIPE, LABEL_STAGE} & {*labels}
        mine = _is_made_for(owner, labels, by_subject=True)
        return ("leftover" if mine else "other") if ours else None
    tag = _given_tag(image)
    if not tag:
        return None
    mine = _is_made_for(owner, labels, by_subject=tag in owner.recipes)
    if not mine or not tag.startswith(f"{owner.namespace}/"):
        return "other"
    current = owner.recipes.get(tag)
    return "current" if current in ("", labels.get(LABEL_RECIPE)) else "outdated"


def _is_made_for(owner: Owner, labels: Mapping[str, str], *, by_subject: bool) -> bool:
    """Whether an image was made for the dataset; without a label for that, its subject tells."""
    if labels.get(LABEL_DATASET):
        return labels[LABEL_DATASET] == owner.name
    subject = labels.get(LABEL_STAGE) or labels.get(LABEL_SUBJECT)
    return by_subject and subject in owner.subjects


def _given_tag(image: StoredImage) -> str:
    """The tag that a build gave an image with these labels; empty where it has none like that."""
    subject = image.labels.get(LABEL_SUBJECT, "")
    name = {"base": subject, "task": f"task:{subject}"}.get(image.labels.get(LABEL_KIND, ""), "")
    return next((tag for tag in image.tags if name and tag.endswith(f"/{name}")), "")


def _stays(image: StoredImage, why: Why, wish: Wish, now: float) -> str:
    """Why an image of ours isn't even considered."""
    if why == "other" and not wish.all_datasets:
        return "another dataset's"
    if len(image.tags) > 1:
        return "with another tag, too"
    if image.in_use:
        return "below a container"
    if why == "current" and wish.keep_current:
        return "current"
    settled = SETTLED_SEC if why == "leftover" else 0.0
    if now - image.created < (settled if wish.older_than is None else wish.older_than):
        return "too new"
    return ""


def _in_turn(
    images: Sequence[StoredImage], why: Mapping[str, Why], enough: int | None
) -> Iterator[Going]:
    """What goes: the oldest of what nothing stands on, again and again."""
    stock = _Stock(images)
    waiting = [image for image in images if image.id in why]
    by_top: dict[str, list[StoredImage]] = {}
    for image in waiting:
        by_top.setdefault(_top(image), []).append(image)
    ready = [(_turn(i, why), i.id, i) for i in waiting if stock.is_free(i)]
    heapq.heapify(ready)
    freed = 0
    while ready and (enough is None or freed < enough):
        _, _, image = heapq.heappop(ready)
        frees, bared = stock.remove(image)
        freed += frees
        yield Going(image=image, name=_name(image), why=why[image.id], frees=frees)
        for below in (i for key in bared for i in by_top.get(key, ())):
            heapq.heappush(ready, (_turn(below, why), below.id, below))


def _turn(image: StoredImage, why: Mapping[str, Why]) -> tuple[int, float]:
    return _TURNS[why[image.id]], image.created


def _top(image: StoredImage) -> str:
    return image.layers[-1].key if image.layers else image.id


def _name(image: StoredImage) -> str:
    return image.tags[0] if image.tags else image.id


@dataclass
class _Stock:
    """The images that are still there: who holds each layer, and what stands on it."""

    images: Iterable[StoredImage]
    holders: Counter[str] = field(default_factory=Counter)
    above: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for image in self.images:
            keys = [layer.key for layer in image.layers]
            self.holders.update(keys)
            self.above.update(keys[:-1])

    def is_free(self, image: StoredImage) -> bool:
        """Whether no other image stands on it."""
        return self.above[_top(image)] == 0

    def remove(self, image: StoredImage) -> tuple[int, Sequence[str]]:
        """Take an image away; the bytes that go with it, and the layers nothing stands on now."""
        bared = []
        for layer in image.layers:
            self.holders[layer.key] -= 1
        for layer in image.layers[:-1]:
            self.above[layer.key] -= 1
            if not self.above[layer.key]:
                bared.append(layer.key)
        frees = sum(layer.size for layer in image.layers if not self.holders[layer.key])
        return frees, bared
