"""A fix that can be had from an image's layers is found; what only looks like it isn't."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kbench_build.errors import EngineError, KbenchError
from kbench_build.model import Report, Suppression
from kbench_build.rim import layers
from kbench_build.rim.layer_scan import LayerContents, scan_layer
from kbench_build.rim.layers import LayerStore
from kbench_build.rim.matcher import Matcher
from kbench_build.steps.seal import seal
from tests.leak_routes import FIX, LEAKS, tar_of, tree, zip_of
from tests.seal_kit import (
    TASK,
    FolderImage,
    layer_id,
    rules,
    run_seal,
    said,
    saved_image,
    write_task,
)
from tests.seal_routes import Site, Upstream, git, make_upstream

EMPTY = tar_of({})
APP = "home/checkout"


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return make_upstream(tmp_path_factory.mktemp("upstream") / "parser")


@pytest.fixture(scope="session")
def checkout(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed checkout."""
    place = tmp_path_factory.mktemp("sealed") / "checkout"
    git(upstream.folder, "clone", "-q", str(upstream.folder), str(place))
    run_seal(place, upstream.base, "ancestors")
    return place


@pytest.fixture
def root(upstream: Upstream, checkout: Path, tmp_path: Path) -> Path:
    """A dataset with one task."""
    write_task(Site(folder=checkout, upstream=upstream), tmp_path)
    return tmp_path


@dataclass(kw_only=True)
class Layered(FolderImage):
    """An engine whose images share layers; `read` are the ids of those that were asked for."""

    images: Mapping[str, Sequence[bytes]]
    saved: list[tuple[str, ...]] = field(default_factory=list)

    def layers(self, image: str) -> Sequence[str]:
        return [layer_id(layer) for layer in self.images.get(image, ())]

    def save(self, images: Sequence[str]) -> Iterator[bytes]:
        self.saved.append(tuple(images))
        whole = saved_image(list(dict.fromkeys(x for i in images for x in self.images[i])))
        yield from (whole[at : at + 70_000] for at in range(0, len(whole), 70_000))


def image_of(checkout: Path, *lower: bytes) -> Layered:
    """An image of some layers and the sealed checkout on top of them."""
    top = tar_of(tree(checkout, "home/checkout"))
    return Layered(place=checkout, images={"image": [*lower, top]})


def judged(root: Path, engine: Layered, **more: Any) -> Report:
    return seal(root, TASK, engine=engine, image="image", inputs="", **more)


def spots(report: Report) -> set[tuple[str, str]]:
    return {(f["rule"], f["where"]) for f in report.data["findings"]}


# What is found, and what isn't.


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_in_a_layer_that_others_hide(
    name: str, root: Path, checkout: Path, upstream: Upstream
) -> None:
    leak = LEAKS[name]
    gone = tar_of(
        {f"{p.rpartition('/')[0]}/.wh.{p.rpartition('/')[2]}": b"" for p in leak.files(upstream)}
    )
    report = judged(root, image_of(checkout, tar_of(leak.files(upstream)), gone))
    assert not report.ok
    found = {where for rule, where in spots(report) if rule == leak.rule}
    assert any(where == leak.place or where.startswith(f"{leak.place}/") for where in found), said(
        report
    )
    assert all("(layer 1 of 3)" in f["message"] for f in report.data["findings"])


def test_a_sealed_checkout_on_a_clean_base_is_silent(root: Path, checkout: Path) -> None:
    base = tar_of(
        {"usr/lib/a.jar": zip_of({"A.class": b"\xca\xfe\xba\xbe" * 9}), "etc/a": b"x" * 99}
    )
    report = judged(root, image_of(checkout, base))
    assert report.ok, said(report)


