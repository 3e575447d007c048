"""Verifying: every byte of a released file counts, and what differs is named."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kbench_build import digest
from kbench_build.errors import KbenchError
from kbench_build.model import Finding, Report
from kbench_build.rim import archive
from kbench_build.rules import findings
from kbench_build.rules.checksums import sums_text
from kbench_build.rules.images import LABEL_RECIPE
from kbench_build.steps import verify as verify_step
from tests.release_kit import ADDER, TEXT, Kit, errors_of, make_kit, read_lock, rewrite, verify

TARBALL = "demo-1.0.0.tar.zst"
RELEASED = (
    TARBALL,
    "lock.json",
    "CHANGELOG.md",
    "changes.json",
    "README.md",
    "B3SUMS",
    "SHA256SUMS",
)

# A change of one member: its header and content before, what they become, or None to drop it.
Change = Callable[[tarfile.TarInfo, bytes], tuple[tarfile.TarInfo, bytes] | None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_kit(tmp_path / "set").released()


def failed(checked: Report) -> list[Finding]:
    assert not checked.ok
    return errors_of(checked)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    rewrite(path, bytes(data))


# One byte of a released file.


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_changed_byte_is_blamed_on_its_file(folder: Path, name: str, place: str) -> None:
    size = (folder / name).stat().st_size
    flip(folder / name, {"first": 0, "middle": size // 2, "last": size - 1}[place])
    found = failed(verify(folder))
    assert {f.file for f in found} == {name}


@pytest.mark.parametrize("name", ["B3SUMS", "SHA256SUMS"])
def test_any_changed_byte_of_a_checksum_file_is_blamed_on_it(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for at in range(len(whole)):
        flip(folder / name, at)
        assert {f.file for f in verify_step._checksum_findings(folder)} == {name}, at
        rewrite(folder / name, whole)


@pytest.mark.parametrize("name", RELEASED)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    found = failed(verify(folder))
    assert {f.file for f in found} == {name}
    assert any("missing" in f.message for f in found)


def test_a_file_too_many_is_a_warning(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    checked = verify(folder)
    assert checked.ok
    assert [(f["severity"], f["file"]) for f in checked.data["findings"]] == [
        ("warning", "notes.txt")
    ]


def test_a_moved_and_renamed_release_verifies(folder: Path, tmp_path: Path) -> None:
    moved = shutil.move(folder, tmp_path / "download (1)")
    checked = verify(Path(moved))
    assert checked.ok
    assert "demo-1.0.0 is whole: 2 tasks" in checked.summary


def test_verifying_needs_the_release_folder_alone(folder: Path, tmp_path: Path) -> None:
    moved = Path(shutil.move(folder, tmp_path / "alone"))
    shutil.rmtree(tmp_path / "set")
    assert verify(moved).ok


def test_verifying_writes_nothing(folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    verify(folder)
    assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == before


def test_what_is_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="isn't a folder"):
        verify(tmp_path / "gone")


# The tarball, made again with something else in it; then every checksum is made to fit.


def repack(
    folder: Path, change: Change, extra: tuple[tarfile.TarInfo, bytes] | None = None
) -> None:
    """Change members of the tarball, and let lock and checksum files know the new tarball."""
    plain = zstandard.ZstdDecompressor().stream_reader((folder / TARBALL).open("rb"))
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=plain, mode="r|") as old,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for info in old:
            file = old.extractfile(info) if info.isreg() else None
            item = change(info, file.read() if file else b"")
            if item:
                _put(new, *item)
        if extra:
            _put(new, *extra)
    replace_tarball(folder, zstandard.ZstdCompressor().compress(out.getvalue()))


def _put(tar: tarfile.TarFile, info: tarfile.TarInfo, data: bytes) -> None:
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data) if info.isreg() else None)


def replace_tarball(folder: Path, data: bytes) -> None:
    rewrite(folder / TARBALL, data)
    lock = json.loads((folder / "lock.json").read_bytes())
    sums = sums_of(data)
    stream = zstandard.ZstdDecompressor().stream_reader(data).read()
    lock["archive"] |= {
        "blake3": sums["B3SUMS"],
        "sha256": sums["SHA256SUMS"],
        "size": len(data),
        "tar": digest.of_bytes(stream),
        "tar_size": len(stream),
    }
    rewrite_lock(folder, lock)


def sums_of(data: bytes) -> Mapping[str, str]:
    import hashlib

    return {"B3SUMS": digest.of_bytes(data), "SHA256SUMS": hashlib.sha256(data).hexdigest()}


def rewrite_lock(folder: Path, lock: Any) -> None:
    """Write another lock, and checksum files that fit."""
    rewrite(folder / "lock.json", digest.canonical_json(lock))
    names = set(RELEASED) - {"B3SUMS", "SHA256SUMS"}
    for sums in ("B3SUMS", "SHA256SUMS"):
        digests = {n: sums_of((folder / n).read_bytes())[sums] for n in names}
        rewrite(folder / sums, sums_text(digests).encode())


def keep(info: tarfile.TarInfo, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return info, data


def only(name: str, change: Change) -> Change:
    def changed(info: tarfile.TarInfo, data: bytes) -> tuple[tarfile.TarInfo, bytes] | None:
        return change(info, data) if info.name == f"demo-1.0.0/{name}" else (info, data)

    return changed


def test_a_tarball_packed_again_unchanged_verifies(folder: Path) -> None:
    repack(folder, keep)
    assert verify(folder).ok


def test_one_changed_byte_of_a_member_is_blamed_on_the_member(folder: Path) -> None:
    name = f"tasks/{ADDER}/tests/test.sh"
    repack(folder, only(name, lambda info, data: (info, b"E" + data[1:])))
    found = failed(verify(folder))
    members = {(f.file, f.where) for f in found if f.rule == "verify/member"}
    assert members == {(TARBALL, f"demo-1.0.0/{name}")}
    assert {f.rule for f in found} == {"verify/member", "verify/harbor"}


def test_a_missing_member_is_named(folder: Path) -> None:
    repack(folder, only("LICENSE", lambda *_: None))
    (found,) = failed(verify(folder))
    assert (found.where, found.message) == ("demo-1.0.0/LICENSE", "is missing")


def test_an_extra_member_is_named(folder: Path) -> None:
    extra = tarfile.TarInfo(f"demo-1.0.0/tasks/{ADDER}/tests/extra.sh")
    repack(folder, keep, (extra, b"exit 0\n"))
    found = failed(verify(folder))
    assert any(f.where.endswith("extra.sh") and "no list" in f.message for f in found)


def test_a_changed_mode_is_named(folder: Path) -> None:
    def run_bit(info: tarfile.TarInfo, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
        info.mode = 0o755
        return info, data

    repack(folder, only(f"tasks/{ADDER}/tests/test.sh", run_bit))
    (found,) = failed(verify(folder))
    assert "has mode 100755; the lock says 100644" in found.message


def test_a_link_to_another_file_is_named(folder: Path) -> None:
    def elsewhere(info: tarfile.TarInfo, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
        info.linkname = "test.sh"
        return info, data

    repack(folder, only(f"tasks/{TEXT}/tests/latest.json", elsewhere))
    assert any(f.where.endswith("latest.json") for f in failed(verify(folder)))


def test_a_member_twice_is_named(folder: Path) -> None:
    repack(folder, keep, (tarfile.TarInfo("demo-1.0.0/LICENSE"), b"Apache License 2.0\n"))
    assert [f.message for f in failed(verify(folder))] == ["is there twice"]


def test_a_member_in_another_folder_is_named(folder: Path) -> None:
    repack(folder, keep, (tarfile.TarInfo("other/LICENSE"), b""))
    (found,) = failed(verify(folder))
    assert "lies outside the folder demo-1.0.0/" in found.message


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_tarball_is_a_finding_about_the_tarball(folder: Path, share: float) -> None:
    data = (folder / TARBALL).read_bytes()
    rewrite(folder / TARBALL, data[: int(len(data) * share)])
    found = failed(verify(folder))
    assert {f.file for f in found} == {TARBALL}


def test_a_tarball_that_unpacks_without_end_is_stopped(folder: Path) -> None:
    bomb = tarfile.TarInfo("demo-1.0.0/bomb")
    repack(folder, keep, (bomb, bytes(50_000_000)))
    lock = json.loads((folder / "lock.json").read_bytes())
    lock["archive"]["tar_size"] = 0
    rewrite_lock(folder, lock)
    found = failed(verify(folder))
    assert any("unpacks to more bytes" in f.message for f in found)


@pytest.mark.parametrize("key", ["tar", "blake3", "sha256", "size"])
def test_a_tarball_that_isnt_the_locks_is_caught_by_any_of_its_digests(
    folder: Path, key: str
) -> None:
    found = with_lock(
        folder, lambda v: v["archive"].update({key: 7 if key == "size" else "0" * 64})
    )
    assert {(f.rule, f.file) for f in found} == {("verify/archive", TARBALL)}


# The lock.


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "changes.json"])
def test_a_document_changed_together_with_its_checksums_is_caught(folder: Path, name: str) -> None:
    rewrite(folder / name, (folder / name).read_bytes() + b" ")
    rewrite_lock(folder, json.loads((folder / "lock.json").read_bytes()))
    assert [(f.rule, f.file) for f in failed(verify(folder))] == [("verify/document", name)]


def with_lock(folder: Path, change: Callable[[Any], object]) -> list[Finding]:
    lock = json.loads((folder / "lock.json").read_bytes())
    change(lock)
    rewrite_lock(folder, lock)
    return failed(verify(folder))


LIES: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "task digest": (lambda v: v["tasks"][0].update(digest="0" * 64), "tasks[0].digest"),
    "base digest": (lambda v: v["bases"][0].update(digest="0" * 64), "bases[0].digest"),
    "content": (lambda v: v.update(content="0" * 64), "content"),
    "harbor task": (lambda v: v["tasks"][1].update(harbor="sha256:0"), "tasks[1].harbor"),
    "harbor dataset": (lambda v: v.update(harbor="sha256:0"), "harbor"),
    "verifier": (lambda v: v["verifier"].update(digest="0" * 64), "verifier.digest"),
    "whose verifier": (lambda v: v["tasks"][0].update(verifier="shared"), "tasks[0].verifier"),
    "evidence failed": (
        lambda v: v["tasks"][0]["evidence"]["seal"].update(ok=False),
        "tasks[0].evidence.seal",
    ),
    "evidence gone": (
        lambda v: v["tasks"][0]["evidence"].pop("selfcheck"),
        "tasks[0].evidence.selfcheck",
    ),
    "task left out": (lambda v: v["tasks"].pop(), "files"),
    "task twice": (lambda v: v["tasks"].append(v["tasks"][0]), "tasks"),
    "file twice": (lambda v: v["files"].append(v["files"][0]), "files"),
    "document": (lambda v: v["documents"].pop("README.md"), "documents"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lock_that_lies_is_caught_at_the_key(folder: Path, lie: str) -> None:
    change, where = LIES[lie]
    found = with_lock(folder, change)
    assert where in {f.where for f in found if f.file == "lock.json"}


def test_a_release_that_proves_less_than_it_requires_fails(folder: Path) -> None:
    found = with_lock(folder, lambda v: v["tasks"][1]["evidence"]["seal"].update(ok=False))
    assert [f.rule for f in found] == ["verify/policy"]
    assert TEXT in found[0].message


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (lambda v: v["tasks"][1].update(bases=[7]), "tasks[1].bases[0]", "must be a string, not 7"),
        (lambda v: v["files"][0].update(size=True), "files[0].size", "must be a whole number"),
        (lambda v: v["files"][0].update(mode="040000"), "files[0].mode", "must be one of 100644"),
        (lambda v: v.pop("content"), "content", "is missing"),
        (lambda v: v.update(more=1), "more", "is no key here"),
        (lambda v: v.update(schema=99), "schema", "use a newer kbench-build"),
    ],
)
def test_a_lock_of_another_form_is_named_with_the_path(
    folder: Path, change: Callable[[Any], object], where: str, message: str
) -> None:
    (found,) = with_lock(folder, change)
    assert (found.file, found.where) == ("lock.json", where)
    assert message in found.message


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{", b"[" * 100_000])
def test_a_lock_that_isnt_json_is_a_finding(folder: Path, data: bytes) -> None:
    rewrite(folder / "lock.json", data)
    assert {f.file for f in failed(verify(folder))} == {"lock.json"}


def test_changes_about_another_release_are_caught(folder: Path) -> None:
    changes = json.loads((folder / "changes.json").read_bytes())
    changes["version"] = "9.9.9"
    data = digest.canonical_json(changes)
    rewrite(folder / "changes.json", data)
    lock = json.loads((folder / "lock.json").read_bytes())
    lock["documents"]["changes.json"] = digest.of_bytes(data)
    rewrite_lock(folder, lock)
    (found,) = failed(verify(folder))
    assert (found.file, found.rule) == ("changes.json", "verify/changes")


@pytest.mark.parametrize("file", ["/etc/passwd", "../x", "gone.tar.zst"])
def test_a_lock_cant_send_the_check_elsewhere(folder: Path, file: str) -> None:
    found = with_lock(folder, lambda v: v["archive"].update(file=file))
    assert any(f.message == "the tarball is missing" for f in found)


# Images.


def labels_of(folder: Path) -> dict[str, dict[str, str]]:
    lock = read_lock(folder)
    recipes = {b.image: b.recipe for b in lock.bases} | {t.image: t.recipe for t in lock.tasks}
    return {image: {LABEL_RECIPE: recipe} for image, recipe in recipes.items()}


def test_images_made_from_the_locks_recipes_pass(folder: Path) -> None:
    labels = labels_of(folder)
    assert len(labels) == 5
    checked = verify(folder, labels=labels.get)
    assert checked.ok
    assert not checked.data["findings"]


def test_an_image_made_from_another_recipe_is_named(folder: Path) -> None:
    labels = labels_of(folder)
    labels[f"kotlin-bench/task:{ADDER}"] = {LABEL_RECIPE: "0" * 64}
    labels["kotlin-bench/adder:jdk17"] = {}
    found = failed(verify(folder, labels=labels.get))
    assert {f.file for f in found} == {
        "kotlin-bench/adder:jdk17",
        f"kotlin-bench/task:{ADDER}",
    }


def test_an_image_that_isnt_there_is_only_noted(folder: Path) -> None:
    checked = verify(folder, labels=lambda _: None)
    assert checked.ok
    noted = [findings.from_json(f) for f in checked.data["findings"]]
    assert {f.severity for f in noted} == {"note"}
    assert len(noted) == 5


def test_inputs_move_with_any_file_of_the_release(folder: Path) -> None:
    first = verify_step.inputs(folder)
    assert verify_step.inputs(folder) == first
    flip(folder / "README.md", 0)
    assert verify_step.inputs(folder) != first


def test_the_kit_is_read_by_the_archive_module(folder: Path) -> None:
    items = list(archive.read_archive(folder / TARBALL))
    assert isinstance(items[-1], archive.Stream)
    assert items[-1].blake3 == read_lock(folder).archive.tar


def test_a_kit_is_small_enough_to_verify_in_no_time(tmp_path: Path) -> None:
    kit: Kit = make_kit(tmp_path / "set")
    assert verify(kit.released()).seconds < 2
