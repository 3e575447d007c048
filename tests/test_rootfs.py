"""The root file system has one normal form, whoever made it and in whatever order."""

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "bases" / "debian"
NEWEST = 1_757_289_600

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **more: object) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime, info.mode = kind, len(data), NEWEST + 99, 0o644
    info.uname = info.gname = "somebody"
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


MEMBERS = [
    member("./", tarfile.DIRTYPE, mode=0o755),
    member("./etc/", tarfile.DIRTYPE, mode=0o755),
    member("./etc/hostname", data=b"vm\n"),
    member("./etc/resolv.conf", data=b"nameserver 10.0.0.1\n"),
    member("./etc/machine-id", data=b"0123\n"),
    member("./.dockerenv"),
    member("./etc/host.conf", data=b"multi on\n", mtime=1000, uid=7, gid=8),
    member("./dev/", tarfile.DIRTYPE, mode=0o755),
    member("./dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("./usr/bin/perl", data=b"#!", mode=0o4755),
    member("./usr/bin/a-perl", tarfile.LNKTYPE, linkname="./usr/bin/perl"),
    member("./bin", tarfile.SYMTYPE, linkname="usr/bin"),
]


def archive(members: list[Member]) -> bytes:
    spool = io.BytesIO()
    with tarfile.open(fileobj=spool, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return spool.getvalue()


def normalised(data: bytes) -> bytes:
    done = subprocess.run(
        [sys.executable, FOLDER / "normalise_tar.py"],
        input=data,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(NEWEST)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def read(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {info.name: info for info in tar}


def test_nothing_of_the_machine_that_made_it_is_inside() -> None:
    held = list(read(normalised(archive(MEMBERS))))
    assert held == ["bin", "dev", "etc", "etc/host.conf", "usr/bin/perl", "usr/bin/a-perl"]


def test_the_order_of_the_source_does_not_matter() -> None:
    expected = normalised(archive(MEMBERS))
    for seed in range(5):
        shuffled = list(MEMBERS)
        random.Random(seed).shuffle(shuffled)
        assert normalised(archive(shuffled)) == expected


def test_owners_modes_and_old_times_stay_and_new_times_do_not() -> None:
    held = read(normalised(archive(MEMBERS)))
    conf, perl = held["etc/host.conf"], held["usr/bin/perl"]
    assert (conf.uid, conf.gid, conf.mtime) == (7, 8, 1000)
    assert (perl.mode, perl.mtime) == (0o4755, NEWEST)
    assert {(info.uname, info.gname) for info in held.values()} == {("", "")}


def test_a_hard_link_comes_after_the_file_that_it_names() -> None:
    held = read(normalised(archive(MEMBERS)))
    assert held["usr/bin/a-perl"].islnk()
    assert held["usr/bin/a-perl"].linkname == "usr/bin/perl"


def test_without_a_registry_and_without_mmdebstrap_it_says_what_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "mv", "rm"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    done = subprocess.run(
        [tools / "bash", "make_rootfs.sh"],
        cwd=FOLDER,
        env={"PATH": str(tools), "KBENCH_OUTPUT": str(tmp_path / "rootfs.tar")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "install the package mmdebstrap" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bin"]


@pytest.mark.engine
def test_what_an_engine_exports_becomes_the_same_form() -> None:
    """The way of a machine with a registry, with the image that is here already."""
    image = "kotlin-bench/debian:bookworm"
    if subprocess.run(
        ["docker", "image", "inspect", image], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"{image} isn't built")
    created = subprocess.run(["docker", "create", image, "true"], capture_output=True, check=True)
    container = created.stdout.decode().strip()
    try:
        exported = subprocess.run(["docker", "export", container], capture_output=True, check=True)
    finally:
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=True)
    held = read(normalised(exported.stdout))
    assert {"etc/debian_version", "usr/bin/apt-get", "bin"} <= set(held)
    assert not {".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf"} & set(held)
    assert not [name for name in held if name.startswith("dev/")]
    assert max(info.mtime for info in held.values()) <= NEWEST
