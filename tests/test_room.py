"""Before builds begin: what they will add to the engine's disk, and whether that fits."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from kbench_build.errors import KbenchError
from kbench_build.plan import Plan
from kbench_build.rim.config import load_config
from kbench_build.rim.engines import About
from kbench_build.rim.engines.docker import DockerEngine
from kbench_build.rim.store import Store
from kbench_build.rules.room import Due, Need, in_words, needed, shortage
from kbench_build.selection import subjects
from kbench_build.upkeep import check_room, due_builds
from tests import engine_box
from tests.graph_kit import doit, lines, make_dataset, write

MB = 10**6
NAMESPACE = f"{engine_box.NAMESPACE}-room"


def test_what_was_built_before_is_taken_to_grow_by_as_much() -> None:
    due = [Due(kind="base", grown=300 * MB, context=5), Due(kind="task", grown=10 * MB, context=5)]
    assert needed(due, {}) == Need(size=341 * MB, images=2, guessed=0)


def test_what_was_never_built_is_guessed_from_its_kind_and_its_context() -> None:
    usual: dict[Literal["base", "task"], list[int]] = {"task": [1 * MB, 40 * MB, 900 * MB]}
    small, large = (Due(kind="task", grown=None, context=c) for c in (1, 500 * MB))
    assert needed([small], usual) == Need(size=44 * MB, images=1, guessed=1)
    assert needed([large], usual).size == 1100 * MB
    assert needed([replace(small, kind="base")], usual).size == 220 * MB
    assert needed([], usual) == Need(size=0, images=0, guessed=0)


def test_a_shortage_names_the_disk_both_figures_and_what_to_do() -> None:
    need = Need(size=3_100 * MB, images=8, guessed=2)
    assert shortage(need, free=5_200 * MB, keep=2_000 * MB, folder="/d") == ""
    said = shortage(need, free=5_000 * MB, keep=2_000 * MB, folder="/d")
    assert said.startswith("/d has 5.0 GB free, and the builds that are due need about 3.1 GB")
    assert "(8 images, 2 of them guessed)" in said
    assert "kbench clean --images" in said
    assert "engine.min_free_gb" in said


def test_nothing_to_build_needs_no_room() -> None:
    assert shortage(Need(size=0, images=0, guessed=0), free=0, keep=10**9, folder="/d") == ""


def test_sizes_read_well() -> None:
    assert [in_words(n) for n in (400_000, 35 * MB, 1_234 * MB)] == ["0.4 MB", "35 MB", "1.2 GB"]


@pytest.mark.parametrize("value", ["-1", "'2'", "true", "inf", "nan"])
def test_a_setting_that_means_nothing_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "kbench.toml").write_text(f"[engine]\nmin_free_gb = {value}\n")
    with pytest.raises(KbenchError, match=r"kbench\.toml: engine\.min_free_gb: must be a number"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["selfcheck:a_*", "build_bases:r:t"], ["a_*", "r:t"]),
        (["selfcheck:a", "seal"], None),
        ([], None),
        (["-n", "2"], None),
    ],
)
def test_the_subjects_that_were_asked_for(words: list[str], found: list[str] | None) -> None:
    assert subjects(words, {"selfcheck", "seal", "build_bases"}) == found


# --- With an engine ---


@pytest.fixture
def root(tmp_path: Path, tiny: str) -> Iterator[Path]:
    """Two tasks on `tool:2`, which stands on `tool:1`; one on `tool:3`, which adds 2 MB."""
    root = make_dataset(
        tmp_path / "small",
        image=f"{NAMESPACE}/tool:2",
        bases={
            "1": f"FROM {tiny}\nENV BASE=1\n",
            "2": f"FROM {NAMESPACE}/tool:1\nENV BASE=2\n",
            "3": f"FROM {tiny}\nRUN dd if=/dev/zero of=/two bs=1000000 count=2\n",
        },
        namespace=NAMESPACE,
    )
    write(root / "tasks/acme__tool-3/environment/Dockerfile", f"FROM {NAMESPACE}/tool:3\n")
    yield root
    client = engine_box.engine._api.client
    for name in [tag for tag in engine_box.engine.images() if tag.startswith(f"{NAMESPACE}/")]:
        client.remove_image(name, force=True)


@pytest.mark.engine
def test_a_full_disk_stops_a_run_before_its_first_build(root: Path) -> None:
    settings = root / "kbench.toml"
    settings.write_text(settings.read_text() + "[engine]\nmin_free_gb = 1000000\n")
    for processes in ("0", "2"):
        done = doit(root, "-n", processes, "build_images", code=2)
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(said) == 1
        assert "the builds that are due need about" in said[0]
        assert "(6 images, 6 of them guessed)" in said[0]
    assert not lines(done.stdout, "build_bases")
    assert not [tag for tag in engine_box.engine.images() if tag.startswith(f"{NAMESPACE}/")]
    settings.write_text(settings.read_text().replace("1000000", "0"))
    assert lines(doit(root, "build_images:acme__tool-3").stdout, "build_images")


@pytest.mark.engine
def test_only_what_is_due_counts_and_a_size_is_learnt_from_the_last_build(root: Path) -> None:
    doit(root, "build_images:acme__tool-3")
    plan = Plan(root)
    due = due_builds(plan, None, None)
    assert [recipe.subject for recipe in due["base"]] == ["tool:1", "tool:2"]
    assert [recipe.subject for recipe in due["task"]] == ["acme__tool-1", "acme__tool-2"]
    only = due_builds(plan, None, ["acme__tool-1"])
    assert [r.subject for found in only.values() for r in found] == [
        "tool:1", "tool:2", "acme__tool-1",
    ]  # fmt: skip
    assert due_builds(plan, {"build_bases"}, None)["task"] == []
    report = Store(root).read("build_bases", "tool:3")
    assert report is not None
    assert report.data["grown"] == 2_000_000
    assert report.data["froms"].keys() == {engine_box.TINY}
    assert report.data["engine"].split()[0] in {"docker", "podman"}


class SmallDisk(DockerEngine):
    """The real engine, whose images lie in another folder."""

    def __init__(self, storage: Path) -> None:
        super().__init__()
        self.storage = storage

    def about(self) -> About:
        return About(name="docker", storage=str(self.storage))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.engine
def test_a_disk_is_looked_at_where_the_engine_keeps_its_images(root: Path, disk: Path) -> None:
    settings = root / "kbench.toml"
    settings.write_text(settings.read_text() + "[engine]\nmin_free_gb = 0.001\n")
    plan = Plan(root)
    plan._engines[os.getpid()] = SmallDisk(disk)
    with pytest.raises(KbenchError, match=f"^{disk} has 34 MB free, .* about 726 MB"):
        check_room(plan, None, None)
    doit(root, "build_images:acme__tool-3")
    write(root / "bases/tool/Dockerfile.3", f"FROM {engine_box.TINY}\nENV BASE=three\n")
    plan = Plan(root)
    plan._engines[os.getpid()] = SmallDisk(disk)
    check_room(plan, None, ["acme__tool-3"])
    (disk / "full").write_bytes(bytes(31 << 20))
    with pytest.raises(KbenchError, match=r"need about 2\.2 MB \(2 images\)"):
        check_room(plan, None, ["acme__tool-3"])
