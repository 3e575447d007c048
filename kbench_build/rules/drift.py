"""What a rebuild would change: what was recorded, held against what is found now.

Promises: pure. What can't be told is a row that says why, never a guess. Only what a rebuild would
make differ from what a release names, or what it could no longer make at all, is an error; what
else has moved is a warning; sources that may move any day, and what can't be told, are notes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kbench_build.model import Severity
from kbench_build.rules.base_inputs import BaseInput
from kbench_build.rules.findings import printable
from kbench_build.rules.images import is_pinned
from kbench_build.rules.lock import Evidence, Lock

Part = Literal["image", "outside image", "input", "source", "tool"]
State = Literal["same", "moved", "gone", "edited", "floating", "unknown"]

_MOST_LINES = 40
_SHOWN = 16  # characters of a digest


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that a rebuild depends on: what was recorded of it, and what it is now.

    `moved`: it differs without an edit; `gone`: it can't be found or made; `edited`: its files are
    others than then; `floating`: nothing pins it; `unknown`: it couldn't be asked.
    """

    part: Part
    subject: str
    state: State
    severity: Severity
    message: str
    recorded: str = ""
    now: str = ""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """An image from outside: its id in the engine, and its registry's digest if it has one."""

    id: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image of the dataset: its recipe now, and what its last report says it was.

    `built_from` is the recipe that was built, `made` the image's id, `froms` the images from
    outside that it was built on, `engine` what built it; empty where no report says so.
    `held` is the id of the image that the engine holds for the recipe of now, empty for none.
    """

    subject: str
    recipe: str
    built_from: str
    made: str
    froms: Mapping[str, Identity]
    engine: str
    held: str


@dataclass(frozen=True, kw_only=True)
class Outside:
    """An image from outside, as it is now. `local` is None where the engine doesn't hold it.

    `published` is the registry's digest of the tag; where that can't be asked `problem` says why.
    `subjects` are the images that stand on it.
    """

    reference: str
    subjects: tuple[str, ...]
    local: Identity | None
    published: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Input:
    """A generated file. `built_from` and `made` are what its report says, `sources` those of now.

    `again` is what its command made just now, None where it wasn't run; `problem`: why it failed.
    `bases` take it.
    """

    item: BaseInput
    bases: tuple[str, ...]
    sources: str
    built_from: str
    made: str
    again: str | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Floating:
    """A place of a recipe whose outcome nothing pins; `file` is relative to the dataset's root."""

    file: str
    where: str
    message: str


@dataclass(frozen=True, kw_only=True)
class World:
    """All that was found. `engine` is its name and version, or empty with `problem` saying why."""

    images: tuple[Image, ...]
    outside: tuple[Outside, ...]
    inputs: tuple[Input, ...]
    floating: tuple[Floating, ...]
    engine: str
    problem: str
    zstd: str
    released: Lock | None


def drift(world: World) -> tuple[Row, ...]:
    """Every row, those that nothing has changed of among them."""
    names = _Released(world.released)
    return (
        *_images(world, names),
        *(row for found in world.outside for row in _outside(found, world, names)),
        *(_input(found, world, names) for found in world.inputs),
        *map(_floating, world.floating),
        *_tools(world, names),
    )


class _Released:
    """What the last release names: recipes, and the images from outside, by subject."""

    def __init__(self, lock: Lock | None) -> None:
        self.folder = lock.folder if lock else ""
        self.zstd = lock.archive.zstd if lock else ""
        self.recipes: dict[str, str] = {}
        self.evidence: dict[str, Evidence] = {}
        for base in lock.bases if lock else ():
            self._take(base.name, base.recipe, base.evidence.get("build_bases"))
        for task in lock.tasks if lock else ():
            self._take(task.id, task.recipe, task.evidence.get("build_images"))

    def _take(self, subject: str, recipe: str, evidence: Evidence | None) -> None:
        self.recipes[subject] = recipe
        if evidence:
            self.evidence[subject] = evidence

    def names(self, subject: str, recipe: str) -> bool:
        """Whether the release names the image that this recipe makes."""
        return bool(recipe) and self.recipes.get(subject) == recipe

    def froms(self, subject: str) -> Mapping[str, Identity]:
        """The images from outside that the released image was built on."""
        evidence = self.evidence.get(subject)
        return identities(evidence.data) if evidence else {}