def test_the_proof_names_what_was_searched(root: Path, checkout: Path) -> None:
    jar = zip_of({"A.class": b"\xca\xfe\xba\xbe" * 9, "B.class": b""})
    base = tar_of({"usr/lib/a.jar": jar, "usr/lib/b.7z": b"7z\xbc\xaf'\x1c" + bytes(200)})
    engine = image_of(checkout, base)
    proof = judged(root, engine).data["proof"]["image"]
    files = [path for path in checkout.rglob("*") if path.is_file()]
    assert proof == {
        "layers": engine.layers("image"),
        "files": 2 + len(files),
        "bytes": len(jar) + 206 + sum(path.stat().st_size for path in files),
        "members": 2,
        "unpacked_bytes": 36,
        "lines": proof["lines"],
        "words": proof["words"],
        "at_base": 0,
        "fixed_files": 1,
        "other_repositories": [],
        "left_out": {"7z archives": {"count": 1, "examples": ["usr/lib/b.7z"]}},
    }
    assert proof["lines"] > 10
    assert proof["words"] > 3
    assert json.loads(json.dumps(proof)) == proof


def test_what_the_base_holds_itself_is_no_mark(
    upstream: Upstream, checkout: Path, tmp_path: Path
) -> None:
    """A fix that writes again what stands elsewhere at the base."""
    text = (checkout / "src" / "parser.kt").read_bytes()
    assert b"fun parse() = 3" in text
    lines = b"".join(b"val value%d = someFunctionOf(the, parser, %d)\n" % (n, n) for n in range(5))
    for place in (tmp_path / "with", tmp_path / "without"):
        patch = b"--- /dev/null\n+++ b/src/copy.kt\n@@ -0,0 +1,5 @@\n" + b"".join(
            b"+" + line + b"\n" for line in lines.splitlines()
        )
        task = write_task(Site(folder=checkout, upstream=upstream), place)
        (task / "solution" / "fix.patch").write_bytes(patch)
        leaking = tar_of({"opt/other.kt": b"// another project\n" + lines})
        report = judged(place, image_of(checkout, leaking))
        assert rules(report) == {"leak/lines"}
        if place.name == "with":
            folder = tmp_path / "checkout"
            git(tmp_path, "clone", "-q", str(upstream.folder), str(folder))
            git(folder, "checkout", "-q", upstream.base)
            (folder / "src" / "first.kt").write_bytes(lines)
            git(folder, "add", "-A")
            git(folder, "commit", "-qm", "another base")
            base = git(folder, "rev-parse", "HEAD")
            run_seal(folder, base, "none")
            (task / "task.toml").write_text(f'[metadata.source]\nbase_commit = "{base}"\n')
            sound = judged(place, image_of(folder, leaking))
            assert sound.ok, said(sound)
            assert sound.data["proof"]["image"]["at_base"] > 4


def test_what_the_instruction_tells_is_no_mark(root: Path, checkout: Path) -> None:
    engine = image_of(checkout, tar_of({"opt/part": b"\n".join(FIX.split(b"\n")[6:16])}))
    assert rules(judged(root, engine)) == {"leak/lines"}
    (root / "tasks" / TASK / "instruction.md").write_bytes(b"Write this:\n\n" + FIX)
    assert judged(root, engine).ok


def test_a_line_or_two_by_chance_are_no_finding(root: Path, checkout: Path) -> None:
    line = b"        val tokens = mutableListOf<String>()\n"
    assert line in FIX
    names = b"TokenReader\0position\0"
    other = tar_of({"opt/other.kt": b"package other\n" + line, "opt/other.bin": names})
    assert judged(root, image_of(checkout, other)).ok


def test_names_that_a_large_file_holds_by_chance_are_no_finding(root: Path, checkout: Path) -> None:
    from tests.leak_routes import COMPILED

    small, large = (tar_of({"lib/modules": COMPILED + bytes(size)}) for size in (100, 9 << 20))
    assert rules(judged(root, image_of(checkout, small))) == {"leak/compiled"}
    assert judged(root, image_of(checkout, large)).ok


