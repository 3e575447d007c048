"""Freeing space: by our labels only, the oldest first, nothing that somebody still needs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbench_build.model.layers import Layer, StoredImage
from kbench_build.rim.engines.docker import LABEL_OWNER, DockerEngine
from kbench_build.rim.store import dataset_lock
from kbench_build.rules.clean import SETTLED_SEC, Choice, Owner, Wish, choose, parse_size
from tests import engine_box
from tests.graph_kit import ROOT, doit, make_dataset, write

NOW = 1_000_000.0
OWNER = Owner(
    name="mine",
    namespace="ns",
    recipes={"ns/tool:1": "r1", "ns/task:a-1": "r2", "ns/task:a-2": ""},
    subjects=frozenset({"tool:1", "a-1", "a-2"}),
)


def stored(
    tag: str,
    layers: Mapping[str, int],
    *,
    age: float = 9e5,
    recipe: str = "old",
    dataset: str = "mine",
    in_use: bool = False,
    **labels: str,
) -> StoredImage:
    """An image of ours; `layers` are sizes by key, the lowest first."""
    name = tag.partition("/")[2]
    subject = name.removeprefix("task:")
    own = {
        "dev.kbench.recipe": recipe,
        "dev.kbench.kind": "base" if name == subject else "task",
        "dev.kbench.subject": subject,
        "dev.kbench.dataset": dataset,
    }
    return StoredImage(
        id=f"id of {tag}",
        tags=(tag,),
        labels={key.replace("_", "."): value for key, value in (own | labels).items()},
        created=NOW - age,
        layers=tuple(Layer(key=key, size=size) for key, size in layers.items()),
        in_use=in_use,
    )


def untagged(image: StoredImage) -> StoredImage:
    return StoredImage(**{**vars(image), "tags": ()})


def gone(*images: StoredImage, **wishes: Any) -> list[str]:
    return [g.name for g in chosen(*images, **wishes).going]


def chosen(*images: StoredImage, **wishes: Any) -> Choice:
    return choose(images, OWNER, Wish(**wishes), now=NOW)


def test_only_tags_that_our_labels_speak_of_go() -> None:
    ours = stored("ns/task:a-1", {"a": 1})
    derived = stored("ns/task:a-1", {"a": 1, "b": 1})
    derived = StoredImage(**{**vars(derived), "id": "derived", "tags": ("theirs/app:1",)})
    plain = StoredImage(
        id="p", tags=("ubuntu:24.04",), labels={}, created=0, layers=(), in_use=False
    )
    assert gone(ours, plain) == ["ns/task:a-1"]
    assert gone(derived, plain) == []
    # What stands below an image that stays would free nothing.
    assert gone(ours, derived, plain) == []
    assert chosen(ours, derived).staying == {"below an image that stays": 1}


def test_an_image_with_another_tag_stays() -> None:
    image = stored("ns/task:a-1", {"a": 1})
    both = StoredImage(**{**vars(image), "tags": ("ns/task:a-1", "kept/by:me")})
    assert chosen(both).staying == {"with another tag, too": 1}


def test_another_datasets_images_stay_unless_asked() -> None:
    images = (
        stored("other/task:a-1", {"a": 1}),
        stored("ns/task:a-1", {"b": 1}, dataset="theirs"),
        stored("ns/task:z-9", {"c": 1}, dataset=""),
        untagged(stored("x/task:z-9", {"d": 1}, dataset="theirs")),
    )
    assert chosen(*images).staying == {"another dataset's": 4}
    assert len(gone(*images, all_datasets=True)) == 4


def test_images_from_before_the_label_are_told_by_their_tag() -> None:
    assert gone(stored("ns/task:a-1", {"a": 1}, dataset="")) == ["ns/task:a-1"]
    assert gone(stored("ns/task:gone-3", {"a": 1}, dataset="mine")) == ["ns/task:gone-3"]


def test_current_images_can_be_kept_and_those_that_may_be() -> None:
    images = (
        stored("ns/tool:1", {"a": 1}, recipe="r1"),
        stored("ns/task:a-1", {"b": 1}, recipe="old"),
        stored("ns/task:a-2", {"c": 1}, recipe="who knows"),
    )
    assert gone(*images, keep_current=True) == ["ns/task:a-1"]
    assert len(gone(*images)) == 3


def test_the_oldest_go_first_and_what_no_recipe_names_before_what_one_does() -> None:
    images = (
        stored("ns/task:a-1", {"a": 5}, age=10 * SETTLED_SEC),
        stored("ns/task:gone-1", {"b": 5}, age=20 * SETTLED_SEC),
        stored("ns/tool:1", {"c": 5}, age=90 * SETTLED_SEC, recipe="r1"),
        untagged(stored("ns/task:a-2", {"d": 5}, age=2 * SETTLED_SEC)),
    )
    assert gone(*images) == ["id of ns/task:a-2", "ns/task:gone-1", "ns/task:a-1", "ns/tool:1"]


def test_a_base_goes_after_what_stands_on_it() -> None:
    base = stored("ns/tool:1", {"a": 100}, age=900)
    tasks = [stored(f"ns/task:gone-{n}", {"a": 100, f"t{n}": n}, age=800 + n) for n in (1, 2)]
    going = chosen(base, *tasks).going
    assert [g.name for g in going] == ["ns/task:gone-2", "ns/task:gone-1", "ns/tool:1"]
    assert [g.frees for g in going] == [2, 1, 100]
    assert gone(base, *tasks, older_than=802) == ["ns/task:gone-2"]


def test_shared_layers_are_counted_once_and_only_when_the_last_holder_goes() -> None:
    twins = [stored(f"ns/task:gone-{n}", {"a": 100}) for n in (1, 2, 3)]
    assert chosen(*twins).frees == 100
    kept = stored("ns/task:a-1", {"a": 100}, recipe="r2")
    assert chosen(*twins, kept, keep_current=True).frees == 0


def test_it_stops_when_enough_is_freed() -> None:
    images = [stored(f"ns/task:gone-{n}", {f"l{n}": 100}, age=1000 - n) for n in range(5)]
    choice = chosen(*images, free=150)
    assert [g.name for g in choice.going] == ["ns/task:gone-0", "ns/task:gone-1"]
    assert choice.staying == {"not needed for what is to be freed": 3}


def test_containers_keep_their_images_and_age_counts() -> None:
    used = stored("ns/task:a-1", {"a": 1, "b": 1}, in_use=True)
    below = stored("ns/tool:1", {"a": 1})
    assert gone(used, below) == []
    assert gone(stored("ns/tool:1", {"a": 1}, age=50), older_than=60) == []
    young = untagged(stored("ns/tool:1", {"a": 1}, age=SETTLED_SEC / 2))
    assert gone(young) == []
    assert len(gone(young, older_than=0)) == 1


def test_a_stage_image_without_a_tag_goes() -> None:
    image = StoredImage(
        id="s", tags=(), labels={"dev.kbench.stage": "a-1"}, created=0, layers=(), in_use=False
    )
    assert gone(image) == ["s"]


def test_five_thousand_images_take_no_time() -> None:
    base = stored("ns/tool:1", {"a": 100})
    tasks = [stored(f"ns/task:gone-{n}", {"a": 100, f"t{n}": 1}) for n in range(5000)]
    assert len(gone(base, *tasks)) == 5001


@pytest.mark.parametrize(
    ("text", "size"),
    [("20GB", 20 * 10**9), ("1.5g", 1_500_000_000), ("300", 300), ("10 MiB", 10**7), ("x", None),
     ("-1", None), ("", None), ("1e9", None)],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


# --- With an engine ---

NAMESPACE = f"{engine_box.NAMESPACE}-clean"


@pytest.fixture
def unbuilt(tmp_path: Path, tiny: str) -> Path:
    """Two tasks on `tool:2`, which stands on `tool:1`; one on `tool:3`."""
    root = make_dataset(
        tmp_path / "small",
        image=f"{NAMESPACE}/tool:2",
        bases={
            "1": f"FROM {tiny}\nENV BASE=1\n",
            "2": f"FROM {NAMESPACE}/tool:1\nRUN dd if=/dev/zero of=/two bs=1000000 count=2\n",
            "3": f"FROM {tiny}\nENV BASE=3\n",
        },
        namespace=NAMESPACE,
    )
    settings = root / "kbench.toml"
    settings.write_text(settings.read_text().replace('name = "small"', f'name = "{NAMESPACE}"'))
    write(root / "tasks/acme__tool-3/environment/Dockerfile", f"FROM {NAMESPACE}/tool:3\n")
    return root


@pytest.fixture
def root(unbuilt: Path) -> Iterator[Path]:
    """The same with its images."""
    doit(unbuilt, "build_images")
    yield unbuilt
    client = engine_box.engine._api.client
    for name in held():
        client.remove_image(name, force=True)


def held() -> list[str]:
    return sorted(tag for tag in engine_box.engine.images() if tag.startswith(f"{NAMESPACE}/"))


def kbench(root: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-c", "from kbench_build.cli import main; main()", *arguments]
    done = subprocess.run(
        call, cwd=root, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.engine
def test_what_an_edit_made_outdated_goes_and_a_run_makes_it_again(root: Path) -> None:
    before = held()
    assert len(before) == 6
    write(root / "bases/tool/Dockerfile.2", f"FROM {NAMESPACE}/tool:1\nENV BASE=2\n")
    clean = ("clean", "--images", "--keep-current")
    shown = kbench(root, *clean, "--dry-run").stdout
    assert "3 images would go: up to 2.0 MB" in shown
    assert held() == before
    assert "nobody can be asked" in kbench(root, *clean, code=2).stderr
    assert held() == before
    assert "3 images removed: up to 2.0 MB" in kbench(root, *clean, "--yes").stdout
    assert held() == [f"{NAMESPACE}/{n}" for n in ("task:acme__tool-3", "tool:1", "tool:3")]
    doit(root, "build_images")
    assert held() == before


@pytest.mark.engine
def test_a_container_an_image_made_from_ours_and_another_name_hold_theirs(
    root: Path, tmp_path: Path
) -> None:
    client = engine_box.engine._api.client
    container = client.create_container(f"{NAMESPACE}/task:acme__tool-1", ["sleep", "9"])["Id"]
    mine = f"{engine_box.NAMESPACE}/mine:1"
    derived = f"FROM {NAMESPACE}/tool:3\nENV MINE=1\n"
    try:
        engine_box.engine.build(engine_box.spec(tmp_path, derived, image=mine))
        done = json.loads(kbench(root, "clean", "--images", "--yes", "--format", "json").stdout)
        assert sorted(image["image"] for image in done["images"]) == [
            f"{NAMESPACE}/task:acme__tool-2", f"{NAMESPACE}/task:acme__tool-3",
        ]  # fmt: skip
        assert done["staying"]["below a container"] == 1
        assert done["staying"]["below an image that stays"] == 3
        assert done["refused"] == {}
        assert mine in engine_box.engine.images()
        client.inspect_container(container)
    finally:
        client.remove_container(container)
        engine_box.remove_images(mine)
    kbench(root, "clean", "--images", "--yes")
    assert held() == []


def kept(root: Path) -> set[str]:
    """The layers of which the search's results are kept."""
    found = (path.name.partition(".")[0] for path in (root / ".kbench/layers").glob("*.zst"))
    return {f"sha256:{digits}" for digits in found}


