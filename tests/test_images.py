"""Recipes: one byte rebuilds an image and what stands on it, and nothing else does."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import docker.errors
import pytest

from kbench_build import digest
from kbench_build.model import Base, Finding, Report
from kbench_build.model.jobs import Job
from kbench_build.rim.tree import scan_tree
from kbench_build.rules.build_context import sources
from kbench_build.rules.dockerfile import images, parse_dockerfile
from kbench_build.rules.images import (
    BaseSource,
    Recipe,
    base_recipes,
    build_order,
    is_held,
    missing_bases,
    normal_reference,
    task_recipe,
)
from kbench_build.steps.build_images import build_base, build_image
from tests import engine_box
from tests.engine_box import NAMESPACE, engine

# --- Which digest a recipe has ---


def _recipes(root: Path, manifest: Mapping[str, str], inputs: Mapping[str, str] | None = None,
             namespace: str = "ns") -> dict[str, Recipe]:  # fmt: skip
    return {r.subject: r for r in _all(root, manifest, inputs or {}, namespace)[0]}


def _all(root: Path, manifest: Mapping[str, str], inputs: Mapping[str, str],
         namespace: str = "ns") -> tuple[tuple[Recipe, ...], tuple[Finding, ...]]:  # fmt: skip
    found = []
    for line, (name, dockerfile) in enumerate(manifest.items(), start=1):
        repo, tag = name.split(":")
        base = Base(repo=repo, tag=tag, dockerfile=f"bases/{repo}/{dockerfile}", line=line)
        text = (root / base.dockerfile).read_text()
        instructions = parse_dockerfile(text)
        found.append(
            BaseSource(
                base=base,
                images=images(instructions),
                sources=sources(instructions),
                dockerfile_digest=digest.of_text(text),
                files=scan_tree(root / base.context),
                inputs=inputs,
            )
        )
    return base_recipes(found, namespace)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "a/Dockerfile.one": "FROM scratch\nADD rootfs.tar /\nCOPY shared one.txt /\n",
        "a/Dockerfile.two": "FROM ns/a:one\nCOPY shared two /\n",
        "a/shared": "s",
        "a/one.txt": "1",
        "a/two/x": "2",
        "a/make.sh": "makes rootfs.tar",
        "b/Dockerfile": "FROM ns/a:two AS first\nFROM debian\nCOPY --from=ns/a:one /x /x\n",
        "b/more": "m",
    }
    for name, text in files.items():
        path = tmp_path / "bases" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


MANIFEST = {"b:b": "Dockerfile", "a:two": "Dockerfile.two", "a:one": "Dockerfile.one"}
INPUTS = {"rootfs.tar": "pin", "other.tar": "pin"}


@pytest.mark.parametrize(
    ("edited", "rebuilt"),
    [
        ("a/Dockerfile.one", {"a:one", "a:two", "b:b"}),
        ("a/Dockerfile.two", {"a:two", "b:b"}),
        ("b/Dockerfile", {"b:b"}),
        ("a/shared", {"a:one", "a:two", "b:b"}),
        ("a/one.txt", {"a:one", "a:two", "b:b"}),
        ("a/two/x", {"a:two", "b:b"}),
        ("a/make.sh", set()),
        ("b/more", set()),
    ],
)
def test_one_byte_rebuilds_what_is_made_from_it(root: Path, edited: str, rebuilt: set[str]) -> None:
    before = _recipes(root, MANIFEST, INPUTS)
    path = root / "bases" / edited
    path.write_text(path.read_text() + "\n# edited")
    after = _recipes(root, MANIFEST, INPUTS)
    assert {name for name in before if before[name].digest != after[name].digest} == rebuilt


def test_a_run_bit_counts_and_a_time_does_not(root: Path) -> None:
    before = _recipes(root, MANIFEST, INPUTS)
    os.utime(root / "bases/a/shared", (1, 1))
    assert _recipes(root, MANIFEST, INPUTS) == before
    (root / "bases/a/two/x").chmod(0o755)
    after = _recipes(root, MANIFEST, INPUTS)
    assert after["a:two"].digest != before["a:two"].digest
    assert after["a:one"].digest == before["a:one"].digest


def test_a_pin_counts_where_the_file_is_taken(root: Path) -> None:
    before = _recipes(root, MANIFEST, INPUTS)
    assert before["a:one"].inputs == ("rootfs.tar",)
    assert before["a:two"].inputs == ()
    other = _recipes(root, MANIFEST, {**INPUTS, "other.tar": "x"})
    assert other == before
    moved = _recipes(root, MANIFEST, {**INPUTS, "rootfs.tar": "x"})
    assert all(moved[name].digest != before[name].digest for name in before)


def test_a_file_that_was_not_made_yet_leaves_no_digest_above_it(root: Path) -> None:
    found = _recipes(root, MANIFEST, {**INPUTS, "rootfs.tar": ""})
    assert [found[name].digest for name in ("a:one", "a:two", "b:b")] == ["", "", ""]
    assert not is_held({"dev.kbench.recipe": ""}, found["a:one"])


def test_recipes_come_in_the_order_to_build_them(root: Path) -> None:
    recipes, findings = _all(root, MANIFEST, INPUTS)
    assert [r.image for r in recipes] == ["ns/a:one", "ns/a:two", "ns/b:b"]
    assert recipes[2].stands_on == ("ns/a:two", "ns/a:one")
    assert findings == ()


def test_a_circle_is_named_once(root: Path) -> None:
    (root / "bases/a/Dockerfile.one").write_text("FROM ns/a:two\n")
    recipes, findings = _all(root, MANIFEST, INPUTS)
    assert recipes == ()
    assert [(f.severity, f.file) for f in findings] == [("error", "bases/a/Dockerfile.one")]
    assert findings[0].message == (
        "bases in a circle: ns/a:one stands on ns/a:two stands on ns/a:one"
    )


def test_a_from_that_nothing_makes_is_named(root: Path) -> None:
    (root / "bases/b/Dockerfile").write_text("ARG V\nFROM ns/none:x\nFROM img:$V\n")
    _, findings = _all(root, MANIFEST, INPUTS)
    assert [f.message for f in findings] == [
        "stands on ns/none:x, which no line of bases/manifest makes",
        "FROM img:$V: no image can be told from it",
    ]


def test_build_order_of_a_diamond() -> None:
    order, circles = build_order({"d": ["b", "c"], "c": ["a"], "b": ["a"], "a": ["outside"]})
    assert (order[0], set(order[1:3]), order[3]) == ("a", {"b", "c"}, "d")
    assert circles == ()


def test_a_task_recipe_counts_its_environment_and_its_bases() -> None:
    def of(environment: str = "e", settings: str = "s", **bases: str) -> Recipe:
        return task_recipe(
            namespace="ns", task="t", images=("ns/a:one", "ubuntu"), environment=environment,
            settings=settings, bases={f"ns/a:{k}": v for k, v in bases.items()},
        )  # fmt: skip

    plain = of(one="1", two="2")
    assert (plain.image, plain.stands_on) == ("ns/task:t", ("ns/a:one",))
    assert of(one="1", two="3").digest == of(one="1", settings="x").digest == plain.digest
    assert len({plain.digest, of("x", one="1").digest, of(one="x").digest}) == 3
    assert of(two="2").digest == ""
    assert missing_bases(of(two="2"), {"ns/a:two": "2"}) == ("ns/a:one",)


def test_without_a_dockerfile_the_settings_name_the_image() -> None:
    digests = {
        task_recipe(
            namespace="ns", task="t", images=(), environment="e", settings=s, bases={}
        ).digest
        for s in "xy"
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("image", "normal"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("host:5000/a", "host:5000/a:latest"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_references(image: str, normal: str) -> None:
    assert normal_reference(image) == normal


# --- Building them ---


@pytest.fixture
def dataset(tmp_path: Path, tiny: str) -> Path:
    files = {
        "bases/r/Dockerfile.low": (
            f"FROM {tiny} AS stage\nRUN echo staged >/staged\n"
            f"FROM {tiny}\nCOPY --from=stage /staged /staged\nCOPY low made.txt /\n"
        ),
        "bases/r/Dockerfile.side": f"FROM {tiny}\nCOPY side /\n",
        "bases/r/low": "low",
        "bases/r/side": "side",
        ".kbench/inputs/r/made.txt": "made",
        "tasks/t/task.toml": "[environment]\nbuild_timeout_sec = 60.0\n",
        "tasks/t/environment/Dockerfile": f"FROM {NAMESPACE}/r:low\nCOPY . /env\n",
        "tasks/t/environment/kept": "kept",
        "tasks/t/environment/left.out": "left",
        "tasks/t/environment/.dockerignore": "*.out\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


BUILT = {"r:low": "Dockerfile.low", "r:side": "Dockerfile.side"}


def _build_all(root: Path, *, rebuild: bool = False) -> dict[str, Report]:
    recipes = _recipes(root, BUILT, {"made.txt": "pin"}, NAMESPACE)
    reports = {}
    for line, (name, file) in enumerate(BUILT.items(), start=1):
        repo, tag = name.split(":")
        base = Base(repo=repo, tag=tag, dockerfile=f"bases/{repo}/{file}", line=line)
        reports[name] = build_base(root, base, recipes[name], engine=engine, rebuild=rebuild)
    reports["t"] = build_image(root, "t", _task(root, recipes), engine=engine, rebuild=rebuild)
    return reports


def _task(root: Path, recipes: Mapping[str, Recipe]) -> Recipe:
    environment = root / "tasks/t/environment"
    dockerfile = environment / "Dockerfile"
    return task_recipe(
        namespace=NAMESPACE,
        task="t",
        images=images(parse_dockerfile(dockerfile.read_text())) if dockerfile.exists() else (),
        environment=digest.of_tree(scan_tree(environment)),
        settings=digest.of_text((root / "tasks/t/task.toml").read_text()),
        bases={r.image: r.digest for r in recipes.values()},
    )


def _rebuilt(before: Mapping[str, Report], after: Mapping[str, Report]) -> set[str]:
    return {n for n in after if after[n].summary != "held already" and before[n] != after[n]}


@pytest.mark.engine
def test_images_are_built_once_and_again_for_a_byte(dataset: Path) -> None:
    first = _build_all(dataset)
    assert all(report.ok for report in first.values()), first
    assert first["t"].data["image"] == f"{NAMESPACE}/task:t"
    held = engine.images()[f"{NAMESPACE}/task:t"]
    assert held.id == first["t"].data["image_id"]
    assert held.labels["dev.kbench.recipe"] == first["t"].inputs
    assert held.labels["dev.kbench.kind"] == "task"
    assert {"size", "seconds", "log"} <= set(first["t"].data)
    for path in dataset.rglob("*"):
        os.utime(path, (time.time() + 9, time.time() + 9))
    second = _build_all(dataset)
    assert {report.summary for report in second.values()} == {"held already"}
    (dataset / "bases/r/low").write_text("Low")
    third = _build_all(dataset)
    assert _rebuilt(second, third) == {"r:low", "t"}
    (dataset / "bases/r/side").write_text("Side")
    assert _rebuilt(third, _build_all(dataset)) == {"r:side"}
    (dataset / "tasks/t/environment/kept").write_text("Kept")
    assert _rebuilt(third, _build_all(dataset)) == {"t"}


@pytest.mark.engine
def test_an_image_under_the_tag_without_the_label_does_not_count(dataset: Path) -> None:
    _build_all(dataset)
    engine._api.client.tag(engine_box.TINY, f"{NAMESPACE}/r", tag="side")
    again = _build_all(dataset)
    assert {name for name, r in again.items() if r.summary != "held already"} == {"r:side"}


@pytest.mark.engine
def test_rebuild_forces(dataset: Path) -> None:
    _build_all(dataset)
    assert "held already" not in {r.summary for r in _build_all(dataset, rebuild=True).values()}


@pytest.mark.engine
def test_the_context_is_what_the_recipe_counts(dataset: Path) -> None:
    _build_all(dataset)
    job_output = _output(f"{NAMESPACE}/task:t", "ls -A /env; cat /made.txt /low /staged")
    assert job_output.split() == [".dockerignore", "Dockerfile", "kept", "madelowstaged"]


def _output(image: str, script: str) -> str:
    return engine(Job(name="t", image=image, command=("sh", "-c", script), timeout_sec=60)).output


@pytest.mark.engine
def test_no_stage_image_stays(dataset: Path) -> None:
    replaced = []
    for turn in range(2):
        (dataset / "bases/r/low").write_text(f"turn {turn}")
        replaced.append(_build_all(dataset)["t"].data["image_id"])
    client = engine._api.client
    untagged = [image["Id"] for image in client.images(filters={"dangling": True})]
    assert not [i for i in untagged if "staged" in _last_step(i)]
    # The image that had the tag before is gone too.
    assert replaced[0] not in {image["Id"] for image in client.images(all=True)}


def _last_step(image: str) -> str:
    try:
        return str(engine._api.client.history(image)[0]["CreatedBy"])
    except docker.errors.APIError:
        return ""


@pytest.mark.engine
def test_a_recipe_that_does_not_build_is_invalid_and_says_why(dataset: Path) -> None:
    dockerfile = dataset / "tasks/t/environment/Dockerfile"
    dockerfile.write_text(f"FROM {NAMESPACE}/r:low\nRUN echo because >&2; exit 9\n")
    report = _build_all(dataset)["t"]
    assert (report.ok, report.data["outcome"]) == (False, "invalid")
    assert "code: 9" in report.summary
    assert "because" in report.data["details"]
    assert "because" in (dataset / str(report.data["log"])).read_text()


@pytest.mark.engine
def test_a_build_without_end_is_a_time_out(dataset: Path) -> None:
    (dataset / "tasks/t/task.toml").write_text("[environment]\nbuild_timeout_sec = 1.0\n")
    dockerfile = dataset / "tasks/t/environment/Dockerfile"
    dockerfile.write_text(f"FROM {NAMESPACE}/r:low\nRUN sleep 299\n")
    report = _build_all(dataset)["t"]
    assert (report.ok, report.data["outcome"]) == (False, "timeout")


@pytest.mark.engine
def test_a_line_for_buildkit_is_named_without_buildx(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    dockerfile = dataset / "tasks/t/environment/Dockerfile"
    dockerfile.write_text(f"FROM {NAMESPACE}/r:low\n\nCOPY --chmod=755 kept /\n")
    report = _build_all(dataset)["t"]
    assert not report.ok
    assert "Dockerfile: line 3: COPY --chmod needs BuildKit" in report.summary


@pytest.mark.engine
def test_a_task_may_name_its_image(dataset: Path) -> None:
    (dataset / "tasks/t/task.toml").write_text(
        f'[environment]\ndocker_image = "{engine_box.TINY}"\n'
    )
    (dataset / "tasks/t/environment/Dockerfile").unlink()
    report = _build_all(dataset)["t"]
    assert report.ok, report
    assert engine.images()[f"{NAMESPACE}/task:t"].labels["dev.kbench.recipe"] == report.inputs
