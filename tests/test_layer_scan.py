"""What a layer holds is read whole, whoever made it; hostile ones cost bounded time and memory."""

import gzip
import io
import os
import random
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build.rim import tar_members, zip_members
from kbench_build.rim.layer_scan import LEAST_CONTENT, LayerContents, content_digest, scan_layer
from kbench_build.rim.matcher import CHUNK, MOST_AT_ONCE, Matcher, Span
from tests.leak_routes import tar_of, zip_of

TEXT = b"val secret = answerOf(42)"
OTHER = b"fun another(secret: Line)"
MATCHER = Matcher([TEXT, OTHER])


def scan(layer: bytes, room: int | None = None) -> LayerContents:
    return scan_layer(memoryview(layer), MATCHER, room=room)


def hits(layer: bytes) -> dict[bytes, set[int]]:
    return scan(layer).hits


def collect(found: list[tuple[Span, int]]) -> Callable[[Span, int], None]:
    return lambda span, number: found.append((span, number))


# The search.


def test_a_text_is_found_wherever_it_lies_in_a_large_file() -> None:
    for at in (0, 1, CHUNK - 30, CHUNK - 10, CHUNK, 2 * CHUNK - 1, 3 * CHUNK - len(TEXT)):
        content = bytearray(b"." * 3 * CHUNK)
        content[at : at + len(TEXT)] = TEXT
        found: list[tuple[Span, int]] = []
        span = Span(b"a", 0, len(content))
        MATCHER.search(memoryview(bytes(content)), [span], collect(found))
        assert found == [(span, 0)], at


def test_a_text_counts_only_inside_one_file() -> None:
    half = len(TEXT) // 2
    data = TEXT + TEXT
    found: list[int] = []
    spans = [Span(b"a", 0, half), Span(b"b", half, len(TEXT)), Span(b"c", len(TEXT) + 1, len(data))]
    MATCHER.search(memoryview(data), spans, lambda _, n: found.append(n))
    assert found == []


def test_without_texts_nothing_is_searched_but_files_are_told_apart() -> None:
    contents = scan_layer(memoryview(tar_of({"a": b"a" * 200})), Matcher(()))
    assert contents.places == [b"a"]
    assert bytes(contents.digests) == content_digest(b"a" * 200)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([TEXT, OTHER, b"x", b"\n"]), st.integers(0, 40)), max_size=9)
)
def test_it_finds_what_a_plain_search_finds(parts: list[tuple[bytes, int]]) -> None:
    content = b"".join(part + b"-" * gap for part, gap in parts)
    expected = {number for number, text in enumerate(MATCHER.texts) if text in content}
    assert hits(tar_of({"a": content})).get(b"a", set()) == expected


# Tars as they come.


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_that_tarfile_reads(form: int) -> None:
    long = "d/" * 40 + "name" * 12 if form == tarfile.USTAR_FORMAT else "d/" * 150 + "n" * 200
    names = ["a", "with space\nand line", "ünïcode", long, "./b", "c" * 99]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = number * 300
            archive.addfile(member, io.BytesIO(bytes([number]) * member.size))
        for kind, link in ((tarfile.SYMTYPE, "a"), (tarfile.LNKTYPE, "a"), (tarfile.DIRTYPE, "")):
            member = tarfile.TarInfo(f"k{kind.decode()}")
            member.type, member.linkname = kind, link
            archive.addfile(member)
    data = buffer.getvalue()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        known = [(m.name, m.size, m.offset_data) for m in archive]
    mine = [
        (m.name.decode().rstrip("/"), m.size, m.start)
        for m in tar_members.members(memoryview(data))
    ]
    assert mine == known


