"""Grading in a fresh container: only the agent's changed files come over."""

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.verifier_box import PROJECT, Box, copy_box, git, make_box, usable

CALC = "app/src/main/calc.py"
WORDS = "core/src/main/words.py"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Box:
    if not usable():
        reason = "namespaces can't be made here (root and unshare are needed)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return make_box(tmp_path_factory.mktemp("verifier") / "box")


@pytest.fixture
def box(template: Box, tmp_path: Path) -> Box:
    return copy_box(template, tmp_path / "box")


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def gold() -> list[tuple[tarfile.TarInfo, bytes]]:
    return [member(path, (PROJECT / "fix" / path).read_bytes()) for path in (CALC, WORDS)]


def bring(
    box: Box, members: Sequence[tuple[tarfile.TarInfo, bytes]], deleted: Sequence[bytes] = ()
) -> None:
    """Put the changes where our engine puts them."""
    folder = box.root / "kbench" / "changes"
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    (folder / "changes.tar").write_bytes(buffer.getvalue())
    (folder / "deleted").write_bytes(b"".join(path + b"\0" for path in deleted))


def test_the_gold_changes_score_1(box: Box) -> None:
    bring(box, gold())
    graded = box.grade_alone()
    assert graded.reward == "1", graded.output
    assert "took over 2 files" in graded.output


def test_no_changes_score_0(box: Box) -> None:
    bring(box, [])
    assert box.grade_alone().report["outcome"] == "unresolved"


def test_what_the_base_ignores_stays_as_the_image_has_it(box: Box) -> None:
    cache = box.checkout / "app" / "build" / "cache"
    cache.mkdir(parents=True)
    (cache / "warm").write_text("warm")
    (box.checkout / "app" / "gone.log").write_text("kept")
    forged = member("app/build/cache/warm", b"forged")
    log = member("app/new.log", b"x")
    bring(box, [*gold(), forged, log], [b"app/build", b"app/gone.log", b"core/src/test/old.txt"])
    graded = box.grade_alone()
    assert graded.reward == "1"
    assert (cache / "warm").read_text() == "warm"
    assert (box.checkout / "app" / "gone.log").read_text() == "kept"
    assert not (box.checkout / "app" / "new.log").exists()


def test_the_agents_own_ignore_rules_hide_nothing(box: Box) -> None:
    rules = member(".gitignore", b"*\n")
    info = member("core/src/.gitignore", b"!build/\n*\n")
    bring(box, [*gold(), rules, info])
    assert box.grade_alone().reward == "1"


def test_a_tracked_file_that_matches_an_ignore_rule_comes_over(box: Box) -> None:
    (box.checkout / "app" / "tracked.log").write_text("old")
    git(box.checkout, "add", "--force", "app/tracked.log")
    git(box.checkout, "commit", "--quiet", "--message=Track a log")
    box.edit_data(base_commit=git(box.checkout, "rev-parse", "HEAD").decode().strip())
    bring(box, [*gold(), member("app/tracked.log", b"new")])
    assert box.grade_alone().reward == "1"
    assert (box.checkout / "app" / "tracked.log").read_text() == "new"


def test_deletions_come_over(box: Box) -> None:
    (box.checkout / "app" / "extra").mkdir()
    (box.checkout / "app" / "extra" / "file").touch()
    bring(box, gold(), [b"app/extra", b"never/was", b".gitignore"])
    assert box.grade_alone().reward == "1"
    assert not (box.checkout / "app" / "extra" / "file").exists()
    assert not (box.checkout / ".gitignore").exists()


@pytest.mark.parametrize(
    "name", ["../out", "/out", "app/../../out", ".git/config", "app/.git/config", ".GIT/hooks/x"]
)
def test_members_outside_the_checkout_are_left_out(box: Box, name: str) -> None:
    before = (box.checkout / ".git" / "config").read_text()
    bring(box, [*gold(), member(name, b"evil")], [name.encode()])
    graded = box.grade_alone()
    assert graded.reward == "1", graded.output
    assert "left out" in graded.output
    assert not (box.root / "home" / "out").exists()
    assert not (box.root / "out").exists()
    assert not (box.checkout / "app" / ".git").exists()
    assert (box.checkout / ".git" / "config").read_text() == before


