"""Judges what was found in an image's layers: whether the fix can be had from any of them.

Promises: a pure judgement. A file that is as the fix leaves it is a finding, and so is one that
holds enough of what only the fix brings; what the base itself holds counts for nothing. Every layer
counts, because it keeps what a later one deletes. A repository is a finding when it holds objects
of the fix or of the task's own project; one of another project is named in the proof.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kbench_build.model import Finding
from kbench_build.model.layers import GitTrace, LayerFound, LeftOut
from kbench_build.model.repository import CheckoutFile
from kbench_build.rules.fix_marks import Mark, Marks

MEND = {
    "leak/file": "don't let the build bring the fixed file in, in any layer",
    "leak/lines": "don't let the build bring in what holds the fix's text, in any layer",
    "leak/compiled": "don't build the fixed tree for the image, or build it in another stage",
    "leak/repository": "make the repository in another stage and copy the sealed checkout only",
    "leak/pack": "keep packs and bundles out of the image; give them to an earlier stage",
}
"""What to do about each finding, by rule id."""

_MADE = frozenset({"node_modules", "build", "dist", "out", "target", "bin", "obj", "coverage"})
_LIST_AT_MOST = 20
_ENOUGH_LINES = 3
_SHARE_OF_LINES = 10
_FEW_LINES_FROM = 60
_ENOUGH_WORDS = 3
_WEIGHT_OF_WORDS = 16
_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What the image may not hold, and what it may.

    `at_base` are numbers of marks that the base holds itself. `fixed`: places of files that are as
    the fix leaves them, by layer. `compared`: how many such files were looked for. `checkout` is
    the checkout's place without a leading slash. `stored` are the objects that the sealed
    repository was proven to hold, `project` commits and trees of the task's project, `fix` ids that
    only the fix has, `prefixes` such ids cut short.
    """

    file: str
    marks: Marks
    at_base: frozenset[int]
    checkout: str
    fixed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    compared: int = 0
    stored: Collection[str] = frozenset()
    project: frozenset[str] = frozenset()
    fix: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ImageProof:
    """What was searched, for what, and what was left out; it goes into the lock.

    `files` and `bytes` are those of all layers, `members` and `unpacked_bytes` those in archives.
    `lines` and `words` are the marks searched for, `at_base` those that the base holds as well.
    """

    layers: tuple[str, ...]
    files: int
    bytes: int
    members: int
    unpacked_bytes: int
    lines: int
    words: int
    at_base: int
    fixed_files: int
    other_repositories: tuple[str, ...]
    left_out: Mapping[str, LeftOut]

    def as_json(self) -> dict[str, Any]:
        """The proof as a JSON value."""
        left_out = {
            reason: {"count": left.count, "examples": list(left.examples)}
            for reason, left in self.left_out.items()
        }
        listed = {key: list(getattr(self, key)) for key in ("layers", "other_repositories")}
        return {**asdict(self), **listed, "left_out": left_out}


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A finding before it knows its task: a place, in which layers, and what is wrong there."""

    rule: str
    place: str
    message: str


def at_base(
    marked: Mapping[str, frozenset[int]],
    files: Iterable[CheckoutFile],
    tree: Mapping[str, tuple[str, str]],
) -> frozenset[int]:
    """Marks that the base holds itself: those in files of the checkout that are as it has them.

    `tree` is the base's; where there is none, all files of the checkout count but what builds and
    package managers put there.
    """
    ids = {file.path: (file.id, file.text_id) for file in files}
    found: set[int] = set()
    for path, numbers in marked.items():
        if tree[path][1] in ids.get(path, ()) if path in tree else not tree and _is_source(path):
            found |= numbers
    return frozenset(found)


def _is_source(path: str) -> bool:
    return _MADE.isdisjoint(path.split("/")[:-1])


def judge(layers: Sequence[LayerFound], sought: Sought) -> tuple[tuple[Finding, ...], ImageProof]:
    """Everything in the layers that gives the fix away, and what was searched."""
    where: dict[_Said, list[int]] = {}
    for number, layer in enumerate(layers, 1):
        in_files = (*_files(layer, sought), *_texts(layer, sought))
        for said in (*_innermost(in_files), *_git(layer, sought)):
            where.setdefault(said, []).append(number)
    findings = _findings(where, len(layers), sought.file)
    return tuple(findings), _proof(layers, sought)


def _files(layer: LayerFound, sought: Sought) -> Iterator[_Said]:
    for place in dict.fromkeys(sought.fixed.get(layer.layer, ())):
        message = "is a file as the fix or the hidden tests leave it"
        yield _Said(rule="leak/file", place=place, message=message)


# Marks. How many of them make a finding was measured: a thousand fixes of other projects against
# the layers of images with a JDK, Kotlin, Maven and Gradle, none of which can hold them.


def _texts(layer: LayerFound, sought: Sought) -> Iterator[_Said]:
    marks = sought.marks.each
    totals = _grouped(marks, frozenset(range(len(marks))) - sought.at_base)
    fixed = frozenset(sought.fixed.get(layer.layer, ()))
    for hit in layer.hits:
        if hit.place in fixed:
            continue
        found = _grouped(marks, hit.numbers - sought.at_base)
        lines = {g: m for (g, kind), m in found.items() if kind == "line"}
        words = {g: m for (g, kind), m in found.items() if kind == "word"}
        telling = {g: m for g, m in lines.items() if _enough_lines(m, totals[g, "line"])}
        if telling:
            yield _told("leak/lines", hit.place, telling, totals)
            continue
        telling = {g: m for g, m in words.items() if _enough_words(m, totals[g, "word"])}
        if telling:
            yield _told("leak/compiled", hit.place, telling, totals)


_Groups = dict[tuple[str, str], list[bytes]]


def _grouped(marks: Sequence[Mark], numbers: frozenset[int]) -> _Groups:
    groups: _Groups = {}
    for number in sorted(numbers):
        mark = marks[number]
        groups.setdefault((mark.group, mark.kind), []).append(mark.text)
    return groups


def _enough_lines(found: Sequence[bytes], of: Sequence[bytes]) -> bool:
    """Three lines of one file that are some share of it, or all where there are fewer."""
    if len(found) >= _ENOUGH_LINES:
        return len(found) * _SHARE_OF_LINES >= len(of)
    return len(found) == len(of) and sum(map(len, found)) >= _FEW_LINES_FROM


def _enough_words(found: Sequence[bytes], of: Sequence[bytes]) -> bool:
    """A third of what one file declares, if long names are among it, or nearly all of it."""
    names, all_names = ({text.lower() for text in texts} for texts in (found, of))
    if len(names) >= _ENOUGH_WORDS and len(names) * 4 >= len(all_names) * 3:
        return True
    weight = sum(max(len(name) - 8, 1) for name in names)
    return len(names) > 1 and len(names) * 3 >= len(all_names) and weight >= _WEIGHT_OF_WORDS


_WHAT = {"leak/lines": ("line", "lines"), "leak/compiled": ("word", "names and texts")}


def _told(rule: str, place: str, telling: Mapping[str, Sequence[bytes]], totals: _Groups) -> _Said:
    group = max(telling, key=lambda g: (len(telling[g]), g))
    kind, what = _WHAT[rule]
    found, of = telling[group], totals[group, kind]
    example = max(found, key=len).decode("utf-8", "replace")[:80]
    more = f", and of {len(telling) - 1} more files" if len(telling) > 1 else ""
    message = f"holds {len(found)} of the {len(of)} {what} that {group} gets: {example!r}{more}"
    return _Said(rule=rule, place=place, message=message)


# Repositories.


def _git(layer: LayerFound, sought: Sought) -> Iterator[_Said]:
    for trace in layer.git:
        if trace.kind in ("pack", "bundle"):
            message = f"is a {trace.kind} of git objects"
            yield _Said(rule="leak/pack", place=trace.place, message=message)
        elif trace.kind == "objects":
            whose, ids = _secret(trace, sought)
            if ids:
                message = f"holds {len(ids)} git objects {whose}, as {min(ids)}"
                yield _Said(rule="leak/repository", place=trace.place, message=message)


def _secret(trace: GitTrace, sought: Sought) -> tuple[str, Collection[str]]:
    """Objects that a repository in a layer shouldn't hold, and whose they are."""
    if sought.stored and _is_below(trace.place, f"{sought.checkout}/.git"):
        return "that the sealed repository doesn't", trace.ids - frozenset(sought.stored)
    of_fix = (trace.ids & sought.fix) | _begin_with(trace.ids, sought.prefixes)
    if of_fix:
        return "of the fix", of_fix
    return "of the task's own project", trace.ids & sought.project


