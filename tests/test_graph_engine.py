"""The graph with a real engine: what is built again and what isn't, and runs that die."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbench_build.rim.store import Store
from tests import engine_box
from tests.graph_kit import command, counts, doit, environment, lines, make_dataset, write

pytestmark = pytest.mark.engine

TOOL = "acme__tool-1"
NAMESPACE = f"{engine_box.NAMESPACE}-graph"


@pytest.fixture
def root(tmp_path: Path, tiny: str) -> Iterator[Path]:
    """Two tasks on `tool:2`, which stands on `tool:1`; one on `tool:3`."""
    root = make_dataset(
        tmp_path / "small",
        image=f"{NAMESPACE}/tool:2",
        bases={
            "1": f"FROM {tiny}\nENV BASE=1\n",
            "2": f"FROM {NAMESPACE}/tool:1\nENV BASE=2\n",
            "3": f"FROM {tiny}\nENV BASE=3\n",
        },
        namespace=NAMESPACE,
        require='["validate", "selfcheck"]',
    )
    write(root / "tasks/acme__tool-3/environment/Dockerfile", f"FROM {NAMESPACE}/tool:3\n")
    yield root
    client = engine_box.engine._api.client
    for name in [tag for tag in engine_box.engine.images() if tag.startswith(f"{NAMESPACE}/")]:
        client.remove_image(name, force=True)


def built(output: str) -> dict[str, list[str]]:
    steps = ("build_bases", "build_images", "selfcheck")
    return {step: found for step in steps if (found := lines(output, step))}


def test_from_nothing_to_a_release_and_then_nothing_to_do(root: Path) -> None:
    first = built(doit(root).stdout)
    assert first["build_bases"] == ["tool:1", "tool:3", "tool:2"]
    assert sorted(first["selfcheck"]) == ["acme__tool-1", "acme__tool-2", "acme__tool-3"]
    report = Store(root).read("selfcheck", "acme__tool-1")
    assert report is not None
    assert "nop" in str(report.data)
    for path in root.rglob("*"):
        if ".kbench" not in path.parts:
            os.utime(path)
    assert built(doit(root).stdout) == {}
    doit(root, "release")
    assert counts(doit(root, "release", "verify").stdout).keys() == {"done", "up to date"}


def test_one_byte_of_a_recipe_rebuilds_it_and_what_stands_on_it_and_nothing_else(
    root: Path,
) -> None:
    doit(root)
    write(root / "bases/tool/Dockerfile.2", f"FROM {NAMESPACE}/tool:1\nENV BASE=two\n")
    again = built(doit(root).stdout)
    assert again["build_bases"] == ["tool:2"]
    assert again["build_images"] == again["selfcheck"] == ["acme__tool-1", "acme__tool-2"]
    write(root / "tasks/acme__tool-3/environment/Dockerfile", f"FROM {NAMESPACE}/tool:3\nUSER 0\n")
    assert built(doit(root).stdout) == {
        "build_images": ["acme__tool-3"],
        "selfcheck": ["acme__tool-3"],
    }


def test_a_changed_test_checks_one_task_again_and_builds_nothing(root: Path) -> None:
    doit(root)
    path = root / "tasks/acme__tool-2/tests/test.sh"
    write(path, path.read_text() + "# more\n")
    assert built(doit(root).stdout) == {"selfcheck": ["acme__tool-2"]}


def test_an_image_that_is_gone_is_built_again(root: Path) -> None:
    doit(root)
    engine_box.engine._api.client.remove_image(f"{NAMESPACE}/task:acme__tool-1", force=True)
    assert built(doit(root, "build_images").stdout) == {"build_images": ["acme__tool-1"]}


def test_an_image_with_our_label_counts_without_a_report(root: Path) -> None:
    doit(root, "build_images")
    held = engine_box.engine.images()[f"{NAMESPACE}/task:acme__tool-1"].id
    subprocess.run(["rm", "-rf", root / ".kbench"], check=True)
    doit(root, "build_images")
    assert engine_box.engine.images()[f"{NAMESPACE}/task:acme__tool-1"].id == held


def test_rebuild_forces_and_runs_repeats(root: Path) -> None:
    doit(root)
    forced = doit(root, "build_bases", "--rebuild").stdout
    assert sorted(built(forced)["build_bases"]) == ["tool:1", "tool:2", "tool:3"]
    assert len(built(doit(root, "selfcheck", "--runs", "3").stdout)["selfcheck"]) == 3
    report = Store(root).read("selfcheck", "acme__tool-1")
    assert report is not None
    assert report.data["runs"] == 3
    assert built(doit(root, "selfcheck", "--runs", "2").stdout) == {}
    assert built(doit(root, "runs=4", "selfcheck:*tool-1").stdout)["selfcheck"] == ["acme__tool-1"]


def test_a_probe_waits_for_the_selfcheck_and_holds(root: Path) -> None:
    assert "from 1 up" in doit(root, "probe", "--hunks", "-1", code=2).stderr
    first = doit(root, "probe:acme__tool-1").stdout
    assert (lines(first, "selfcheck"), lines(first, "probe")) == ([TOOL], [TOOL])
    assert "not probed: there is no solution/fix.patch" in first
    assert lines(doit(root, "hunks=90", "probe:acme__tool-1").stdout, "probe") == []
    assert lines(doit(root).stdout, "probe") == []


def test_a_verifier_that_rewards_nothing_is_found_and_named(root: Path) -> None:
    write(root / "tasks/acme__tool-1/tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n")
    # Validation tells it by rule already, and what it finds isn't run.
    assert "failed  validate" in doit(root, "selfcheck:acme__tool-1", code=1).stdout
    answer = '[[suppress]]\nrule = "verifier/*"\nreason = "a run is to find it"\n'
    write(root / "kbench.toml", (root / "kbench.toml").read_text() + answer)
    done = doit(root, "selfcheck", code=1).stdout
    assert counts(done)["failed"] == 1
    assert "nop" in next(line for line in done.splitlines() if line.startswith("failed"))
    doit(root, "release", code=1)
    assert not (root / "dist").exists()


def slow(root: Path) -> None:
    for number in (1, 2, 3):
        path = root / f"tasks/acme__tool-{number}/tests/test.sh"
        write(path, "sleep 1\n" + path.read_text())


@pytest.mark.parametrize(
    ("number", "processes"),
    [(signal.SIGINT, "0"), (signal.SIGTERM, "2"), (signal.SIGKILL, "0"), (signal.SIGKILL, "2")],
)
def test_a_run_that_dies_in_a_container_goes_on_and_leaves_none(
    root: Path, number: signal.Signals, processes: str
) -> None:
    slow(root)
    doit(root, "build_images")
    with subprocess.Popen(
        command("-n", processes, "selfcheck"),
        cwd=root,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        deadline = time.monotonic() + 60
        while not list((root / ".kbench/selfcheck").glob("*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(number)
        run.wait(timeout=60)
    finished = len(list((root / ".kbench/selfcheck").glob("*.json")))
    if number != signal.SIGKILL:
        assert run.returncode == 130
        wait_until_gone()
    again = doit(root, "selfcheck").stdout
    assert len(lines(again, "selfcheck")) <= 3 - finished + max(1, int(processes))
    wait_until_gone()


def wait_until_gone() -> None:
    deadline = time.monotonic() + 20
    while left := containers():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def containers() -> list[str]:
    """The containers of this test's images, whatever else the engine runs."""
    images = {i.id for tag, i in engine_box.engine.images().items() if tag.startswith(NAMESPACE)}
    listed = engine_box.engine._api.client.containers(all=True)
    return [item["Id"] for item in listed if item["ImageID"] in images]