def identities(data: Mapping[str, Any]) -> Mapping[str, Identity]:
    """The images from outside that the data of a build's report names."""
    froms = data.get("froms")
    return {
        str(name): Identity(id=str(value.get("id", "")), digest=str(value.get("digest", "")))
        for name, value in (froms.items() if isinstance(froms, Mapping) else ())
        if isinstance(value, Mapping)
    }


def _images(world: World, names: _Released) -> Iterator[Row]:
    if world.problem:
        message = f"which images there are can't be told: {world.problem}"
        yield Row(part="image", subject="*", state="unknown", severity="note", message=message)
        return
    for image in world.images:
        state, severity, message = _image(image, names)
        yield Row(
            part="image",
            subject=image.subject,
            state=state,
            severity=severity,
            message=message,
            recorded=image.built_from,
            now=image.recipe,
        )


def _image(image: Image, names: _Released) -> tuple[State, Severity, str]:
    if not image.recipe:
        return "unknown", "note", "what it is made from isn't known before its inputs are made"
    if image.built_from and image.built_from != image.recipe:
        return "edited", "warning", "what it is made from was edited since it was built"
    if not image.held:
        return "gone", "warning", "the engine doesn't hold it: a build makes it anew"
    if image.made and image.made != image.held:
        return "moved", "warning", "the engine holds another image for it than the report's"
    released = names.recipes.get(image.subject)
    if released and released != image.recipe:
        return "edited", "note", f"what it is made from was edited since {names.folder}"
    return "same", "note", ""


def _outside(found: Outside, world: World, names: _Released) -> Iterator[Row]:
    """An image from outside against what each record says that it was; alike records are one."""
    if is_pinned(found.reference):
        yield Row(
            part="outside image",
            subject=found.reference,
            state="same",
            severity="note",
            message="",
        )
        return
    told = {image.subject: image for image in world.images}
    seen: set[tuple[Identity, bool]] = set()
    for subject in found.subjects:
        image = told.get(subject)
        released = bool(image and names.names(subject, image.recipe))
        recorded = _recorded(found.reference, subject, image, names if released else None)
        if recorded and (recorded, released) not in seen:
            seen.add((recorded, released))
            yield _compared(found, subject, recorded, names.folder if released else "")
    if not seen:
        yield _unrecorded(found)


def _recorded(
    reference: str, subject: str, image: Image | None, names: _Released | None
) -> Identity | None:
    """What a subject was built on: the release's word counts more than the report's."""
    sources = [names.froms(subject)] if names else []
    if image and image.built_from == image.recipe:
        sources.append(image.froms)
    return next((froms[reference] for froms in sources if reference in froms), None)


def _compared(found: Outside, subject: str, recorded: Identity, release: str) -> Row:
    worse: Severity = "error" if release else "warning"
    state: State = "same"
    severity: Severity = "note"
    message, now = "", recorded.digest or recorded.id
    if found.published and recorded.digest and found.published != recorded.digest:
        state, severity, now = "moved", worse, found.published
        message = f"its registry has another image under this tag than {subject} was built on"
    elif found.local and found.local.id != recorded.id:
        state, severity, now = "moved", worse, found.local.digest or found.local.id
        message = f"the engine holds another image under this tag than {subject} was built on"
    elif found.problem:
        state, message = "unknown", f"its registry can't be asked: {found.problem}"
    elif found.published and not recorded.digest:
        state, message = "unknown", "no registry's digest was recorded to compare with"
    if state == "moved" and release:
        message += f", which {release} names"
    return Row(
        part="outside image",
        subject=found.reference,
        state=state,
        severity=severity,
        message=message,
        recorded=recorded.digest or recorded.id,
        now=now,
    )


