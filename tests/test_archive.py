"""Tarballs: the same bytes whatever surrounds the making, and hostile ones refused."""

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build.errors import KbenchError
from kbench_build.rim.archive import (
    MEMBER_TIME,
    ArchiveError,
    ArchiveWriter,
    Member,
    Stream,
    _header,
    compressed,
    leads_out,
    read_archive,
)
from kbench_build.rim.tree import Mode
from tests.release_kit import make_kit

ROOT = Path(__file__).parent.parent


def write(path: Path, items: Mapping[str, tuple[bytes, Mode]], threads: int = 2) -> Stream:
    with path.open("wb") as file, compressed(file, threads=threads) as stream:
        writer = ArchiveWriter(stream)
        for name, (data, mode) in items.items():
            writer.add_data(name, data, mode)
        return writer.finish()


def read(path: Path, most_bytes: int = 1 << 30) -> list[Member]:
    items = read_archive(path, most_bytes=most_bytes)
    return [item for item in items if isinstance(item, Member)]


# Round trips.

ODD = {
    "top/plain.txt": (b"text\n", "100644"),
    "top/run.sh": (b"#!/bin/sh\n", "100755"),
    "top/empty": (b"", "100644"),
    "top/d/größe " + "x" * 120 + ".txt": (b"\0\1", "100644"),
    "top/" + "deep/" * 80 + "end": (b"e", "100644"),
    "top/d/link": (b"../plain.txt", "120000"),
    "top/d/longlink": (b"../" + b"y" * 150, "120000"),
    "top/block": (b"b" * 512, "100644"),
    "top/\udcff": (b"not UTF-8", "100644"),
}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    items: Mapping[str, tuple[bytes, Mode]] = ODD  # type: ignore[assignment]
    stream = write(tmp_path / "a.tar.zst", items)
    *members, end = read_archive(tmp_path / "a.tar.zst", keep=lambda _: True)
    assert end == stream
    assert {m.name: (m.data, m.mode) for m in members if isinstance(m, Member)} == items


def test_a_member_says_its_digests_and_size(tmp_path: Path) -> None:
    write(tmp_path / "a.tar.zst", {"top/a": (b"abc", "100644")})
    (member,) = read(tmp_path / "a.tar.zst")
    assert member.blake3 == blake3(b"abc").hexdigest()
    assert member.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (member.size, member.data) == (3, None)


@pytest.mark.skipif(not shutil.which("zstd"), reason="no zstd command here")
def test_the_zstd_command_and_gnu_tar_read_it(tmp_path: Path) -> None:
    items: Mapping[str, tuple[bytes, Mode]] = ODD  # type: ignore[assignment]
    stream = write(tmp_path / "a.tar.zst", items)
    command = ["zstd", "-dc", str(tmp_path / "a.tar.zst")]
    plain = subprocess.run(command, capture_output=True, check=True).stdout
    assert (blake3(plain).hexdigest(), len(plain)) == (stream.blake3, stream.size)
    listed = subprocess.run(["tar", "-tf", "-"], input=plain, capture_output=True, check=True)
    assert len(listed.stdout.splitlines()) == len(items)


@given(
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=99),
    mode=st.sampled_from(["100644", "100755"]),
    size=st.integers(0, (1 << 33) - 1),
)
@settings(max_examples=200, deadline=None)
def test_plain_headers_are_those_of_tarfile(name: str, mode: Mode, size: int) -> None:
    info = tarfile.TarInfo(f"{name}x")
    info.mode, info.size, info.mtime = int(mode[3:], 8), size, MEMBER_TIME
    assert _header(f"{name}x", mode, size) == info.tobuf(tarfile.PAX_FORMAT)


def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 3 + b"tail"
    (tmp_path / "big").write_bytes(data)
    with (tmp_path / "a.tar.zst").open("wb") as file, compressed(file) as stream:
        writer = ArchiveWriter(stream)
        added = writer.add_file("top/big", tmp_path / "big", "100644")
        writer.finish()
    (member,) = read(tmp_path / "a.tar.zst")
    assert member == added
    assert member.blake3 == blake3(data).hexdigest()


def test_a_file_that_cant_be_read_is_named(tmp_path: Path) -> None:
    writer = ArchiveWriter(io.BytesIO())
    with pytest.raises(KbenchError, match="gone: can't be read: No such file"):
        writer.add_file("top/gone", tmp_path / "gone", "100644")


