"""Prove that a task image holds the base commit and nothing of the fix.

Promises: the image is only read, never run, and how it was sealed plays no part: the checkout's
objects, refs and names are compared with what the base commit's id itself implies, and every layer
of the image is searched for the fix, once for all tasks that stand on it.
"""

import json
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kbench_build.errors import KbenchError
from kbench_build.model import Finding, Report, Suppression
from kbench_build.model.layers import LayerFound
from kbench_build.rim.checkout import CheckoutContents, read_checkout
from kbench_build.rim.dataset import TASKS, read_task_toml
from kbench_build.rim.git import ObjectStore, git_version, ids_beyond
from kbench_build.rim.layer_scan import LEAST_CONTENT, content_digest
from kbench_build.rim.layers import LayerStore, Wanted, read_layers
from kbench_build.rim.matcher import Matcher
from kbench_build.rim.process import ProcessError
from kbench_build.rules import leaks
from kbench_build.rules.findings import suppress, to_json
from kbench_build.rules.fix_ids import FixIds, Forbidden, post_image_ids
from kbench_build.rules.fix_marks import Marks, marks_of, new_files
from kbench_build.rules.seal import MEND, Expected, Found, prove

STEP = "seal"
_PATCHES = ("solution/fix.patch", "tests/test.patch")
# A file of the fix that is larger isn't compared; its lines are searched for all the same.
_LARGEST_FIXED = 32 << 20


class ImageReader(Protocol):
    """What the proof asks of an engine: to read an image without running it."""

    def read(self, image: str, path: str) -> Iterator[bytes]:
        """The tar of an absolute path, as chunks. Raises `FileNotFoundError`."""
        ...

    def workdir(self, image: str) -> str:
        """The folder that the image's commands start in."""
        ...

    def layers(self, image: str) -> Sequence[str]:
        """The diff ids of an image's layers, the lowest first."""
        ...

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        """Images as one archive, each layer once."""
        ...


def seal(
    root: Path,
    task: str,
    *,
    engine: ImageReader,
    image: str,
    inputs: str,
    upstreams: Sequence[Path] = (),
    others: Mapping[str, str] | None = None,
    suppressions: Sequence[Suppression] = (),
) -> Report:
    """Prove the seal of one task's image.

    `upstreams` are bundles or git folders of the task's upstream repository, where at hand: then
    ids of all later history are searched for too. `others` are images of the dataset's other tasks
    by id: a layer that must be read is searched for their fixes as well. Only what is found by the
    search of layers can be suppressed. Findings are in `data["findings"]`, the evidence in
    `data["proof"]`.
    """
    started = time.monotonic()
    place = root / TASKS / task
    base = _base_commit(root, task)
    workdir = _workdir(place, engine, image)
    marks = _marks(place)
    layers = _layers(root, engine, {**(others or {}), task: image}, task)
    with tempfile.TemporaryDirectory(prefix="kbench-seal-") as folder:
        scratch = Path(folder)
        contents = _contents(
            engine,
            image,
            workdir,
            scratch=scratch,
            algorithm=_algorithm(base),
            matcher=Matcher([mark.text for mark in marks.each]),
        )
        judged = _Judged(root=root, place=place, base=base, workdir=workdir, marks=marks)
        findings, leaking, proof = judged.of(contents, layers, scratch, upstreams)
    proof |= {"workdir": workdir, "git": git_version()}
    kept, answered = suppress(leaking, task, suppressions)
    findings = (*findings, *kept)
    return Report(
        step=STEP,
        subject=task,
        inputs=inputs,
        ok=not any(f.severity == "error" for f in findings),
        summary=_summary(findings, proof),
        seconds=time.monotonic() - started,
        data={
            "proof": proof,
            "findings": [to_json(f) for f in findings],
            "suppressed": [{**to_json(a.finding), "reason": a.reason} for a in answered],
            "details": [f"{f}\n    {f.mend}" for f in findings],
        },
    )


def _marks(place: Path) -> Marks:
    return marks_of([_bytes(place / name) for name in _PATCHES], _bytes(place / "instruction.md"))