def test_a_repository_of_another_project_is_named_and_no_finding(
    root: Path, checkout: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    (other / "a").write_text("another project\n")
    git(other, "add", "a")
    git(other, "commit", "-qm", "a")
    git(other, "gc", "-q")
    report = judged(root, image_of(checkout, tar_of(tree(other, "opt/flutter"))))
    assert report.ok, said(report)
    assert report.data["proof"]["image"]["other_repositories"] == ["opt/flutter/.git"]


def test_a_finding_in_a_layer_can_be_answered_for_and_the_seal_cannot(
    root: Path, checkout: Path, upstream: Upstream
) -> None:
    engine = image_of(checkout, tar_of(LEAKS["a bundle"].files(upstream)))
    answers = [Suppression(rule="*", task=TASK, reason="another project's own bundle")]
    report = judged(root, engine, suppressions=answers)
    assert report.ok
    assert [s["reason"] for s in report.data["suppressed"]] == ["another project's own bundle"]
    write_task(Site(folder=checkout, upstream=upstream), root, base=upstream.ancestor)
    assert "seal.head" in rules(judged(root, engine, suppressions=answers))


def test_a_plain_task_without_repository_or_base(
    upstream: Upstream, checkout: Path, tmp_path: Path
) -> None:
    """The fixed tree in one layer, the reversed fix in a second, the broken tree on top."""
    task = write_task(Site(folder=checkout, upstream=upstream), tmp_path)
    (task / "task.toml").write_text('version = "1.0"\n')
    (task / "tests" / "test.patch").unlink()
    git(tmp_path, "clone", "-q", str(upstream.folder), str(tmp_path / "app"))
    git(tmp_path / "app", "checkout", "-q", upstream.fix)
    fixed = tree(tmp_path / "app", "home/checkout")
    clone = tar_of(fixed)
    plain = tar_of({p: c for p, c in fixed.items() if "/.git/" not in p})
    patch = tar_of(LEAKS["the reversed fix"].files(upstream))
    git(tmp_path / "app", "checkout", "-q", upstream.base)
    broken = tmp_path / "broken"
    broken.mkdir()
    for name, content in tree(tmp_path / "app", "x").items():
        if "/.git/" not in name:
            (broken / name[2:]).parent.mkdir(parents=True, exist_ok=True)
            (broken / name[2:]).write_bytes(content)
    top = tar_of(tree(broken, "home/checkout"))
    found = {}
    for name, lower in {"clone": clone, "plain": plain, "patch": patch, "none": EMPTY}.items():
        engine = Layered(place=broken, images={"image": [lower, top]})
        found[name] = spots(judged(tmp_path, engine))
    assert "leak/repository" in {rule for rule, _ in found["clone"]}
    assert ("leak/file", "/home/checkout/src/tokens.kt") in found["plain"]
    assert found["patch"] == {("leak/lines", "/tmp/bug.patch")}
    assert found["none"] == set()
    whole = Layered(place=tmp_path / "app", images={"image": [tar_of(tree(tmp_path / "app", APP))]})
    report = judged(tmp_path, whole)
    assert rules(report) == {"leak/repository", "seal.base"}
    assert not report.ok


# Each layer is read once.


def other_task(root: Path, name: str, upstream: Upstream, checkout: Path) -> None:
    write_task(Site(folder=checkout, upstream=upstream), root / "scratch")
    (root / "scratch" / "tasks" / TASK).rename(root / "tasks" / name)
    line = b"val only_%s = somethingOf(the, other, fix)" % name.encode()
    patch = b"--- /dev/null\n+++ b/src/%s.kt\n@@ -0,0 +1,3 @@\n+%s\n+// %s\n+/* %s */\n"
    path = root / "tasks" / name / "solution" / "fix.patch"
    path.write_bytes(patch % (name.encode(), line, line, line))


def test_a_layer_is_read_once_for_all_tasks_that_stand_on_it(
    root: Path, checkout: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["b_b-1", "c_c-2"]
    for name in names:
        other_task(root, name, upstream, checkout)
    patches = [p.read_bytes() for p in sorted((root / "tasks").glob("?_?-?/solution/fix.patch"))]
    base = tar_of({"opt/one": patches[0], "usr/lib/big": b"x" * 100_000})
    tops = [tar_of({"home/own": name.encode()}) for name in ("image", *names)]
    engine = Layered(
        place=checkout,
        images={i: [base, top] for i, top in zip(("image", *names), tops, strict=True)},
    )
    scanned: list[int] = []

    def counted(data: memoryview, matcher: Matcher, **more: Any) -> LayerContents:
        scanned.append(len(data))
        return scan_layer(data, matcher, **more)

    monkeypatch.setattr(layers, "scan_layer", counted)
    assert judged(root, engine, others={name: name for name in names}).ok
    assert len(scanned) == 4
    assert engine.saved == [("image", *names)]
    others = {name: name for name in ("b_b-1", TASK)}
    for name in names:
        report = seal(root, name, engine=engine, image=name, inputs="", others=others)
        assert report.ok is (name != "b_b-1"), said(report)
    assert len(scanned) == 4


def test_another_fix_reads_a_layer_again_and_a_killed_run_keeps_what_it_had(
    root: Path, checkout: Path
) -> None:
    lower = [tar_of({"a": bytes(200)}), tar_of({"b": bytes(4 << 20)})]
    engine = image_of(checkout, *lower)

    class Killed(Layered):
        def save(self, images: Sequence[str]) -> Iterator[bytes]:
            whole = b"".join(super().save(images))
            yield whole[: whole.index(lower[1]) + (3 << 20)]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(root, Killed(place=checkout, images=engine.images))
    kept = sorted((root / ".kbench" / "layers").glob("*.contents.zst"))
    assert [p.name.split(".")[0] for p in kept] == [layer_id(lower[0])[7:]]
    assert judged(root, engine).ok
    assert judged(root, engine).ok
    assert len(engine.saved) == 1
    (root / "tasks" / TASK / "instruction.md").write_bytes(FIX)
    assert judged(root, engine).ok
    assert len(engine.saved) == 2


def test_two_processes_never_read_a_layer_at_the_same_time(root: Path, checkout: Path) -> None:
    """Two at once: the second waits, and finds everything there."""
    engine = image_of(checkout, tar_of({"a": bytes(200)}))
    reports: list[Report] = []
    threads = [
        threading.Thread(target=lambda: reports.append(judged(root, engine))) for _ in range(2)
    ]
    with LayerStore(root).held():
        for thread in threads:
            thread.start()
        threads[0].join(0.5)
        assert not reports
        assert not engine.saved
    for thread in threads:
        thread.join()
    assert [report.ok for report in reports] == [True, True]
    assert len(engine.saved) == 1


# The archives that engines give.


def test_the_archive_of_a_newer_engine_is_read_as_well(
    root: Path, checkout: Path, upstream: Upstream
) -> None:
    """An OCI layout: blobs called after their digests, layers compressed or not."""
    two = [tar_of(LEAKS["the fixed file"].files(upstream)), tar_of({"b": bytes(300)})]
    blobs = [zstandard.compress(two[0]), two[1], b'{"architecture":"amd64"}']

    class Newer(Layered):
        def save(self, _images: Sequence[str]) -> Iterator[bytes]:
            named = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in blobs}
            yield tar_of({"oci-layout": b"{}", "index.json": b"{}", **named})

    engine = Newer(place=checkout, images={"image": two})
    assert spots(judged(root, engine)) == {("leak/file", "/opt/a/tokens.kt")}


def test_an_archive_that_lacks_a_layer_or_breaks_off_is_an_engine_error(
    root: Path, checkout: Path
) -> None:
    two = [tar_of({"a": bytes(200)}), tar_of({"b": bytes(300)})]

    class Short(Layered):
        def save(self, _images: Sequence[str]) -> Iterator[bytes]:
            yield saved_image(two[:1])

    with pytest.raises(EngineError, match="without its layer sha256:"):
        judged(root, Short(place=checkout, images={"image": two}))

    class Broken(Layered):
        def save(self, _images: Sequence[str]) -> Iterator[bytes]:
            yield saved_image(two)[:1300]

    with pytest.raises(EngineError, match="can't be read"):
        judged(root, Broken(place=checkout, images={"image": two}))


def test_what_was_kept_and_is_damaged_is_named(root: Path, checkout: Path) -> None:
    engine = image_of(checkout)
    judged(root, engine)
    for path in (root / ".kbench" / "layers").glob("*.contents.zst"):
        path.write_bytes(b"not this")
    with pytest.raises(KbenchError, match=r"can't be read; remove .*layers"):
        judged(root, engine)