def test_a_tar_of_the_system_with_a_sparse_file_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50 << 20)
        file.seek(20 << 20)
        file.write(TEXT)
    (tmp_path / "after").write_bytes(OTHER)
    for form in ("gnu", "pax"):
        command = ["tar", "-S", f"--format={form}", "-cf", "-", "sparse", "after"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        found = hits(done.stdout)
        assert found == {b"sparse": {0}, b"after": {1}}, form


def test_whiteouts_links_and_odd_names_are_no_harm() -> None:
    files = {
        "d/.wh.gone": b"",
        "d/.wh..wh..opq": b"",
        "../../etc/passwd": TEXT,
        "/absolute": TEXT,
        "a\nb": TEXT,
        "\udcff\udcfe": TEXT,
        "x!y": TEXT,
        "": TEXT,
    }
    buffer = io.BytesIO(tar_of({}))
    with tarfile.open(fileobj=buffer, mode="w", errors="surrogateescape") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("hard")
        link.type, link.linkname = tarfile.LNKTYPE, "a\nb"
        archive.addfile(link)
    found = hits(buffer.getvalue())
    assert set(found) == {b"../../etc/passwd", b"/absolute", b"a\nb", b"\xff\xfe", b"x!y", b""}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:700],
        lambda data: data[:124] + b"77777777777\0" + data[136:],
        lambda data: data[:124] + b"not octal!!\0" + data[136:],
        lambda data: data[:124] + b"\xff" * 12 + data[136:],
        lambda data: data[:1024] + b"garbage" * 100,
    ],
)
def test_a_broken_layer_is_named(damage: Callable[[bytes], bytes]) -> None:
    contents = scan(damage(tar_of({"a": TEXT * 20, "b": OTHER})))
    assert [reason for reason in contents.left_out if reason.startswith("the rest of a layer: ")]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 4000), st.binary(max_size=12), st.sampled_from(["tar", "zip", "gz", "nested"])
)
def test_any_damage_ends_in_an_answer(at: int, junk: bytes, kind: str) -> None:
    inner = zip_of({"a": TEXT * 9, "b/c": os.urandom(200)})
    content = {
        "tar": tar_of({"x": TEXT * 9, "y": b"z" * 300}),
        "zip": inner,
        "gz": gzip.compress(inner),
        "nested": zip_of({"in.zip": inner, "in.tar": tar_of({"q": inner})}),
    }[kind]
    at %= len(content)
    damaged = content[:at] + junk + content[at + len(junk) :]
    contents = scan(tar_of({"damaged": damaged, "after": OTHER}))
    assert contents.hits[b"after"] == {1}
    scan(damaged)


# Archives.


def test_zips_of_all_kinds_are_read() -> None:
    files = {"a": TEXT, "b/c": OTHER * 50_000, "empty": b""}
    kinds = {
        "deflated": zip_of(files),
        "stored": zip_of(files, zipfile.ZIP_STORED),
        "begins otherwise": b"JM\1\0" + zip_of(files),
    }
    for name, content in kinds.items():
        contents = scan(tar_of({"x": content}))
        assert contents.hits[b"x!a"] == {0}, name
        assert contents.hits[b"x!b/c"] == {1}
        assert contents.members == 3
        assert contents.unpacked == sum(map(len, files.values()))
        assert not contents.left_out


def test_a_zip_with_64_bit_numbers_is_read() -> None:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w") as archive,
        archive.open("a", "w", force_zip64=True) as member,
    ):
        member.write(TEXT)
    assert hits(tar_of({"x": buffer.getvalue()}))[b"x!a"] == {0}
    # The same numbers in the directory, as tools write them for large archives.
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(66_000):
            archive.writestr(f"{number}", TEXT if number == 65_999 else b"")
    assert hits(tar_of({"x": many.getvalue()}))[b"x!65999"] == {0}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_rare_way_to_pack_is_named(method: int) -> None:
    contents = scan(tar_of({"x": zip_of({"a": TEXT * 99}, method)}))
    left = contents.left_out["members of archives packed in rare ways"]
    assert (left.count, left.examples) == (1, ("x!a",))


def test_an_encrypted_member_is_named() -> None:
    content = bytearray(zip_of({"a": TEXT}))
    content[content.index(b"PK\1\2") + 8] |= 1
    assert scan(tar_of({"x": bytes(content)})).left_out["encrypted members of archives"].count == 1


def test_archives_in_archives_are_opened_down_to_a_depth() -> None:
    content = TEXT * 20
    for _ in range(6):
        content = zip_of({"in": content}, zipfile.ZIP_STORED)
    contents = scan(tar_of({"x": zip_of({"in": content})}))
    assert [r for r in contents.left_out if "deep" in r]
    nested = gzip.compress(zip_of({"in": tar_of({"in": TEXT * 20})}))
    assert hits(tar_of({"x": nested}))[b"x!in!in"] == {0}


