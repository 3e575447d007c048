"""docs/digests.md is run: its commands give the digests that the lock states."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release_kit import ADDER, TEXT, Kit, make_kit, read_lock

DOCUMENT = Path(__file__).parent.parent / "docs" / "digests.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
SUMS, TARBALL, CONTENT, HARBOR = BLOCKS

TOOLS = ("b3sum", "zstd", "sha256sum")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)} (Debian's packages)"
)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    kit = make_kit(tmp_path / "set")
    kit.write("bases/adder/Dockerfile.jdk21", "FROM scratch\n")
    kit.write("bases/manifest", kit.path("bases/manifest").read_text("utf-8") + "# more\n"
              "adder jdk21 Dockerfile.jdk21 # the newest\n")  # fmt: skip
    kit.write(f"tasks/{ADDER}/environment/a b/with space", "x")
    kit.write(f"tasks/{ADDER}/environment/a-b", "sorts elsewhere in most locales")
    kit.rebuild()
    return kit


def bash(script: str, folder: Path) -> list[str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def unpacked(release: Path) -> Path:
    bash(TARBALL, release)
    return release / release.name


def test_the_checksum_files_are_those_of_the_usual_tools(kit: Kit) -> None:
    lines = bash(SUMS, kit.released())
    assert len(lines) == 10
    assert all(line.endswith(": OK") for line in lines)


def test_the_tar_stream_has_the_digest_of_the_lock(kit: Kit) -> None:
    release = kit.released()
    assert bash(TARBALL, release)[0].split()[0] == read_lock(release).archive.tar


def test_tasks_bases_and_content_have_the_digests_of_the_lock(kit: Kit) -> None:
    release = kit.released()
    lock = read_lock(release)
    folder = unpacked(release)
    assert bash(CONTENT, folder)[-1] == lock.content
    parts = (folder / "parts").read_text(encoding="utf-8").splitlines()
    expected = {f"tasks/{t.id} {t.digest}" for t in lock.tasks}
    expected |= {f"bases/{b.name} {b.dockerfile} {b.digest}" for b in lock.bases}
    assert set(parts) == expected
    assert len(expected) == 6


def test_a_task_has_the_digest_of_harbor(kit: Kit) -> None:
    release = kit.released()
    folder = unpacked(release)
    task = next(t for t in read_lock(release).tasks if t.id == ADDER)
    assert bash(f"{HARBOR}\nharbor_task tasks/{ADDER}", folder) == [task.harbor[7:]]


def test_without_bases_the_content_hash_is_over_the_tasks(kit: Kit) -> None:
    shutil.rmtree(kit.path("bases"))
    kit.recipes.clear()
    release = kit.released()
    folder = unpacked(release)
    assert bash(CONTENT, folder)[-1] == read_lock(release).content
    assert TEXT in (folder / "parts").read_text(encoding="utf-8")