def _begin_with(ids: Iterable[str], prefixes: frozenset[str]) -> frozenset[str]:
    lengths = {len(prefix) for prefix in prefixes}
    return frozenset(i for i in ids for length in lengths if i[:length] in prefixes)


def _is_below(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/")


# What is said of it all.


def _innermost(said: Sequence[_Said]) -> Iterator[_Said]:
    """Without archives of which a member is named: what isn't compressed is found in both."""
    outer = set()
    for each in said:
        parts = each.place.split("!")
        outer |= {"!".join(parts[:depth]) for depth in range(1, len(parts))}
    return (each for each in said if each.place not in outer)


def _findings(where: Mapping[_Said, Sequence[int]], of: int, file: str) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for said, numbers in where.items():
        counts[said.rule] = counts.get(said.rule, 0) + 1
        if counts[said.rule] <= _LIST_AT_MOST:
            layers = ", ".join(map(str, numbers[:5])) + (" …" if len(numbers) > 5 else "")
            message = f"{said.message} (layer {layers} of {of})"
            yield _finding(said.rule, file, said.place, message)
    for rule, count in counts.items():
        if count > _LIST_AT_MOST:
            yield _finding(rule, file, "", f"and {count - _LIST_AT_MOST} more of this kind")


def _finding(rule: str, file: str, place: str, message: str) -> Finding:
    where = f"/{place}" if place else ""
    return Finding(
        rule=rule, severity="error", file=file, where=where, message=message, mend=MEND[rule]
    )


def _proof(layers: Sequence[LayerFound], sought: Sought) -> ImageProof:
    kept = [m for n, m in enumerate(sought.marks.each) if n not in sought.at_base]
    other = {t.place for x in layers for t in x.git if t.kind == "repository"}
    outside = {p for p in other if not _is_below(p, f"{sought.checkout}/.git")}
    return ImageProof(
        layers=tuple(layer.layer for layer in layers),
        files=sum(layer.files for layer in layers),
        bytes=sum(layer.size for layer in layers),
        members=sum(layer.members for layer in layers),
        unpacked_bytes=sum(layer.unpacked for layer in layers),
        lines=sum(mark.kind == "line" for mark in kept),
        words=sum(mark.kind == "word" for mark in kept),
        at_base=len(sought.at_base),
        fixed_files=sought.compared,
        other_repositories=tuple(sorted(outside)[:_LIST_AT_MOST]),
        left_out=_left_out(layers),
    )


def _left_out(layers: Iterable[LayerFound]) -> dict[str, LeftOut]:
    whole: dict[str, LeftOut] = {}
    for layer in layers:
        for reason, more in layer.left_out.items():
            known = whole.get(reason, LeftOut(count=0, examples=()))
            examples = (*known.examples, *more.examples)[:_EXAMPLES]
            whole[reason] = LeftOut(count=known.count + more.count, examples=examples)
    return dict(sorted(whole.items()))