def test_nothing_is_written_through_a_link(box: Box) -> None:
    outside = box.root / "outside"
    outside.mkdir()
    members = [
        *gold(),
        link("app/way", "/outside"),
        member("app/way/evil", b"evil"),
        link("app/file", "/outside/evil"),
        member("app/file", b"evil"),
    ]
    bring(box, members)
    assert box.grade_alone().reward == "1"
    assert list(outside.iterdir()) == []


def test_special_files_are_left_out(box: Box) -> None:
    pipe = member("app/pipe", type=tarfile.FIFOTYPE)
    device = member("app/device", type=tarfile.CHRTYPE, devmajor=1, devminor=8)
    bring(box, [*gold(), pipe, device, member("app", type=tarfile.DIRTYPE)])
    assert box.grade_alone().reward == "1"
    assert not (box.checkout / "app" / "pipe").exists()
    assert not (box.checkout / "app" / "device").exists()


def test_modes_links_and_hard_links_come_over(box: Box) -> None:
    members = [
        *gold(),
        member("tool", b"#!/bin/sh\n", mode=0o4777),
        link("alias", "tool"),
        member("twin", type=tarfile.LNKTYPE, linkname="tool"),
    ]
    bring(box, members)
    assert box.grade_alone().reward == "1"
    assert (box.checkout / "tool").stat().st_mode & 0o7777 == 0o755
    assert (box.checkout / "alias").readlink() == Path("tool")
    assert (box.checkout / "twin").read_bytes() == b"#!/bin/sh\n"


def test_a_folder_may_take_a_files_place_and_a_file_a_folders(box: Box) -> None:
    members = [*gold(), member("tools", b"now a file"), member(".gitignore/x", b"now a folder")]
    bring(box, members, [b"tools/check.sh", b".gitignore"])
    assert box.grade_alone().reward == "1"
    assert (box.checkout / ".gitignore" / "x").exists()


def test_hidden_and_protected_files_of_the_agent_do_not_count(box: Box) -> None:
    members = [
        member("app/src/test/CalcTest.py", b"TESTS = []\n"),
        member("core/src/test/NewTest.py", b"TESTS = []\n"),
        member("core/src/test/Mine.py", b"TESTS = 1\n"),
        member("build.py", b"print('skipped')\n"),
    ]
    bring(box, members)
    graded = box.grade_alone()
    assert graded.report["outcome"] == "unresolved"
    assert len(graded.report["tests"]) == 5
    assert not (box.checkout / "core/src/test/Mine.py").exists()


@pytest.mark.parametrize("content", [b"junk" * 200, b"", b"\x1f\x8b" + b"x" * 600])
def test_an_archive_that_is_none_is_a_named_error(box: Box, content: bytes) -> None:
    bring(box, [])
    (box.root / "kbench" / "changes" / "changes.tar").write_bytes(content)
    graded = box.grade_alone()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"take-over"})


def test_a_whole_checkout_may_come_over(box: Box) -> None:
    """How a runner brings it that can only run a command in the agent's container."""
    agent = copy_box(box, box.root.parent / "agent")
    agent.solve()
    agent.shell("rm .gitignore tools/check.sh; mkdir -p app/build; echo forged > app/build/x")
    pack = "mkdir -p /kbench/changes && touch /kbench/changes/whole && "
    pack += "tar -C /home/up --exclude=./.git -cf /kbench/changes/changes.tar ."
    assert agent.shell(pack).returncode == 0
    (agent.root / "kbench").rename(box.root / "kbench")
    graded = box.grade_alone()
    assert graded.reward == "1", graded.output
    assert not (box.checkout / ".gitignore").exists()
    assert not (box.checkout / "app" / "build" / "x").exists()


def test_an_archive_that_is_missing_is_a_named_error(box: Box) -> None:
    bring(box, [])
    (box.root / "kbench" / "changes" / "changes.tar").unlink()
    graded = box.grade_alone()
    assert (graded.report["outcome"], graded.kinds) == ("verifier-error", {"take-over"})


def test_a_hard_link_to_nothing_is_a_named_error(box: Box) -> None:
    bring(box, [member("twin", type=tarfile.LNKTYPE, linkname="gone")])
    assert box.grade_alone().kinds == {"take-over"}
