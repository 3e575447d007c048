"""Judges whether a checkout is sealed: its repository holds the base commit and nothing else.

Promises: a pure judgement over what was read from an image, not trusting how it was sealed. What is
allowed is listed (names, refs, configuration keys, object ids), everything else is a finding: so a
route to the fix that nobody thought of is found as "not in the list". Leaves to others: reading the
image (`rim.checkout`, `rim.git`), and files outside the checkout.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kbench_build import digest
from kbench_build.model import Finding
from kbench_build.model.repository import CheckoutFile, GitName
from kbench_build.rules.fix_ids import FixIds, Forbidden
from kbench_build.rules.git_index import Index, parse_index
from kbench_build.rules.step_inputs import SEAL_VERSION

BRANCHES = ("refs/heads/main", "refs/heads/master")
"""The one ref has one of these names: a branch's name can describe a fix."""

UNNAMED = "seal.base"
"""The one rule that only warns: without a base nothing can be proven, and the layers decide."""

_LIST_AT_MOST = 20

MEND = {
    "seal.base": "name it in full in task.toml, [metadata.source] base_commit",
    "seal.checkout": "put the checkout where tests/verify.json `workdir` (or WORKDIR) says",
    "seal.repository": "make .git a plain folder of its own: seal_git_history.sh does",
    "seal.name": "seal with seal_git_history.sh after everything else that writes to .git",
    "seal.config": "leave the configuration as sealed; set user.name and user.email at most",
    "seal.head": "seal at the base commit that task.toml names",
    "seal.ref": "keep one branch, main, at the base commit",
    "seal.log": "seal with seal_git_history.sh after everything else that writes to .git",
    "seal.history": "seal again with seal_git_history.sh, history `ancestors` or `none`",
    "seal.store": "seal again: the object store isn't what git writes",
    "seal.objects": "seal with seal_git_history.sh: it makes a new store",
    "seal.index": "seal again, then change no tracked file",
    "seal.tracked": "leave tracked files as the base has them (prepare.sh: check_git_changes.sh)",
    "seal.nested": "remove repositories, packs and bundles from the checkout",
    "seal.fix-id": "remove what names the fix; seal with seal_git_history.sh",
    "seal.fix-history": "seal with history `none`: the ancestors hold a file as the fix leaves it",
    "seal.fix-file": "remove the file: it is one that the fix or the hidden tests make",
}
"""What to do about each finding, by rule id."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was read from the image.

    `repository`: what stands at .git. `texts`: the content of files in .git other than objects, as
    far as they were kept. `stored`: object id → type, ids computed from content. `damaged`: names
    below .git that don't check, with the reason. `reachable` and `missing`: what the base reaches
    in that store under its own `shallow`. `tree`: the base's paths → (mode, id); `own`: the ids of
    all blobs and trees in it.
    """

    repository: Literal["folder", "absent", "other"]
    names: tuple[GitName, ...] = ()
    texts: Mapping[str, bytes] = field(default_factory=dict)
    stored: Mapping[str, str] = field(default_factory=dict)
    damaged: tuple[tuple[str, str], ...] = ()
    reachable: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    tree: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    files: tuple[CheckoutFile, ...] = ()
    nested: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the task says: the file that findings point to, and the base commit ("" if none)."""

    file: str
    base: str
    forbidden: Forbidden


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The evidence that goes into the lock. `objects_blake3`: over the sorted ids, one a line."""

    base_commit: str
    history: Literal["ancestors", "none", "absent"]
    head: str
    refs: Mapping[str, str]
    objects: int
    objects_blake3: str
    names: tuple[str, ...]
    tracked_files: int
    other_files: int
    bytes_read: int
    forbidden_ids: Mapping[str, int]
    version: int = SEAL_VERSION

    def as_json(self) -> dict[str, Any]:
        """The proof as a JSON value."""
        return {**asdict(self), "names": list(self.names)}


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A finding before it knows its task."""

    rule: str
    where: str
    message: str


def prove(found: Found, expected: Expected) -> tuple[tuple[Finding, ...], Proof]:
    """Everything that breaks the seal, and the proof value (which stands only without errors)."""
    ids = FixIds(expected.forbidden, reachable=found.reachable, own=found.own)
    said = list(_files(found, ids))
    if found.repository == "other":
        said.append(
            _Said(rule="seal.repository", where=".git", message="isn't a folder of its own")
        )
    elif found.repository == "folder":
        said += _repository(found, expected, ids)
    findings = (
        Finding(
            rule=s.rule,
            severity="warning" if s.rule == UNNAMED else "error",
            file=expected.file,
            where=s.where,
            message=s.message,
            mend=MEND[s.rule],
        )
        for s in _shortened(said)
    )
    return tuple(findings), _proof(found, expected, ids)


def _repository(found: Found, expected: Expected, ids: FixIds) -> Iterator[_Said]:
    if not expected.base:
        message = "there is a repository, but task.toml names no base commit to compare it with"
        yield _Said(rule="seal.base", where=".git", message=message)
        return
    yield from _names(found)
    yield from _head_and_refs(found, expected.base)
    yield from _logs(found, expected.base)
    yield from _config(found.texts.get("config", b""))
    yield from _history(found)
    yield from _objects(found, expected.base, ids)
    yield from _index(found)
    yield from _tracked(found)
    yield from _fix_ids(found, ids)


# Names: what may stand in .git.

_HEX = "(?:[0-9a-f]{40}|[0-9a-f]{64})"
_NAMES = re.compile(
    rf"HEAD|ORIG_HEAD|config|index|shallow|packed-refs|refs/heads/(?:main|master)"
    rf"|logs/HEAD|logs/refs/heads/(?:main|master)"
    rf"|objects/[0-9a-f]{{2}}/(?:[0-9a-f]{{38}}|[0-9a-f]{{62}})|objects/pack/pack-{_HEX}\.(?:pack|idx|rev)"
)
_FOLDERS = re.compile(
    r"refs|refs/heads|refs/tags|logs|logs/refs|logs/refs/heads|objects|objects/(?:info|pack|[0-9a-f]{2})"
)


def _names(found: Found) -> Iterator[_Said]:
    for name in found.names:
        where = f".git/{name.path}"
        if name.kind == "other":
            message = "is neither a file nor a folder"
            yield _Said(rule="seal.name", where=where, message=message)
        elif not (_FOLDERS if name.kind == "folder" else _NAMES).fullmatch(name.path):
            message = f"no sealed repository has this {name.kind}"
            yield _Said(rule="seal.name", where=where, message=message)
        elif name.kind == "file" and not _kept(found, name.path):
            message = f"is too large to be read ({name.size} bytes)"
            yield _Said(rule="seal.name", where=where, message=message)


def _kept(found: Found, path: str) -> bool:
    return path.startswith("objects/") or path in found.texts


# HEAD, refs and pseudo-refs.


def refs_of(texts: Mapping[str, bytes]) -> dict[str, str]:
    """Every ref in .git, loose ones first; a line of packed-refs that is none names itself."""
    refs: dict[str, str] = {}
    for line in texts.get("packed-refs", b"").decode("utf-8", "replace").splitlines():
        value, _, name = line.partition(" ")
        if not line.startswith("#"):
            refs[name or f"packed-refs: {line}"] = value
    for path, data in texts.items():
        if path.startswith("refs/"):
            refs[path] = data.decode("utf-8", "replace").rstrip("\n")
    return refs


def _head_and_refs(found: Found, base: str) -> Iterator[_Said]:
    refs = refs_of(found.texts)
    head = found.texts.get("HEAD", b"").decode("utf-8", "replace").removesuffix("\n")
    target = refs.get(head.removeprefix("ref: "), "") if head.startswith("ref: ") else head
    if target != base:
        message = f"HEAD is {target or 'at no commit'} ({head or 'empty'}), the base is {base}"
        yield _Said(rule="seal.head", where=".git/HEAD", message=message)
    for name, value in refs.items():
        if name not in BRANCHES:
            yield _Said(rule="seal.ref", where=f".git/{name}", message="is one ref too many")
        elif value != base:
            yield _Said(rule="seal.ref", where=f".git/{name}", message=f"is {value}, not the base")
    if len([n for n in refs if n in BRANCHES]) > 1:
        yield _Said(rule="seal.ref", where=".git/refs", message="there is more than one branch")
    before = found.texts.get("ORIG_HEAD")
    if before is not None and before.decode("utf-8", "replace") != f"{base}\n":
        yield _Said(rule="seal.ref", where=".git/ORIG_HEAD", message="isn't the base")
    comments = re.findall(rb"^#.*$", found.texts.get("packed-refs", b""), re.MULTILINE)
    if comments not in ([], [b"# pack-refs with: peeled fully-peeled sorted "]):
        yield _Said(rule="seal.ref", where=".git/packed-refs", message="has lines that aren't refs")


# Reflogs: written when a later step checks the base out again; nothing else may be said in them.


def _logs(found: Found, base: str) -> Iterator[_Said]:
    place = f"(?:HEAD|main|master|{re.escape(base)})"
    zero = "0" * len(base)
    line = re.compile(
        rf"(?:{zero}|{re.escape(base)}) {re.escape(base)} [^\n\t]*"
        rf"\t(?:checkout: moving from {place} to {place}|reset: moving to {place}|)"
    )
    for path, data in found.texts.items():
        if path.startswith("logs/"):
            lines = data.decode("utf-8", "replace").split("\n")
            if lines.pop() or not all(line.fullmatch(each) for each in lines):
                message = "tells of more than the base"
                yield _Said(rule="seal.log", where=f".git/{path}", message=message)


# Configuration.

_CONFIG = {
    "core.repositoryformatversion": "[01]",
    "core.filemode": "true|false",
    "core.bare": "false",
    "core.logallrefupdates": "true|false",
    "core.symlinks": "true|false",
    "core.ignorecase": "true|false",
    "core.precomposeunicode": "true|false",
    "extensions.objectformat": "sha1|sha256",
    "user.name": "[A-Za-z][A-Za-z .-]{0,60}",
    "user.email": r"[a-z][a-z.+-]{0,40}@[a-z][a-z.-]{0,60}",
    "commit.gpgsign": "false",
    "gc.auto": "[0-9]{1,6}",
    "pack.threads": "[0-9]{1,3}",
}


def _config(data: bytes) -> Iterator[_Said]:
    section = ""
    for number, raw in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        line = raw.strip()
        heading = re.fullmatch(r"\[([A-Za-z]+)\]", line)
        if heading:
            section = heading[1].lower()
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        allowed = _CONFIG.get(f"{section}.{key.lower()}")
        if line and not (equals and allowed and re.fullmatch(allowed, value)):
            message = f"line {number} isn't in the list of what may stand here: {line[:80]}"
            yield _Said(rule="seal.config", where=".git/config", message=message)


# History: whole, or cut off at the base under its own id.


def history_of(texts: Mapping[str, bytes], base: str) -> Literal["ancestors", "none"]:
    """Which history the repository keeps: `none` when .git/shallow cuts it off at the base."""
    return "none" if texts.get("shallow") == f"{base}\n".encode() else "ancestors"


def _history(found: Found) -> Iterator[_Said]:
    lines = found.texts.get("shallow", b"").decode("utf-8", "replace").splitlines()
    for line in lines:
        if line not in found.reachable or found.stored.get(line) != "commit":
            message = f"names {line[:64]!r}, which isn't a commit that the base reaches"
            yield _Said(rule="seal.history", where=".git/shallow", message=message)


# Objects: the set is what the base reaches.


def _objects(found: Found, base: str, ids: FixIds) -> Iterator[_Said]:
    for path, reason in found.damaged:
        yield _Said(rule="seal.store", where=f".git/{path}", message=reason)
    if found.stored.get(base) != "commit":
        message = f"the base commit {base or '(unknown)'} isn't in the repository"
        yield _Said(rule="seal.objects", where=".git/objects", message=message)
    extra = sorted(found.stored.keys() - found.reachable)
    for each in extra:
        whose = ", an object of the fix or of later history" if each in ids.whole else ""
        message = f"{found.stored[each]} {each} isn't reached by the base{whose}"
        yield _Said(rule="seal.objects", where=".git/objects", message=message)
    for each in sorted(found.missing):
        message = f"{each} is missing: the base reaches it"
        yield _Said(rule="seal.objects", where=".git/objects", message=message)


# Index and tracked files: exactly the base's tree.


def _index(found: Found) -> Iterator[_Said]:
    where = ".git/index"
    try:
        index = parse_index(found.texts.get("index", b""), _id_bytes(found))
    except ValueError as error:
        yield _Said(rule="seal.index", where=where, message=str(error))
        return
    entries = {(e.path, e.mode, e.id) for e in index.entries}
    tree = {(path, mode, object_id) for path, (mode, object_id) in found.tree.items()}
    for path, mode, object_id in sorted(entries - tree):
        message = f"{path!r} ({mode} {object_id}) isn't so in the base"
        yield _Said(rule="seal.index", where=where, message=message)
    for path, _, _ in sorted(tree - entries):
        yield _Said(rule="seal.index", where=where, message=f"lacks {path!r} as the base has it")
    yield from _index_extras(index, found.reachable)


def _id_bytes(found: Found) -> int:
    return len(next(iter(found.stored), "0" * 40)) // 2


def _index_extras(index: Index, reachable: frozenset[str]) -> Iterator[_Said]:
    where = ".git/index"
    for entry in index.entries:
        if entry.flags or entry.stage:
            marks = ", ".join((*entry.flags, *([f"stage {entry.stage}"] if entry.stage else [])))
            yield _Said(rule="seal.index", where=where, message=f"{entry.path!r} is marked {marks}")
    for name in index.extensions:
        if name not in ("TREE", "EOIE", "IEOT"):
            message = f"has an extension {name!r}, which can hold more than the base"
            yield _Said(rule="seal.index", where=where, message=message)
    for each in sorted(index.cached_trees - reachable):
        message = f"remembers tree {each}, which the base doesn't reach"
        yield _Said(rule="seal.index", where=where, message=message)


def _tracked(found: Found) -> Iterator[_Said]:
    there = {f.path: f for f in found.files}
    for path, (mode, object_id) in sorted(found.tree.items()):
        file = there.get(path)
        if mode == "160000":
            continue
        if file is None:
            yield _Said(rule="seal.tracked", where=path, message="is missing; the base has it")
        elif object_id not in (file.id, file.text_id) or file.mode != mode:
            message = f"is {file.mode} {file.id}, the base has {mode} {object_id}"
            yield _Said(rule="seal.tracked", where=path, message=message)


# Ids of the fix, anywhere.


def _fix_ids(found: Found, ids: FixIds) -> Iterator[_Said]:
    for name in found.names:
        where = f".git/{name.path}"
        if ids.named_in(name.path):
            yield _Said(rule="seal.fix-id", where=where, message="its name is an id of the fix")
        for each in sorted(ids.in_bytes(found.texts.get(name.path, b""))):
            yield _Said(rule="seal.fix-id", where=where, message=f"holds {each}, an id of the fix")
    for each in sorted(ids.in_ancestors):
        message = f"the base's ancestors hold {each}, which the fix or the hidden tests make"
        yield _Said(rule="seal.fix-history", where=".git/objects", message=message)


# Files beside the repository.


def _files(found: Found, ids: FixIds) -> Iterator[_Said]:
    for path in found.nested:
        yield _Said(rule="seal.nested", where=path, message="another repository in the checkout")
    for file in found.files:
        own = found.tree.get(file.path)
        if own is not None and own[1] in (file.id, file.text_id):
            continue
        if file.holds:
            message = f"is a {file.holds} of git objects"
            yield _Said(rule="seal.nested", where=file.path, message=message)
        if ids.is_blob(file.id) or ids.is_blob(file.text_id):
            message = f"is {file.id}, which the fix or later history makes"
            yield _Said(rule="seal.fix-file", where=file.path, message=message)


def _shortened(said: Iterable[_Said]) -> Iterator[_Said]:
    """At most twenty findings a rule, then one that counts the rest."""
    counts: dict[str, int] = {}
    for each in said:
        counts[each.rule] = counts.get(each.rule, 0) + 1
        if counts[each.rule] <= _LIST_AT_MOST:
            yield each
    for rule, count in counts.items():
        if count > _LIST_AT_MOST:
            message = f"and {count - _LIST_AT_MOST} more of this kind"
            yield _Said(rule=rule, where="", message=message)


def _proof(found: Found, expected: Expected, ids: FixIds) -> Proof:
    sealed = found.repository != "absent"
    forbidden = expected.forbidden
    ordered = sorted(found.stored)
    return Proof(
        base_commit=expected.base,
        history=history_of(found.texts, expected.base) if sealed else "absent",
        head=found.texts.get("HEAD", b"").decode("utf-8", "replace").strip(),
        refs=dict(sorted(refs_of(found.texts).items())),
        objects=len(ordered),
        objects_blake3=digest.of_text("".join(f"{each}\n" for each in ordered)),
        names=tuple(sorted({_plain_name(n.path) for n in found.names if n.kind != "folder"})),
        tracked_files=len(found.tree),
        other_files=len({f.path for f in found.files} - found.tree.keys()),
        bytes_read=sum(f.size for f in found.files) + sum(n.size for n in found.names),
        forbidden_ids={
            "searched": len(ids),
            "patches": len(forbidden.after) + len(forbidden.prefixes),
            "upstream": len(forbidden.later),
        },
    )


def _plain_name(path: str) -> str:
    # Packs are named after their bytes, which no part of the proof depends on.
    return re.sub(r"^objects/(?:[0-9a-f]{2}/.*|pack/pack-.*(\.\w+))$", r"objects/*\1", path)