def _unrecorded(found: Outside) -> Row:
    known = found.published or (found.local.digest or found.local.id if found.local else "")
    said = f"; its registry can't be asked: {found.problem}" if found.problem else ""
    return Row(
        part="outside image",
        subject=found.reference,
        state="unknown",
        severity="note",
        message=f"no build here recorded which image it was{said}",
        now=known,
    )


def _input(found: Input, world: World, names: _Released) -> Row:
    recipes = {image.subject: image.recipe for image in world.images}
    released = any(names.names(base, recipes.get(base, "")) for base in found.bases)
    state, severity, message = _input_state(found, names.folder if released else "")
    pinned = found.item.pin if found.item.pin_kind != "unpinned" else ""
    return Row(
        part="input",
        subject=found.item.name,
        state=state,
        severity=severity,
        message=message,
        recorded=pinned or found.made,
        now=found.again or "",
    )


def _input_state(found: Input, release: str) -> tuple[State, Severity, str]:
    pinned = found.item.pin_kind != "unpinned"
    if found.problem:
        return "gone", "error", f"can't be made again: {found.problem}"
    if found.again is not None and pinned and found.again != found.item.pin:
        return "moved", "error", "made again it isn't what its pin says: nobody can rebuild it"
    if found.again is not None and not pinned and found.made and found.again != found.made:
        message = "made again it is another file: bases that take it change"
        return (
            ("moved", "error", f"{message}, and {release} names them")
            if release
            else ("moved", "warning", message)
        )
    if found.built_from and found.built_from != found.sources:
        return "edited", "warning", "what it is made from was edited since it was made"
    if found.again is None and not pinned:
        return "floating", "note", f"not pinned: {found.item.pin}"
    return "same", "note", ""


def _floating(found: Floating) -> Row:
    spot = f"{found.file}: {found.where}" if found.where else found.file
    return Row(
        part="source", subject=spot, state="floating", severity="note", message=found.message
    )


def _tools(world: World, names: _Released) -> Iterator[Row]:
    if names.zstd:
        yield _tool("zstd", names.zstd, world.zstd, "the tarball may get other bytes, not content")
    builders = Counter(image.engine for image in world.images if image.engine)
    for builder in sorted(builders) if world.engine else ():
        yield _tool("engine", builder, world.engine, f"it built {builders[builder]} of the images")


def _tool(name: str, recorded: str, now: str, message: str) -> Row:
    state: State = "same" if recorded == now else "moved"
    text = "" if state == "same" else message
    return Row(
        part="tool",
        subject=name,
        state=state,
        severity="note",
        message=text,
        recorded=recorded,
        now=now,
    )


def summary(rows: Iterable[Row]) -> str:
    """One line: how many rows of each state."""
    counts: Counter[str] = Counter(row.state for row in rows)
    order = ("moved", "gone", "edited", "floating", "unknown", "same")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts[state]) or "nothing"


def to_json(row: Row) -> dict[str, Any]:
    """A row as a JSON object."""
    return asdict(row)


def table(rows: Sequence[Row]) -> Sequence[str]:
    """The rows in which something is to be said, as lines of a table: the worst first.

    Of each kind only so many; the report has them all.
    """
    order = {"error": 0, "warning": 1, "note": 2}
    shown = sorted((row for row in rows if row.state != "same"), key=lambda r: order[r.severity])
    seen: Counter[tuple[str, str, str]] = Counter()
    lines = []
    for row in shown:
        kind = (row.severity, row.state, row.part)
        seen[kind] += 1
        if seen[kind] <= _MOST_LINES:
            lines.append(_line(row))
    left = ((kind, count - _MOST_LINES) for kind, count in seen.items())
    more = [f"{' '.join(kind)}: {rest} more in the report" for kind, rest in left if rest > 0]
    return [*lines, *more]


def _line(row: Row) -> str:
    digests = f"{_short(row.recorded)} → {_short(row.now)}" if row.recorded and row.now else ""
    said = printable(row.message) + (f" ({digests})" if digests and row.state == "moved" else "")
    return f"{row.severity:<8} {row.state:<9} {row.part:<14} {printable(row.subject)}: {said}"


def _short(value: str) -> str:
    return value.removeprefix("sha256:")[:_SHOWN]