def _layers(
    root: Path, engine: ImageReader, images: Mapping[str, str], task: str
) -> tuple[LayerFound, ...]:
    """What is in the layers of a task's image; read for all tasks at once, where not known yet."""
    wanted = {name: _wanted(root / TASKS / name, image) for name, image in images.items()}
    mine = wanted.pop(task)
    return read_layers(root, engine, mine(), wanted.values())


def _wanted(place: Path, image: str) -> Callable[[], Wanted]:
    def wanted() -> Wanted:
        marks = _marks(place)
        return Wanted(
            image=image,
            digest=marks.digest,
            texts=tuple(mark.text for mark in marks.each),
            short=frozenset(n for n, mark in enumerate(marks.each) if mark.kind == "word"),
        )

    return wanted


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """A task whose image is judged: its base commit, and where its checkout stands."""

    root: Path
    place: Path
    base: str
    workdir: str
    marks: Marks

    def of(
        self,
        contents: CheckoutContents,
        layers: Sequence[LayerFound],
        scratch: Path,
        upstreams: Sequence[Path],
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...], dict[str, Any]]:
        """What breaks the seal, what leaks from the layers, and the proof of both."""
        file = f"{TASKS}/{self.place.name}/environment/Dockerfile"
        store = ObjectStore(scratch / "store", _algorithm(self.base))
        found = _found(contents, store, self.base)
        forbidden = _forbidden(self.place, store, self.base, upstreams, scratch)
        expected = Expected(file=file, base=self.base, forbidden=forbidden)
        findings, proof = prove(found, expected)
        if contents.top != "folder":
            findings = (_no_checkout(file), *findings)
        sought = self._sought(
            file=file,
            contents=contents,
            found=found,
            forbidden=forbidden,
            store=store,
            layers=layers,
        )
        leaking, searched = leaks.judge(layers, sought)
        return findings, leaking, {**proof.as_json(), "image": searched.as_json()}

    def _sought(
        self,
        *,
        file: str,
        contents: CheckoutContents,
        found: Found,
        forbidden: Forbidden,
        store: ObjectStore,
        layers: Sequence[LayerFound],
    ) -> leaks.Sought:
        ids = FixIds(forbidden, reachable=found.reachable, own=found.own)
        fixed = self._fixed_files(store, forbidden.after - found.own)
        commits = (i for i in found.reachable if found.stored.get(i) == "commit")
        known = LayerStore(self.root)
        return leaks.Sought(
            file=file,
            marks=self.marks,
            at_base=leaks.at_base(contents.marks, found.files, found.tree),
            checkout=self.workdir.strip("/"),
            fixed={x.layer: [p for _, p in known.places_of(x.layer, fixed)] for x in layers},
            compared=len(fixed),
            # Without a base nothing says what the repository may hold.
            stored=found.stored if self.base else (),
            project=frozenset(commits),
            fix=ids.whole,
            prefixes=ids.prefixes,
        )

    def _fixed_files(self, store: ObjectStore, ids: Collection[str]) -> frozenset[bytes]:
        """Digests of the files that the fix and the hidden tests make, where they can be had."""
        patches = [_bytes(self.place / name) for name in _PATCHES]
        contents = [content for _, content in store.blobs(ids, _LARGEST_FIXED)]
        if not self.base:
            contents += [content for _, content in new_files(patches)]
        return frozenset(content_digest(c) for c in contents if len(c) >= LEAST_CONTENT)


def _algorithm(base: str) -> str:
    return "sha256" if len(base) == 64 else "sha1"


def _contents(
    engine: ImageReader,
    image: str,
    workdir: str,
    *,
    scratch: Path,
    algorithm: str,
    matcher: Matcher,
) -> CheckoutContents:
    objects = scratch / "objects"
    objects.mkdir()
    # Of an image without a folder of its own for the checkout, only a repository at / matters.
    whole = workdir.strip("/") == ""
    stream = _passed_on(engine.read(image, "/.git" if whole else workdir))
    with closing(stream):
        try:
            if whole:
                next(stream, None)
                return CheckoutContents(matcher=matcher, top="folder", git="other")
            return read_checkout(stream, objects, algorithm, matcher)
        except FileNotFoundError:
            return CheckoutContents(matcher=matcher, top="folder" if whole else "other")