# The same bytes, whatever surrounds the making. Each runs in a process of its own.


def release_in(
    folder: Path,
    *,
    wrap: Sequence[str] = (),
    threads: int = 2,
    order: str = "forwards",
    umask: str = "022",
    **environment: str,
) -> bytes:
    command = [*wrap, sys.executable, "-m", "tests.release_kit"]
    arguments = [str(folder), str(threads), order, umask]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).read_bytes()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return release_in(tmp_path_factory.mktemp("usual") / "set")


def test_in_another_folder(tmp_path: Path, usual: bytes) -> None:
    assert release_in(tmp_path / "some where" / "élse") == usual


@pytest.mark.parametrize("umask", ["000", "077", "027"])
def test_under_another_umask(tmp_path: Path, usual: bytes, umask: str) -> None:
    assert release_in(tmp_path / "set", umask=umask) == usual


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8"])
def test_under_another_locale(tmp_path: Path, usual: bytes, locale: str) -> None:
    assert release_in(tmp_path / "set", LC_ALL=locale, LANG=locale, PYTHONUTF8="1") == usual


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles", "XYZ+12"])
def test_in_another_time_zone(tmp_path: Path, usual: bytes, zone: str) -> None:
    assert release_in(tmp_path / "set", TZ=zone) == usual


@pytest.mark.parametrize("seed", ["0", "1", "12345"])
def test_under_another_hash_seed(tmp_path: Path, usual: bytes, seed: str) -> None:
    assert release_in(tmp_path / "set", PYTHONHASHSEED=seed) == usual


def test_with_files_created_in_another_order(tmp_path: Path, usual: bytes) -> None:
    assert release_in(tmp_path / "set", order="backwards") == usual


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_on_a_file_system_that_lists_in_another_order(
    tmp_path: Path, usual: bytes, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = make_kit(tmp_path / "set")
    shuffle = random.Random(seed).shuffle
    scandir, iterdir = os.scandir, Path.iterdir

    @contextmanager
    def shuffled_scandir(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as found:
            entries = list(found)
        shuffle(entries)
        yield iter(entries)

    def shuffled_iterdir(path: Path) -> Iterator[Path]:
        entries = list(iterdir(path))
        shuffle(entries)
        return iter(entries)

    monkeypatch.setattr(os, "scandir", shuffled_scandir)
    monkeypatch.setattr(Path, "iterdir", shuffled_iterdir)
    released = kit.released()
    monkeypatch.undo()
    assert (released / "demo-1.0.0.tar.zst").read_bytes() == usual


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_with_another_number_of_threads(tmp_path: Path, usual: bytes, threads: int) -> None:
    assert release_in(tmp_path / "set", threads=threads) == usual


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_as_another_user(tmp_path: Path, usual: bytes) -> None:
    # Not below tmp_path: another user can't enter it.
    folder = Path("/var/tmp") / f"kbench-{tmp_path.name}-{os.getpid()}"
    folder.mkdir()
    try:
        os.chown(folder, 12345, 54321)
        user = ["setpriv", "--reuid=12345", "--regid=54321", "--clear-groups"]
        # This Python may lie in a home that others can't enter.
        user += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        probe = subprocess.run([*user, sys.executable, "-c", "import blake3"], check=False)
        if probe.returncode:
            pytest.skip("another user can't run this Python")
        assert release_in(folder / "set", wrap=user, PYTHONDONTWRITEBYTECODE="1") == usual
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("clock", ["@1979-12-31 23:59:00", "@2040-02-29 12:00:00"])
def test_under_another_clock(tmp_path: Path, usual: bytes, clock: str) -> None:
    if not shutil.which("faketime"):
        pytest.skip("no faketime command here (Debian's package faketime)")
    assert release_in(tmp_path / "set", wrap=["faketime", "-f", clock]) == usual


@pytest.mark.parametrize("year", [1975, 2001, 2099])
def test_with_files_of_another_age(tmp_path: Path, usual: bytes, year: int) -> None:
    kit = make_kit(tmp_path / "set")
    when = (year - 1970) * 31_557_600
    for path in kit.root.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)
    assert (kit.released() / "demo-1.0.0.tar.zst").read_bytes() == usual


def test_large_archives_dont_depend_on_threads_either(tmp_path: Path) -> None:
    # More than two of zstd's jobs, so that threads have something to share.
    noise = os.urandom(1 << 20)
    items: dict[str, tuple[bytes, Mode]] = {
        f"top/{n:03}": (noise[n:] + b"%d" % n, "100644") for n in range(24)
    }
    archives = set()
    for threads in (1, 2, 5):
        write(tmp_path / "a.tar.zst", items, threads=threads)
        archives.add((tmp_path / "a.tar.zst").read_bytes())
    assert len(archives) == 1


# Hostile tarballs.


def hostile(path: Path, *infos: tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> Path:  # noqa: A002
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(bytes(info.size)) if info.isreg() else None)
    path.write_bytes(zstandard.ZstdCompressor().compress(out.getvalue()))
    return path


def info(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "top/../../up", "top/./a", "top//a", "alone", "top/.."]
)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match=r"a\.tar\.zst: a member's name leaves its folder"):
        read(hostile(tmp_path / "a.tar.zst", info(name)))


