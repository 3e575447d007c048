"""From a repository to tasks that the graph proves, with a real engine at every step."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine_box, trial_kit, verifier_image

pytestmark = pytest.mark.engine

SEALING = "awk basename chown cmp comm cut grep id mktemp rmdir sort stat tail uname uniq wc xargs"
NAMESPACE = f"kbench-test-mined-{os.getpid()}"
IMAGE = f"{engine_box.NAMESPACE}/emitted:1"
LIB = "def one():\n    return 1\n\n\ndef two():\n    return {two}\n"
TEST = "import lib\n\n\ndef test_two():\n    assert lib.two() == 2\n"
CONFIG = f"""
[dataset]
name = "mined"
namespace = "{NAMESPACE}"

[mine]
preset = "python-pytest"

[[mine.environment]]
name = "py"
image = "{IMAGE}"
workdir = "/home/checkout"
copies = ["words.txt"]
prepare = ["test -s /opt/kbench/words.txt", "mkdir built"]
command = ["python3", "/run_tests.py", "{{files}}"]
reports = ["report.xml"]
timeout_sec = 30

[mine.emit.metadata.source]
code_change_url = "https://forge.example.org/acme/text/pulls/{{number}}"
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The trials' image, with the tools that a seal needs as well."""
    folder = tmp_path_factory.mktemp("image")
    text = f"FROM scratch\nADD root.tar /\nADD run_tests.py /\nRUN {verifier_image.LINK_PYTHON}\n"
    context = {
        "root.tar": verifier_image.programs(f"{verifier_image.PROGRAMS} {SEALING}"),
        "run_tests.py": trial_kit.RUNNER.encode(),
        "Dockerfile": text.encode(),
    }
    built = engine_box.engine.build(engine_box.spec(folder, text, image=IMAGE, context=context))
    assert built.status == "built", built
    yield IMAGE
    client = engine_box.engine._api.client
    for one in client.images():
        for tag in one["RepoTags"] or ():
            if tag.startswith(f"{NAMESPACE}/"):
                client.remove_image(tag, force=True)
    client.remove_image(IMAGE, force=True)


def test_mined_tasks_pass_validate_seal_and_selfcheck_as_they_are(
    image: str, tmp_path: Path
) -> None:
    del image
    project = trial_kit.Project(tmp_path)
    mit = (Path(__file__).parent / "data" / "licences" / "MIT").read_text(encoding="utf-8")
    ignored = "__pycache__/\nreport.xml\nbuilt/\n"
    project.change({"LICENSE": mit, ".gitignore": ignored, "lib.py": LIB.format(two=3)})
    project.pull({"lib.py": LIB.format(two=2), "tests/test_two.py": TEST})
    root = tmp_path / "dataset"
    root.mkdir()
    (root / "kbench.toml").write_text(CONFIG, encoding="utf-8")
    (root / "words.txt").write_text("a word\n", encoding="utf-8")
    clone = str(project.upstream.root)
    tried = trial_kit.kbench(root, clone, "--run")
    assert tried.code == 0, tried.stdout + tried.stderr
    said = {
        "version": 1,
        "key": "",
        "source": "issue",
        "outcome": "accepted",
        "text": "# Two is three\n\n`lib.two()` gives 3.\n",
        "issues": ["https://forge.example.org/acme/text/issues/9"],
    }
    place = root / "mined" / "acme_text" / "1" / "statement.json"
    place.write_text(json.dumps(said), encoding="utf-8")
    emitted = trial_kit.kbench(root, clone, "--emit")
    assert emitted.code == 0, emitted.stdout + emitted.stderr
    steps = ("validate", "build_images", "seal", "selfcheck")
    done = subprocess.run(
        [sys.executable, "-m", "doit", *steps],
        cwd=root,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok      validate     acme_text-1" in done.stdout
    assert "seal         acme_text-1               sealed" in done.stdout
    assert "nop 0, oracle 1" in done.stdout
