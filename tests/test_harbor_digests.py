"""Harbor's digests, against values that Harbor 0.26 itself gave, and against it if at hand."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbench_build.rim.tree import scan_tree
from kbench_build.rules import harbor
from tests import harbor_kit
from tests.release_kit import ADDER, TEXT, make_kit, read_lock

# A task with what the rules of Harbor's digest are about: leftovers, odd names, links, other files.
FILES: Mapping[str, str] = {
    "task.toml": 'schema_version = "1.4"\n[task]\nname = "acme/odd"\n',
    "instruction.md": "Mend it.\n",
    "README.md": "read\n",
    "notes.md": "not counted\n",
    "environment/Dockerfile": "FROM scratch\n",
    "environment/x y/größe.txt": "42\n",
    "environment/x-1.txt": "sorts before x/\n",
    "environment/x/1.txt": "sorts after x-\n",
    "tests/test.sh": "exit 0\n",
    "tests/build.log": "maybe ignored\n",
    "tests/deep/keep.log": "maybe kept\n",
    "tests/deep/other.log": "kept by no rule\n",
    "solution/solve.sh": "true\n",
    "steps/one/tests/test.sh": "exit 1\n",
    "steps/one/instruction.md": "first\n",
}
LINKS = {"tests/link.sh": "test.sh", "tests/folder": "deep", "tests/gone": "nowhere"}

# As computed by Harbor 0.26.0's Packager.compute_content_hash.
RECORDED = {
    "plain": "sha256:7017ec71abe0e3b523863efcc843c01104fdb33ffe1c2c0f5436b45fe78c08d3",
    "gitignore": "sha256:f19ef6abba7af42f93a699c68cee469e7dacc411eeb9244ae27ed5fd852ff89f",
    "harborignore": "sha256:659b6d31f7322f61166b630164e525b0371b65c229bdc138a77e3552cbbae1fb",
}

IGNORES: Mapping[str, Mapping[str, str]] = {
    # Of a task with a .gitignore Harbor would count leftovers, which no release holds.
    "plain": {"environment/old.swp": "leftover\n"},
    "gitignore": {".gitignore": "*.log\n!keep.log\n/environment/x/\n"},
    "harborignore": {
        "tests/.harborignore": "*.log\n",
        "tests/deep/.harborignore": "!keep.log\n",
        "environment/.harborignore": "Dockerfile\n",
    },
}


def make_task(folder: Path, case: str) -> Path:
    for name, text in {**FILES, **IGNORES[case]}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    return folder


def digest_of(folder: Path) -> str:
    contents, ignore_files = {}, {}
    for entry in scan_tree(folder):
        path = folder / entry.path
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        contents[entry.path] = harbor.content_of(entry.mode, hashlib.sha256(data).hexdigest(), data)
        if harbor.is_ignore_file(entry.path):
            ignore_files[entry.path] = data.decode()
    return harbor.task_digest(contents, ignore_files)


@pytest.mark.parametrize("case", IGNORES)
def test_a_task_has_the_digest_that_harbor_gave_it(tmp_path: Path, case: str) -> None:
    assert digest_of(make_task(tmp_path / "odd", case)) == RECORDED[case]


def test_a_dataset_has_harbors_digest() -> None:
    tasks = ["sha256:" + "b" * 64, "sha256:" + "a" * 64]
    joined = ",".join(["a" * 64, "b" * 64])
    assert (
        harbor.dataset_digest(tasks, {}) == f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}"
    )
    files = {"metric.py": "sha256:" + "c" * 64}
    joined += ";metric.py:" + "c" * 64
    assert (
        harbor.dataset_digest(tasks, files)
        == f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}"
    )


@pytest.mark.parametrize("name", ["acme/a", "a.b-c/d_e.f", "A/0"])
def test_names_that_harbor_takes(name: str) -> None:
    assert harbor.is_name(name)


@pytest.mark.parametrize("name", ["", "a", "/a", "a/", "a/b/c", "-a/b", "a/..b", "a/b c", 7, None])
def test_names_that_harbor_refuses(name: object) -> None:
    assert not harbor.is_name(name)


def test_links_in_a_circle_end() -> None:
    files = {"tests/a": harbor.Content(link="b"), "tests/b": harbor.Content(link="a")}
    assert harbor.task_digest(files, {}) == f"sha256:{hashlib.sha256().hexdigest()}"


# The real Harbor, in its own Python.

ASK = """
import json, sys
from pathlib import Path
from harbor.models.dataset.manifest import DatasetManifest
from harbor.publisher.packager import Packager
answer = {p: Packager.compute_content_hash(Path(p))[0] for p in sys.argv[2:]}
if sys.argv[1]:
    manifest = DatasetManifest.from_toml_file(sys.argv[1])
    answer["dataset"] = manifest.compute_content_hash()
    answer["tasks"] = {t.name: t.digest for t in manifest.tasks}
    answer["about"] = [manifest.dataset.name, manifest.dataset.version]
print(json.dumps(answer))
"""


def ask_harbor(manifest: str, *tasks: Path) -> dict[str, object]:
    env = {**os.environ, "HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [harbor_kit.python(), "-c", ASK, manifest, *map(str, tasks)],
        env=env,
        capture_output=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.harbor
@pytest.mark.parametrize("case", IGNORES)
def test_harbor_itself_gives_the_recorded_digests(tmp_path: Path, case: str) -> None:
    folder = make_task(tmp_path / "odd", case)
    assert f"sha256:{ask_harbor('', folder)[str(folder)]}" == RECORDED[case]


@pytest.mark.harbor
def test_harbor_takes_the_dataset_toml_of_a_release(tmp_path: Path) -> None:
    release = make_kit(tmp_path / "set").released()
    plain = tmp_path / "out.tar"
    import zstandard

    with (release / "demo-1.0.0.tar.zst").open("rb") as packed, plain.open("wb") as out:
        zstandard.ZstdDecompressor().copy_stream(packed, out)
    subprocess.run(["tar", "-xf", plain, "-C", tmp_path], check=True)
    tasks = tmp_path / "demo-1.0.0" / "tasks"
    folders = {task: tasks / task for task in (ADDER, TEXT)}
    answer = ask_harbor(str(tasks / "dataset.toml"), *folders.values())
    lock = read_lock(release)
    assert lock.harbor == f"sha256:{answer['dataset']}"
    assert answer["about"] == ["kotlin-bench/demo", "1.0.0"]
    assert answer["tasks"] == {t.harbor_name: t.harbor for t in lock.tasks}
    for task in lock.tasks:
        assert task.harbor == f"sha256:{answer[str(folders[task.id])]}"
