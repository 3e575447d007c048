"""`doit drift`: what a rebuild would change, and what can't be told."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbench_build import digest
from kbench_build.rim.store import Store
from kbench_build.rules.base_inputs import BaseInput
from kbench_build.rules.dockerfile import parse_dockerfile
from kbench_build.rules.drift import (
    Floating,
    Identity,
    Image,
    Input,
    Outside,
    Row,
    World,
    drift,
    summary,
    table,
)
from kbench_build.rules.floating import floating_sources
from kbench_build.rules.images import registry_digest
from kbench_build.rules.recipe_trust import base_recipe
from tests import engine_box
from tests.graph_kit import doit, make_dataset, write
from tests.registry_kit import Registry, registry

OS = Identity(id="sha256:id1", digest="sha256:d1")
IMAGE = Image(
    subject="tool:1",
    recipe="r1",
    built_from="r1",
    made="sha256:made",
    froms={"os:1": OS},
    engine="docker 1",
    held="sha256:made",
)
OUTSIDE = Outside(reference="os:1", subjects=("tool:1",), local=OS, published="sha256:d1")
INPUT = Input(
    item=BaseInput(
        repo="tool",
        file="a.tar",
        command=("make",),
        sources=(),
        pin_kind="blake3",
        pin="p",
    ),
    bases=("tool:1",),
    sources="s",
    built_from="s",
    made="p",
)


def world(**changes: Any) -> World:
    values: dict[str, Any] = {
        "images": (IMAGE,),
        "outside": (OUTSIDE,),
        "inputs": (INPUT,),
        "floating": (),
        "engine": "docker 1",
        "problem": "",
        "zstd": "1.5",
        "released": None,
        **changes,
    }
    return World(**values)


def only(**changes: Any) -> Row:
    """The one row in which something is to be said."""
    said = [row for row in drift(world(**changes)) if row.state != "same"]
    assert len(said) == 1, said
    return said[0]


def test_nothing_has_changed() -> None:
    rows = drift(world())
    assert {row.state for row in rows} == {"same"}
    assert {row.part for row in rows} == {"image", "outside image", "input", "tool"}
    assert table(rows) == []


@pytest.mark.parametrize(
    ("change", "state", "severity"),
    [
        ({"recipe": ""}, "unknown", "note"),
        ({"built_from": "r0"}, "edited", "warning"),
        ({"held": ""}, "gone", "warning"),
        ({"held": "sha256:other"}, "moved", "warning"),
    ],
)
def test_an_image_of_the_dataset(change: dict[str, str], state: str, severity: str) -> None:
    # What an older recipe was built on says nothing of the one of now.
    outside = () if "recipe" in change or "built_from" in change else (OUTSIDE,)
    row = only(images=(replace(IMAGE, **change),), outside=outside)  # type: ignore[arg-type]
    assert (row.part, row.state, row.severity) == ("image", state, severity)


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"published": "sha256:d2"}, "moved", "its registry has another image"),
        ({"local": Identity(id="sha256:id2", digest="")}, "moved", "the engine holds another"),
        ({"published": "", "problem": "no such host"}, "unknown", "can't be asked: no such host"),
        ({"subjects": ("never-built",)}, "unknown", "no build here recorded"),
    ],
)
def test_an_image_from_outside(change: dict[str, Any], state: str, words: str) -> None:
    row = only(outside=(replace(OUTSIDE, **change),))
    assert (row.part, row.subject, row.state) == ("outside image", "os:1", state)
    assert row.severity == ("warning" if state == "moved" else "note")
    assert words in row.message


def test_a_digest_pins_an_image() -> None:
    pinned = replace(OUTSIDE, reference="os@sha256:abc", local=None, published="")
    assert {row.state for row in drift(world(outside=(pinned,)))} == {"same"}


def test_a_registry_that_cannot_be_asked_hides_no_other_change() -> None:
    moved = replace(
        OUTSIDE, local=Identity(id="x", digest=""), published="", problem="no such host"
    )
    assert only(outside=(moved,)).state == "moved"


@pytest.mark.parametrize(
    ("change", "state", "severity"),
    [
        ({"sources": "s2"}, "edited", "warning"),
        ({"again": "p"}, "same", ""),
        ({"again": "q"}, "moved", "error"),
        ({"problem": "exit code 1"}, "gone", "error"),
    ],
)
def test_a_pinned_input(change: dict[str, str], state: str, severity: str) -> None:
    rows = [r for r in drift(world(inputs=(replace(INPUT, **change),))) if r.part == "input"]  # type: ignore[arg-type]
    assert [row.state for row in rows] == [state]
    assert not severity or rows[0].severity == severity


def test_an_input_without_a_pin_floats_until_it_is_made_again() -> None:
    item = replace(INPUT.item, pin_kind="unpinned", pin="the archive moves")
    free = replace(INPUT, item=item, made="m1")
    row = only(inputs=(free,))
    assert (row.state, row.severity) == ("floating", "note")
    assert "the archive moves" in row.message
    assert {r.state for r in drift(world(inputs=(replace(free, again="m1"),)))} == {"same"}
    moved = only(inputs=(replace(free, again="m2"),))
    assert (moved.state, moved.severity) == ("moved", "warning")


def test_floating_sources_and_tools_are_listed() -> None:
    places = (Floating(file="bases/tool/Dockerfile.1", where="line 2", message="a moving clone"),)
    row = only(floating=places)
    assert (row.part, row.state) == ("source", "floating")
    assert table([row]) == [
        "note     floating  source         bases/tool/Dockerfile.1: line 2: a moving clone"
    ]
    tool = only(engine="docker 2")
    assert (tool.part, tool.recorded, tool.now) == ("tool", "docker 1", "docker 2")


def test_without_an_engine_the_images_are_unknown_and_no_tool_has_moved() -> None:
    outside = replace(OUTSIDE, local=None, published="", problem="no container engine answers")
    rows = drift(world(engine="", problem="no container engine answers", outside=(outside,)))
    said = [(row.part, row.state) for row in rows if row.state != "same"]
    assert said == [("image", "unknown"), ("outside image", "unknown")]


def test_the_worst_stand_first_and_the_summary_counts() -> None:
    rows = drift(
        world(
            inputs=(replace(INPUT, again="q"),),
            floating=(Floating(file="f", where="", message="m\nline"),),
            images=(replace(IMAGE, held=""),),
        )
    )
    assert [line.split()[0] for line in table(rows)] == ["error", "warning", "note"]
    assert not any("\n" in line for line in table(rows))
    assert summary(rows) == "1 moved, 1 gone, 1 floating, 2 same"


def test_a_thousand_alike_are_counted() -> None:
    places = tuple(Floating(file=f"f{n}", where="", message="m") for n in range(1000))
    lines = table(drift(world(floating=places)))
    assert len(lines) == 41
    assert lines[-1] == "note floating source: 960 more in the report"


@pytest.mark.parametrize(
    ("image", "digests", "found"),
    [
        ("ubuntu:24.04", ("ubuntu@sha256:a",), "sha256:a"),
        ("docker.io/library/ubuntu", ("mirror/ubuntu@sha256:b", "ubuntu@sha256:a"), "sha256:a"),
        ("127.0.0.1:5000/os:1", ("127.0.0.1:5000/os@sha256:c",), "sha256:c"),
        ("ubuntu:24.04", ("other@sha256:a",), ""),
        ("ubuntu:24.04", (), ""),
    ],
)
def test_the_digest_of_an_images_own_registry(
    image: str, digests: tuple[str, ...], found: str
) -> None:
    assert registry_digest(image, digests) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM os:latest\n", ["the tag of os:latest is meant to move"]),
        ("FROM os:1\n", ["os:1 has no digest, and its tag may be set anew"]),
        ("FROM ns/tool:1\nRUN git clone https://e.org/a/b /b\n", ["clone"]),
        ("FROM ns/tool:1\nRUN curl -fsSL -o /a https://e.org/a\n", ["checks"]),
        ("FROM ns/tool:1\nRUN apt-get update && apt-get install -y git curl\n", ["git, curl"]),
        ("FROM ns/tool:1\nRUN apt-get install -y git=1:2.39\n", []),
        (
            "FROM ns/tool:1\nRUN echo deb http://snapshot.debian.org/archive/debian/2024 bookworm "
            "main >/etc/apt/sources.list && apt-get install -y git\n",
            [],
        ),
        ("FROM ns/tool:1\nCOPY a /a\n", []),
    ],
)
def test_what_nothing_pins_is_found_in_a_recipe(text: str, found: list[str]) -> None:
    recipe = base_recipe("Dockerfile", parse_dockerfile(text), {})
    messages = [place.message for place in floating_sources(recipe, "ns")]
    assert len(messages) == len(found), messages
    assert all(words in message for words, message in zip(found, messages, strict=True)), messages


# --- The step ---

NOWHERE = "unix:///nowhere/docker.sock"


def rows_of(root: Path) -> list[dict[str, Any]]:
    report = Store(root).read("drift", "@dataset")
    assert report is not None
    return list(report.data["rows"])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A base with one pinned input and one without a pin, both copied from outside the dataset."""
    root = make_dataset(tmp_path / "small", bases={"1": "FROM scratch\nCOPY a b /\n"}, tasks=1)
    write(tmp_path / "outside", "as it was\n")
    pin = digest.of_bytes(b"as it was\n")
    copied = shlex.quote(str(tmp_path / "outside"))
    entry = '[[input]]\nfile = "{}"\ncommand = ["sh", "-c", "cp {} $KBENCH_OUTPUT"]\n{}\n'
    pins = {"a": f'blake3 = "{pin}"', "b": 'unpinned = "it moves"'}
    text = "".join(entry.format(name, copied, how) for name, how in pins.items())
    write(root / "bases/tool/inputs.toml", text)
    doit(root, "base_inputs")
    return root