def _passed_on(stream: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same chunks, closed at the source when closed here: the engine then cleans up."""
    yield from stream


def _found(contents: CheckoutContents, store: ObjectStore, base: str) -> Found:
    damaged = store.take_in(contents.objects)
    stored = store.stored()
    reachable, missing, tree, own = frozenset[str](), frozenset[str](), {}, set[str]()
    if stored.get(base) == "commit":
        cut = contents.texts.get("shallow", b"").decode("utf-8", "replace").split()
        store.cut_history(each for each in cut if stored.get(each) == "commit")
        try:
            reachable, missing = store.reachable([base])
            tree = store.tree(base)
            own = {store.root_tree(base), *(object_id for _, object_id in tree.values())}
        except ProcessError as error:
            damaged += (("objects", f"the base's history is incomplete: {_first_line(error)}"),)
    return Found(
        repository=contents.git,
        names=tuple(contents.names),
        texts=contents.texts,
        stored=stored,
        damaged=damaged,
        reachable=reachable,
        missing=missing,
        tree={path: entry for path, entry in tree.items() if entry[0] != "040000"},
        own=frozenset(own),
        files=tuple(contents.files.values()),
        nested=contents.nested,
    )


def _first_line(error: ProcessError) -> str:
    return error.stderr.decode("utf-8", "replace").strip().partition("\n")[0][:200]


def _forbidden(
    place: Path, store: ObjectStore, base: str, upstreams: Sequence[Path], scratch: Path
) -> Forbidden:
    patches = [_bytes(place / name) for name in _PATCHES]
    fix, test = patches
    after: set[str] = set()
    for chosen in ([fix], [test], [fix, test]):
        after |= _after(store, base, [patch for patch in chosen if patch])
    named = frozenset[str]().union(*(post_image_ids(patch) for patch in patches))
    whole = {each for each in named if len(each) == len(base)}
    short = {e for e in named - whole if not any(each.startswith(e) for each in after)}
    later = [ids_beyond(each, base, scratch / f"up{n}") for n, each in enumerate(upstreams)]
    return Forbidden(
        after=frozenset(after | whole),
        prefixes=frozenset(short),
        later=frozenset[str]().union(*(ids for ids in later if ids is not None)),
    )


def _after(store: ObjectStore, base: str, patches: Sequence[bytes]) -> frozenset[str]:
    if not patches or store.type_of(base or "none") != "commit":
        return frozenset()
    try:
        return store.after(base, patches)
    except ProcessError:
        # Validation names a patch that doesn't apply; the ids it names itself are still searched.
        return frozenset()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise KbenchError(f"{path}: can't be read: {error.strerror}") from error


def _base_commit(root: Path, task: str) -> str:
    base: Any = read_task_toml(root, task)
    for key in ("metadata", "source", "base_commit"):
        base = base.get(key) if isinstance(base, dict) else None
    whole = isinstance(base, str) and len(base) in (40, 64) and not base.strip("0123456789abcdef")
    return str(base) if whole else ""


def _workdir(place: Path, engine: ImageReader, image: str) -> str:
    text = _bytes(place / "tests" / "verify.json")
    try:
        said = json.loads(text)["workdir"] if text else ""
    except (ValueError, KeyError, TypeError):
        said = ""
    return said if isinstance(said, str) and said.startswith("/") else engine.workdir(image)


def _no_checkout(file: str) -> Finding:
    rule, message = "seal.checkout", "the image has no folder at the checkout's place"
    return Finding(rule=rule, severity="error", file=file, message=message, mend=MEND[rule])


def _summary(findings: Sequence[Finding], proof: Mapping[str, Any]) -> str:
    errors = [f for f in findings if f.severity == "error"]
    if errors:
        return f"not sealed: {len(errors)} findings, first: {errors[0]}"
    image = proof["image"]
    count = len(image["layers"])
    layers = f"{count} layer{'' if count == 1 else 's'}"
    read = f"{image['files'] + image['members']} files in {layers} searched"
    if findings:
        return f"{read}; the repository can't be judged: no base commit is named"
    if proof["history"] == "absent":
        return f"sealed: no repository in the checkout, {read}"
    objects, history = proof["objects"], proof["history"]
    searched = proof["forbidden_ids"]["searched"]
    return f"sealed: {objects} objects, history {history}, {searched} ids of the fix, {read}"