@pytest.mark.parametrize("target", ["/etc", "../..", "../../x", "a/../..", "", "..//x"])
def test_links_that_lead_out_are_refused(tmp_path: Path, target: str) -> None:
    link = info("top/d/link", tarfile.SYMTYPE, target)
    with pytest.raises(ArchiveError, match="leads out"):
        read(hostile(tmp_path / "a.tar.zst", link))


def test_links_inside_are_fine() -> None:
    for target in ("x", "../x", "d/x", "../a/b"):
        assert not leads_out("top/d/link", target)


def test_members_behind_a_link_are_refused(tmp_path: Path) -> None:
    link, behind = info("top/l", tarfile.SYMTYPE, "d"), info("top/l/x")
    with pytest.raises(ArchiveError, match="lies behind a link"):
        read(hostile(tmp_path / "a.tar.zst", link, behind))


@pytest.mark.parametrize(
    "kind",
    [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, b"Z"],
)
def test_everything_but_files_and_links_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(ArchiveError, match="neither a file nor a link"):
        read(hostile(tmp_path / "a.tar.zst", info("top/x", kind)))


def test_headers_that_no_release_has_are_refused(tmp_path: Path) -> None:
    odd = info("top/x")
    odd.pax_headers = {"SCHILY.xattr.user.x": "1"}
    with pytest.raises(ArchiveError, match="a header that no release has"):
        read(hostile(tmp_path / "a.tar.zst", odd))


def test_gnu_long_names_are_refused(tmp_path: Path) -> None:
    path = hostile(tmp_path / "a.tar.zst", info("top/" + "x" * 200), format=tarfile.GNU_FORMAT)
    with pytest.raises(ArchiveError):
        read(path)


def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path) -> None:
    path = hostile(tmp_path / "a.tar.zst", info("top/zeros", size=200_000_000))
    assert path.stat().st_size < 100_000
    with pytest.raises(ArchiveError, match="unpacks to more bytes"):
        read(path, most_bytes=1_000_000)


def test_a_window_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    plain = zstandard.ZstdDecompressor().stream_reader(
        hostile(tmp_path / "a.tar.zst", info("top/zeros", size=2_000_000)).read_bytes()
    )
    parameters = zstandard.ZstdCompressionParameters(window_log=30, threads=1)
    with (tmp_path / "b.tar.zst").open("wb") as file:
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
        with compressor.stream_writer(file) as out:
            out.write(plain.read())
    with pytest.raises(ArchiveError, match="too much memory"):
        read(tmp_path / "b.tar.zst")


def damaged(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    plain = zstandard.ZstdDecompressor().stream_reader(data).read()
    pack = zstandard.ZstdCompressor().compress
    yield b""
    yield b"not zstd"
    yield data[: len(data) // 2]
    yield pack(plain[:700])
    yield pack(plain[:1024])
    yield pack(b"\1" * 1024)
    yield pack(plain + b"more")
    yield data + pack(b"more")
    yield pack(plain[:100] + b"\xff" + plain[101:])


def test_damaged_tarballs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.zst"
    write(path, {"top/a": (b"x" * 600, "100644"), "top/b": (b"y", "100755")})
    for number, data in enumerate(damaged(path)):
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match=r"^a\.tar\.zst: "):
            read(path)
        assert number < 20
        write(path, {"top/a": (b"x" * 600, "100644"), "top/b": (b"y", "100755")})