@pytest.mark.engine
def test_what_seal_keeps_of_layers_goes_with_the_last_image_that_has_them(root: Path) -> None:
    task = f"{NAMESPACE}/task:acme__tool-1"
    # Of one base, and the tasks on it alike: what is removed is this task's own layer.
    write(root / "tasks/acme__tool-1/environment/mine.txt", "mine\n")
    recipe = root / "tasks/acme__tool-1/environment/Dockerfile"
    recipe.write_text(recipe.read_text() + "COPY mine.txt /mine.txt\n")
    doit(root, "build_images", "seal", code=None)
    layers = [*engine_box.engine.layers(task)]
    before = kept(root)
    assert {*layers} <= before
    assert (
        "what was kept of 0 layers would go"
        in kbench(root, "clean", "--layers", "--dry-run").stdout
    )

    # Not yet removed, but asked for in the same call.
    both = ("clean", "--images", "--layers", "--format", "json")
    would = json.loads(kbench(root, *both, "--dry-run").stdout)
    assert {each["layer"] for each in would["layers"]["going"]} >= {layers[-1]}
    assert kept(root) == before

    engine_box.engine._api.client.remove_image(task)
    clean = ("clean", "--layers")
    assert "what was kept of 1 layer would go" in kbench(root, *clean, "--dry-run").stdout
    assert "nobody can be asked" in kbench(root, *clean, code=2).stderr
    assert kept(root) == before
    assert "what was kept of 1 layer removed" in kbench(root, *clean, "--yes").stdout
    assert kept(root) == before - {layers[-1]}
    doit(root, "seal", code=None)
    assert kept(root) == before