def test_inputs_are_made_again_only_when_that_is_asked_for(made: Path, tmp_path: Path) -> None:
    shallow = doit(made, "drift", DOCKER_HOST=NOWHERE).stdout
    assert "no container engine answers" in shallow
    assert "tool/b: not pinned: it moves" in shallow
    doit(made, "drift", "--deep", DOCKER_HOST=NOWHERE)
    write(tmp_path / "outside", "as it is now\n")
    doit(made, "drift", DOCKER_HOST=NOWHERE)
    deep = doit(made, "drift", "--deep", code=1, DOCKER_HOST=NOWHERE).stdout
    assert "tool/a: made again it isn't what its pin says" in deep
    assert "tool/b: made again it is another file" in deep
    assert "2 moved" in deep
    assert (made / ".kbench/inputs/tool/a").read_text() == "as it was\n"
    assert [p.name for p in sorted((made / ".kbench/inputs/tool").iterdir())] == ["a", "b"]
    (tmp_path / "outside").unlink()
    gone = doit(made, "drift", "--deep", code=1, DOCKER_HOST=NOWHERE).stdout
    assert "tool/a: can't be made again" in gone
    assert {row["state"] for row in rows_of(made) if row["part"] == "input"} == {"gone"}


def test_it_is_about_this_moment_and_no_part_of_plain_doit(made: Path) -> None:
    doit(made, "drift", DOCKER_HOST=NOWHERE)
    assert "1 done" in doit(made, "drift", DOCKER_HOST=NOWHERE).stdout
    (made / ".kbench/drift/@dataset.json").unlink()
    doit(made, code=None, DOCKER_HOST=NOWHERE)
    assert not (made / ".kbench/drift/@dataset.json").exists()


