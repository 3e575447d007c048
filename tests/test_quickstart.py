"""The shipped dataset, from a fresh clone to a verified release, and under the real Harbor."""

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbench_build.rim.dataset import read_task_toml
from kbench_build.rim.store import Store
from tests import harbor_kit, remine_kit
from tests.graph_kit import counts

ROOT = Path(__file__).parent.parent
TASKS = sorted(p.name for p in (ROOT / "tasks").iterdir() if p.is_dir())

pytestmark = [pytest.mark.engine, pytest.mark.dataset]


def quickstart(clone: Path) -> str:
    done = subprocess.run(
        [clone / "scripts" / "quickstart.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the last commit, as a stranger gets it."""
    folder = tmp_path_factory.mktemp("stranger") / "kbench-build"
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, folder], check=True)
    return folder


@pytest.fixture(scope="session")
def first(clone: Path) -> str:
    """What the first run printed."""
    return quickstart(clone)


def test_it_ends_with_the_tarball_and_the_content_hash(clone: Path, first: str) -> None:
    tarball, content = (line.split()[-1] for line in first.splitlines()[-2:])
    assert (clone / tarball).is_file()
    lock = json.loads(next(clone.glob("dist/*/lock.json")).read_bytes())
    assert content == f"blake3:{lock['content']}"


def test_a_second_run_has_nothing_to_do(clone: Path, first: str) -> None:
    assert first
    again = quickstart(clone).splitlines()
    totals = counts(next(line for line in again if "up to date" in line))
    assert set(totals) == {"up to date"}
    assert again[-1] == first.splitlines()[-1]


@pytest.mark.parametrize("task", TASKS)
def test_nop_is_0_and_oracle_is_1_in_fresh_containers(clone: Path, first: str, task: str) -> None:
    assert first
    report = Store(clone).read("selfcheck", task)
    assert report is not None
    assert report.ok
    assert report.data["isolation"] == "fresh"
    rewards = {result["kind"]: result["reward"] for result in report.data["results"]}
    assert rewards == {"nop": 0, "oracle": 1}


def test_a_shipped_task_is_mined_anew_from_real_runs(first: str, tmp_path: Path) -> None:
    assert first
    task, number = "larkspur_tabula-12", "12"
    upstream, root = remine_kit.cloned(tmp_path, "tabula"), remine_kit.dataset(tmp_path, "tabula")
    asked = [*remine_kit.asked_of(upstream, [task], tmp_path), "--only", number]
    tried = remine_kit.kbench(*asked, "--run", cwd=root)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    remine_kit.by_hand(task, root / "mined" / "larkspur_tabula" / number)
    done = remine_kit.kbench(*asked, "--statements", "--emit", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert remine_kit.differing(task, root) == []


@pytest.mark.parametrize("task", TASKS)
def test_every_seal_is_proved_and_the_proof_is_in_the_lock(
    clone: Path, first: str, task: str
) -> None:
    assert first
    report = Store(clone).read("seal", task)
    assert report is not None
    assert report.ok
    assert report.data["proof"]["forbidden_ids"]["searched"] > 0
    lock = json.loads(next(clone.glob("dist/*/lock.json")).read_bytes())
    locked = next(t for t in lock["tasks"] if t["id"] == task)
    assert locked["evidence"]["seal"]["data"]["proof"] == report.data["proof"]


# One task of each base; the layers of the others are the same but for the checkout.
ONE_OF_EACH = ("larkspur_tabula-12", "larkspur_tabula-25", "meridian_kalends-15")


@pytest.mark.parametrize("task", ONE_OF_EACH)
def test_no_layer_of_a_task_image_holds_history_past_its_base(
    clone: Path, first: str, task: str, tmp_path: Path
) -> None:
    assert first
    base = read_task_toml(clone, task)["metadata"]["source"]["base_commit"]
    repo = task.partition("_")[2].rpartition("-")[0]
    bundle = next(clone.glob(f".kbench/inputs/{repo}/*.bundle"))
    store = str(tmp_path / "store")
    git("init", "--quiet", "--bare", store)
    git("-C", store, "fetch", "--quiet", str(bundle), "refs/*:refs/up/*")
    listing = ("-C", store, "rev-list", "--objects", "--no-object-names")
    reached = set(git(*listing, base).split())
    everything = set(git(*listing, "--all").split())
    assert len(everything) > len(reached) > 0
    held = objects_in_layers(f"kotlin-bench/task:{task}", tmp_path)
    assert held & reached
    assert not held & (everything - reached)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def objects_in_layers(image: str, folder: Path) -> set[str]:
    """The ids of all git objects in packs or loose, in any layer, whatever later layers hide."""
    saved = folder / "image.tar"
    subprocess.run(["docker", "save", "-o", saved, image], check=True)
    ids: set[str] = set()
    with tarfile.open(saved) as outer:
        for member in outer:
            if not member.isfile() or not member.name.endswith("layer.tar"):
                continue
            stream = outer.extractfile(member)
            assert stream is not None
            with tarfile.open(fileobj=stream) as layer:
                for file in layer:
                    assert not file.name.endswith(".bundle")
                    if file.isfile() and file.name.endswith(".idx") and ".git/" in file.name:
                        index = layer.extractfile(file)
                        assert index is not None
                        shown = subprocess.run(
                            ["git", "show-index"],
                            input=index.read(),
                            capture_output=True,
                            check=True,
                        ).stdout.decode()
                        ids |= {line.split()[1] for line in shown.splitlines()}
                    elif found := re.search(r"objects/([0-9a-f]{2})/([0-9a-f]{38})$", file.name):
                        ids.add(found[1] + found[2])
    saved.unlink()
    return ids


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory, first: str) -> Path:
    """A folder for Harbor's jobs; the bases that the tasks stand on are there."""
    assert first
    return tmp_path_factory.mktemp("harbor")


def rewards_under_harbor(folder: Path, tasks: Path, agent: str) -> Mapping[str, float | None]:
    quick = folder / "quick.yaml"
    quick.write_text("services:\n  main:\n    stop_grace_period: 0s\n")
    program = Path(harbor_kit.python()).parent / "harbor"
    done = subprocess.run(
        [program, "run", "-p", tasks, "-a", agent, "-o", folder / "jobs", "--job-name", agent,
         "-n", "2", "-q", "-y", "--extra-docker-compose", quick],
        env=harbor_kit.environment(folder / "docker"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, float | None] = {}
    for path in (folder / "jobs" / agent).glob("*/result.json"):
        trial: dict[str, Any] = json.loads(path.read_bytes())
        rewards = (trial.get("verifier_result") or {}).get("rewards") or {}
        found[trial["task_name"].rpartition("/")[2]] = rewards.get("reward")
    return found


@pytest.mark.harbor
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_the_real_harbor_agrees(harbor: Path, clone: Path, agent: str, reward: float) -> None:
    tasks = harbor_kit.runnable(clone / "tasks", harbor / agent / "tasks")
    found = rewards_under_harbor(harbor, tasks, agent)
    assert found == dict.fromkeys((task.lower() for task in TASKS), reward)


def test_one_changed_byte_of_a_released_file_is_named(clone: Path, first: str) -> None:
    assert first
    release = next((clone / "dist").glob("[!.]*"))
    copy = shutil.copytree(release, clone / "copy")
    kbench = clone / ".venv" / "bin" / "kbench"
    subprocess.run([kbench, "verify", copy], capture_output=True, check=True)
    (copy / "lock.json").chmod(0o644)
    data = bytearray((copy / "lock.json").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "lock.json").write_bytes(data)
    done = subprocess.run([kbench, "verify", copy], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "lock.json" in done.stdout