@pytest.mark.engine
def test_a_run_that_works_on_the_dataset_is_left_alone(unbuilt: Path) -> None:
    with dataset_lock(unbuilt):
        assert "another run" in kbench(unbuilt, "clean", "--images", "--yes", code=2).stderr
        kbench(unbuilt, "clean", "--images", "--dry-run")


def owned(pid: int) -> str:
    """A container, not started, that looks as if this process had made it."""
    labels = {LABEL_OWNER: f"{os.uname().nodename}:{pid}"}
    client = engine_box.engine._api.client
    return str(client.create_container(engine_box.TINY, ["true"], labels=labels)["Id"])


def containers() -> set[str]:
    return {c["Id"] for c in engine_box.engine._api.client.containers(all=True)}


def is_only_listed(pid: int) -> bool:
    """Whether a dead process's container is listed and stays; another run may clear it away."""
    made = owned(pid)
    listed = len(DockerEngine().abandoned())
    return bool(listed) and made in containers()


@pytest.mark.engine
def test_containers_of_killed_runs_go_and_those_of_living_ones_stay(unbuilt: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    living = owned(os.getpid())
    try:
        assert any(is_only_listed(dead.pid) for _ in range(5))
        shown = kbench(unbuilt, "clean", "--containers", "--dry-run").stdout
        assert re.search(r"\d+ containers? of killed runs would go", shown)
        left = owned(dead.pid)
        kbench(unbuilt, "clean", "--containers")
        assert left not in containers()
        assert living in containers()
    finally:
        engine_box.engine._api.client.remove_container(living)


def test_a_call_that_says_nothing_to_clean_is_refused(tmp_path: Path) -> None:
    assert "--images" in kbench(tmp_path, "clean", code=2).stderr
    said = kbench(tmp_path, "clean", "--images", "--free", "lots", code=2).stderr
    assert "'lots' is no size" in said
