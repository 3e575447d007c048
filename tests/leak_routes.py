"""Ways to leave a fix in an image outside a checkout's repository, each a few files of a layer."""

import bz2
import gzip
import io
import lzma
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tests.seal_routes import ENV, TOKENS, Site, Upstream, git

Files = Mapping[str, bytes]
FIX = TOKENS.encode()


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Files that leak, the rule that must name them, and the place that must be named."""

    files: Callable[[Upstream], Files]
    rule: str
    place: str


def tar_of(files: Files, links: Mapping[str, str] | None = None) -> bytes:
    """A tar of files; `links` are hard links to other members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def zip_of(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def deb_of(files: Files) -> bytes:
    """A Debian package with these files."""
    data = lzma.compress(tar_of(files))
    parts = {"debian-binary": b"2.0\n", "data.tar.xz": data}
    return b"!<arch>\n" + b"".join(
        b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), 0, 0, 0, b"100644", len(content))
        + content
        + b"\n" * (len(content) % 2)
        for name, content in parts.items()
    )


def class_of(*constants: str) -> bytes:
    """The beginning of a class file: its constant pool, with these texts."""
    texts = [text.encode() for text in constants]
    pool = b"".join(b"\1" + len(text).to_bytes(2, "big") + text for text in texts)
    return b"\xca\xfe\xba\xbe\0\0\0\x3d" + (len(texts) + 1).to_bytes(2, "big") + pool


COMPILED = class_of(
    "acme/parser/TokenReader",
    "java/lang/Object",
    "readAllTokens",
    "()Ljava/util/List;",
    "skipBlanksBefore",
    "quotedOrPlain",
    "a quote in this line is never closed",
    "tokens.kt",
)


def tree(folder: Path, name: str) -> Files:
    """Every file below a folder, under another name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def _cloned(upstream: Upstream, name: str, *options: str) -> Files:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "clone"
        source = f"file://{upstream.folder}"
        git(Path(scratch), "clone", "-q", *options, source, str(place))
        return tree(place, name)


def _bundle(upstream: Upstream) -> bytes:
    command = ["git", "bundle", "create", "-q", "-", "--all"]
    return subprocess.run(
        command, cwd=upstream.folder, env=ENV, check=True, capture_output=True
    ).stdout


def _pack(upstream: Upstream) -> bytes:
    return Site(folder=upstream.folder, upstream=upstream).pack()


def _reversed(upstream: Upstream) -> bytes:
    revs = (upstream.fix, upstream.base)
    return git(upstream.folder, "diff", *revs).encode() + b"\n"


def _one(place: str, content: bytes, rule: str = "leak/file", inside: str = "") -> Leak:
    return Leak(files=lambda _: {place: content}, rule=rule, place=f"/{place}{inside}")


def _made(place: str, make: Callable[[Upstream], bytes], rule: str) -> Leak:
    return Leak(files=lambda upstream: {place: make(upstream)}, rule=rule, place=f"/{place}")


_PART = b"// another file\n" + b"\n".join(b"    " + line for line in FIX.split(b"\n")[6:16])
_SOURCES = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n", "acme/tokens.kt": FIX}

LEAKS: Mapping[str, Leak] = {
    "the fixed file": _one("opt/a/tokens.kt", FIX),
    "the fixed file under another name": _one("opt/a/notes", FIX),
    "the fixed file as Windows writes it": _one("opt/a/win.kt", FIX.replace(b"\n", b"\r\n")),
    "a part of it, indented": _one("opt/a/part.md", _PART, "leak/lines"),
    "a part of it in a jar": _one(
        "opt/m2/part.jar", zip_of({"a/part.kt": _PART}), "leak/lines", "!a/part.kt"
    ),
    "a part of it in a log": _one(
        "var/log/build.log.gz", gzip.compress(b"x\n" * 999 + _PART), "leak/lines"
    ),
    "in one line of a bundle of scripts": _one(
        "opt/a/bundle.js", b";".join(line.strip() for line in FIX.split(b"\n")), "leak/lines"
    ),
    "a jar of sources": _one("opt/m2/a-sources.jar", zip_of(_SOURCES), inside="!acme/tokens.kt"),
    "a jar that isn't compressed": _one(
        "opt/m2/stored.jar", zip_of(_SOURCES, zipfile.ZIP_STORED), inside="!acme/tokens.kt"
    ),
    "a jar in a jar": _one(
        "opt/m2/fat.jar",
        zip_of({"lib/a-sources.jar": zip_of(_SOURCES)}),
        inside="!lib/a-sources.jar!acme/tokens.kt",
    ),
    "a tar in a gzip file": _one(
        "opt/cache/src.tgz", gzip.compress(tar_of(_SOURCES)), inside="!acme/tokens.kt"
    ),
    "a bzip2 file": _one("opt/cache/tokens.bz2", bz2.compress(FIX)),
    "an xz file": _one("opt/cache/tokens.xz", lzma.compress(FIX)),
    "a zstandard file": _one("opt/cache/tokens.zst", zstandard.compress(FIX)),
    "a tar": _one("opt/cache/src.tar", tar_of(_SOURCES), inside="!acme/tokens.kt"),
    "a Debian package": _one(
        "var/cache/apt/archives/a.deb", deb_of(_SOURCES), inside="!data.tar.xz!acme/tokens.kt"
    ),
    "build output of the fixed tree": _one(
        "home/checkout2/build/TokenReader.class", COMPILED, "leak/compiled"
    ),
    "a jar of build output": _one(
        "root/.m2/a.jar",
        zip_of({"acme/parser/TokenReader.class": COMPILED}),
        "leak/compiled",
        "!acme/parser/TokenReader.class",
    ),
    "the reversed fix": _made("tmp/bug.patch", _reversed, "leak/lines"),
    "the solution": _made("solution/fix.patch", lambda up: up.fix_patch, "leak/lines"),
    "a bundle": _made("opt/upstream.bundle", _bundle, "leak/pack"),
    "a bundle in a zip": Leak(
        files=lambda up: {"opt/b.zip": zip_of({"up.bundle": _bundle(up)})},
        rule="leak/pack",
        place="/opt/b.zip!up.bundle",
    ),
    "a pack alone": _made("opt/objects.bin", _pack, "leak/pack"),
    "a clone": Leak(
        files=lambda up: _cloned(up, "opt/clone"), rule="leak/repository", place="/opt/clone/.git"
    ),
    "a bare clone": Leak(
        files=lambda up: _cloned(up, "opt/parser.git", "--bare"),
        rule="leak/repository",
        place="/opt/parser.git",
    ),
    "a shallow clone of the newest commit": Leak(
        files=lambda up: _cloned(up, "opt/newest", "--depth=1"),
        rule="leak/repository",
        place="/opt/newest/.git",
    ),
    "loose objects in a store elsewhere": Leak(
        files=lambda up: {
            name: content
            for name, content in tree(up.folder / ".git", "opt/store").items()
            if name.startswith("opt/store/objects/")
        },
        rule="leak/repository",
        place="/opt/store",
    ),
    "the checkout's own repository before it was sealed": Leak(
        files=lambda up: _cloned(up, "home/checkout"),
        rule="leak/repository",
        place="/home/checkout/.git",
    ),
}


def layers_of(names: Sequence[str], upstream: Upstream) -> Files:
    """The files of these leaks together."""
    return {p: c for name in names for p, c in LEAKS[name].files(upstream).items()}