def test_a_packed_file_of_any_length_is_searched() -> None:
    noise = random.Random(1).randbytes(1 << 20)
    content = noise * 33 + TEXT + noise
    contents = scan(tar_of({"x": zip_of({"a": content}), "y": gzip.compress(content, 1)}))
    assert contents.hits[b"x!a"] == {0}
    assert contents.hits[b"y"] == {0}
    assert contents.unpacked == 2 * len(content)
    [left] = contents.left_out.values()
    assert left.examples == ("x!a", "y")


# Bombs, and what else shall cost much.


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    return b"".join([*(packer.compress(block) for _ in range(size >> 20)), packer.flush()])


def test_a_bomb_is_left_and_named_and_the_rest_is_read() -> None:
    began = time.monotonic()
    contents = scan(tar_of({"x": bomb(512 << 20), "after": TEXT}))
    reason = "the rest of archives that unpack to two hundred times their size"
    assert contents.left_out[reason].examples == ("x",)
    assert contents.hits[b"after"] == {0}
    assert contents.unpacked < 256 << 20
    assert time.monotonic() - began < 20


def test_overlapping_members_are_left_where_they_unpack_to_too_much() -> None:
    """One packed body, named by thousands of entries of the directory."""
    body = zip_of({"a": bytes(1 << 20)})
    start = body.index(b"PK\1\2")
    end = body.index(b"PK\5\6")
    directory = body[start:end] * 30_000
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 30_000, 30_000, len(directory), start, 0)
    contents = scan(tar_of({"x": body[:start] + directory + tail}), room=1 << 30)
    assert [r for r in contents.left_out if "unpack" in r]
    assert contents.unpacked <= 1 << 30


def test_a_million_entries_are_read_within_bounds() -> None:
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
    directory = (entry + b"a") * 1_000_000
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, len(directory), 30, 0)
    head = b"PK\3\4" + bytes(26)
    began = time.monotonic()
    contents = scan(tar_of({"x": head + directory + tail, "after": TEXT}), room=1 << 30)
    assert contents.hits[b"after"] == {0}
    assert contents.left_out
    assert time.monotonic() - began < 30


def test_a_file_of_nothing_but_matches_is_given_up_and_named() -> None:
    content = (TEXT * (2 * MOST_AT_ONCE))[: 8 << 20]
    began = time.monotonic()
    contents = scan(tar_of({"a": content, "b": OTHER}))
    assert contents.hits == {b"a": {0}, b"b": {1}}
    assert time.monotonic() - began < 20


_LARGE = """
import mmap, resource, sys
from kbench_build.rim.layer_scan import scan_layer
from kbench_build.rim.matcher import Matcher
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))
    with memoryview(data) as view:
        contents = scan_layer(view, Matcher([b"val secret = answerOf(42)"]))
        assert set(contents.hits) == {b"large", b"packed.zip", b"packed.zip!large"}
        assert contents.size > 1 << 29
"""


def test_half_a_gigabyte_takes_little_memory(tmp_path: Path) -> None:
    """A file of 500 MB, and one of 500 MB in a zip, with a limit on memory."""
    layer = tmp_path / "layer.tar"
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(500 << 20)
        file.seek(499 << 20)
        file.write(TEXT)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.write(tmp_path / "large", "large")
    command = ["tar", "-cf", str(layer), "large", "packed.zip"]
    subprocess.run(command, cwd=tmp_path, check=True)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(layer)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 60


def test_small_files_are_not_told_apart() -> None:
    contents = scan(tar_of({"a": b"a" * (LEAST_CONTENT - 1), "b": b"b" * LEAST_CONTENT}))
    assert contents.places == [b"b"]


def test_a_member_of_a_zip_that_lies_elsewhere_is_damaged() -> None:
    member = zip_members.ZipMember(b"a", 0, 8, 10, 10, 1 << 40)
    with pytest.raises(zip_members.UnreadError):
        list(zip_members.pieces(memoryview(b"PK\3\4" + bytes(60)), member))