@pytest.fixture
def served() -> Iterator[Registry]:
    if not engine_box.engine.about().storage:
        pytest.skip("the engine is on another machine, which can't reach a registry of this one")
    with registry() as found:
        yield found
        client = engine_box.engine._api.client
        for tag in [*engine_box.engine.images()]:
            if tag.startswith((f"{NAMESPACE}/", f"127.0.0.1:{found.port}/")):
                client.remove_image(tag, force=True)


NAMESPACE = f"{engine_box.NAMESPACE}-drift"


@pytest.mark.engine
def test_a_tag_that_moves_is_found_and_fails_where_a_release_names_the_image(
    served: Registry, tmp_path: Path
) -> None:
    first = served.push(engine_box.rootfs(), "OS=1")
    root = make_dataset(
        tmp_path / "small",
        image=f"{NAMESPACE}/tool:1",
        bases={"1": f"FROM {served.image}\nENV BASE=1\n"},
        namespace=NAMESPACE,
        tasks=1,
    )
    doit(root, "build_images")
    assert "moved" not in doit(root, "drift").stdout
    [row] = [row for row in rows_of(root) if row["part"] == "outside image"]
    assert (row["state"], row["recorded"], row["now"]) == ("same", first, first)
    second = served.push(engine_box.rootfs(), "OS=2")
    assert f"{served.image}: its registry has another image" in doit(root, "drift").stdout
    [row] = [row for row in rows_of(root) if row["part"] == "outside image"]
    assert (row["severity"], row["recorded"], row["now"]) == ("warning", first, second)
    doit(root, "release")
    said = doit(root, "drift", code=1).stdout
    assert "which small-1.0.0 names" in said
    served.blobs.clear()
    assert "its registry can't be asked" in doit(root, "drift").stdout
    write(root / "bases/tool/Dockerfile.1", f"FROM {served.image}\nENV BASE=2\n")
    assert "tool:1: what it is made from was edited" in doit(root, "drift").stdout
