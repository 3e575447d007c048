"""Patches parted into source, tests and the rest: nothing is lost, which tree ids prove."""

import os
import subprocess
from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim.history import History
from kbench_build.rim.presets import preset_names, read_preset
from kbench_build.rules.patch_split import Split, split_patch
from kbench_build.rules.path_kinds import Kind, Patterns
from tests.upstream_kit import Upstream, new_upstream


def preset(name: str) -> Patterns:
    return Patterns(**read_preset(name))


KOTLIN = preset("kotlin-gradle")
SOURCE, TEST = "src/main/kotlin", "src/test/kotlin"


@pytest.fixture
def repo(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    repository.git("config", "core.autocrlf", "false")
    return repository


def put(repo: Upstream, path: str | bytes, content: bytes) -> Path:
    place = Path(os.fsdecode(os.fsencode(repo.root) + b"/" + os.fsencode(path)))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def parted(repo: Upstream, folder: Path, *, renames: bool = True) -> tuple[Split, bytes]:
    """The split of the newest commit, after proving that every order of its parts is lossless."""
    history = History(repo.root, folder)
    new, old, *_ = history.commits(history.tip())
    (patch,) = history.patches([(old.tree, new.tree)], renames=renames)
    assert isinstance(patch, bytes)
    found = split_patch(patch, KOTLIN)
    assert b"".join(s.data for s in found.sections) == patch
    if not found.crosses:
        kinds: tuple[Kind, ...] = ("source", "test", "build", "other")
        for order in (kinds, kinds[::-1], (*kinds[1:], kinds[0])):
            parts = [part for kind in order if (part := found.patch(kind))]
            assert history.apply(old.tree, parts) == new.tree
    return found, patch


def test_a_change_is_parted_by_what_its_files_are_for(repo: Upstream, tmp_path: Path) -> None:
    put(repo, "README.md", b"one\n")
    repo.commit("a", "Begin")
    put(repo, "README.md", b"two\n")
    put(repo, f"{SOURCE}/A.kt", b"class A\n")
    put(repo, f"{TEST}/ATest.kt", b"class ATest\nclass B\n")
    put(repo, "build.gradle.kts", b"plugins {}\n")
    repo.commit("a", "Change")
    found, _ = parted(repo, tmp_path / "store")
    assert found.paths("source") == (f"{SOURCE}/A.kt",)
    assert found.paths("test") == (f"{TEST}/ATest.kt",)
    assert found.paths("build") == ("build.gradle.kts",)
    assert found.paths("other") == ("README.md", "a")
    assert found.lines == {"source": 1, "test": 2, "build": 1, "other": 3}


def test_every_kind_of_change_survives(repo: Upstream, tmp_path: Path) -> None:
    latin = "größe".encode("latin-1")
    put(repo, f"{SOURCE}/moved.kt", b"line\n" * 40)
    put(repo, f"{TEST}/moved.kt", b"test\n" * 40)
    put(repo, f"{SOURCE}/crlf.kt", b"one\r\ntwo\r\n")
    put(repo, f"{SOURCE}/latin.kt", b"val x = '" + latin + b"'\n")
    put(repo, f"{SOURCE}/open.kt", b"no end")
    put(repo, f"{SOURCE}/gone.kt", b"gone\n")
    put(repo, f"{SOURCE}/bits.kt", b"bits\n")
    put(repo, f"{TEST}/data.bin", bytes(range(256)))
    put(repo, f"{TEST}/becomes-link.kt", b"text\n")
    put(repo, f"{SOURCE}/link.kt", b"").unlink()
    (repo.root / SOURCE / "link.kt").symlink_to("crlf.kt")
    put(repo, b'src/main/kotlin/odd\xff\tname\n"q".kt', b"odd\n")
    repo.commit("a", "Begin")

    (repo.root / SOURCE / "sub").mkdir()
    (repo.root / SOURCE / "moved.kt").rename(repo.root / SOURCE / "sub" / "größe moved.kt")
    (repo.root / TEST / "moved.kt").rename(repo.root / TEST / "renamed \u00fc.kt")
    put(repo, f"{SOURCE}/crlf.kt", b"one\r\nTWO\r\nthree\n")
    put(repo, f"{SOURCE}/latin.kt", b"val y = '" + latin + b"'\n")
    put(repo, f"{SOURCE}/open.kt", b"still no end")
    (repo.root / SOURCE / "gone.kt").unlink()
    (repo.root / SOURCE / "bits.kt").chmod(0o755)
    put(repo, f"{TEST}/data.bin", bytes(reversed(range(256))))
    put(repo, f"{SOURCE}/new.bin", b"\0\1\2" * 50)
    put(repo, f"{SOURCE}/empty.kt", b"")
    put(repo, f"{SOURCE}/fake.kt", b"diff --git a/x b/x\n@@ -1 +1 @@\n-diff --git a b\n")
    (repo.root / TEST / "becomes-link.kt").unlink()
    (repo.root / TEST / "becomes-link.kt").symlink_to("data.bin")
    (repo.root / SOURCE / "link.kt").unlink()
    (repo.root / SOURCE / "link.kt").symlink_to("open.kt")
    put(repo, b'src/main/kotlin/odd\xff\tname\n"q".kt', b"odder\n")
    repo.commit("a", "Change")

    found, patch = parted(repo, tmp_path / "store")
    assert b"rename from" in patch
    assert b"GIT binary patch" in patch
    assert not found.crosses
    assert 'src/main/kotlin/odd\udcff\tname\n"q".kt' in found.paths("source")
    assert f"{TEST}/becomes-link.kt" in found.paths("test")


def test_a_move_from_source_to_test_is_told(repo: Upstream, tmp_path: Path) -> None:
    put(repo, f"{SOURCE}/Fixture.kt", b"line\n" * 40)
    repo.commit("a", "Begin")
    (repo.root / TEST).mkdir(parents=True)
    (repo.root / SOURCE / "Fixture.kt").rename(repo.root / TEST / "Fixture.kt")
    repo.commit("a", "Change")
    assert parted(repo, tmp_path / "one")[0].crosses
    found, _ = parted(repo, tmp_path / "two", renames=False)
    assert not found.crosses
    assert found.paths("source", "test") == (f"{SOURCE}/Fixture.kt", f"{TEST}/Fixture.kt")


def test_a_submodule_is_told(repo: Upstream, tmp_path: Path) -> None:
    put(repo, "a.kt", b"a\n")
    commit = repo.commit("a", "Begin")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib")
    repo.git("commit", "-q", "-m", "Change")
    found, _ = parted(repo, tmp_path / "store")
    assert [(s.path, s.submodule) for s in found.sections] == [("lib", True)]


def test_an_empty_patch_has_no_parts() -> None:
    assert split_patch(b"", KOTLIN) == Split(sections=())


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("kotlin-gradle", "core/src/main/kotlin/a/Contest.kt", "source"),
        ("kotlin-gradle", "latest/src/main/kotlin/Testing.kt", "source"),
        ("kotlin-gradle", "core/src/commonTest/kotlin/A.kt", "test"),
        ("kotlin-gradle", "core/src/test/resources/a.json", "test"),
        ("kotlin-gradle", "core/src/main/resources/a.json", "source"),
        ("kotlin-gradle", "core/build/generated/src/test/A.kt", "other"),
        ("kotlin-gradle", "core/build.gradle.kts", "build"),
        ("kotlin-gradle", "gradle/libs.versions.toml", "build"),
        ("kotlin-gradle", "docs/index.md", "other"),
        ("java-maven", "core/src/test/java/ATest.java", "test"),
        ("java-maven", "core/src/main/java/Attestation.java", "source"),
        ("java-maven", "core/pom.xml", "build"),
        ("python-pytest", "tests/test_a.py", "test"),
        ("python-pytest", "pkg/contest.py", "source"),
        ("python-pytest", "pkg/latest/a.py", "source"),
        ("python-pytest", "pkg/tests/data/a.json", "test"),
        ("python-pytest", "pyproject.toml", "build"),
        ("python-pytest", "docs/conf.rst", "other"),
        ("typescript", "src/a.ts", "source"),
        ("typescript", "src/a.test.ts", "test"),
        ("typescript", "src/attest.ts", "source"),
        ("typescript", "packages/x/__tests__/a.js", "test"),
        ("typescript", "package-lock.json", "other"),
        ("typescript", "package.json", "build"),
        ("go", "a/b_test.go", "test"),
        ("go", "a/contest.go", "source"),
        ("rust", "tests/a.rs", "test"),
        ("rust", "src/tests_of.rs", "source"),
    ],
)
def test_kinds_are_told_by_whole_components(name: str, path: str, kind: Kind) -> None:
    assert preset(name).kind_of(path) == kind


def test_an_unknown_preset_names_those_that_there_are() -> None:
    with pytest.raises(KbenchError, match="cobol: no such preset; there are go, java-maven"):
        read_preset("cobol")


def test_every_preset_reads() -> None:
    names = preset_names()
    assert {"kotlin-gradle", "java-maven", "python-pytest", "typescript"} <= set(names)
    for name in names:
        assert preset(name).source
        assert preset(name).test


def test_ignored_paths_are_other_whatever_else_they_match() -> None:
    patterns = Patterns(source=("*.kt",), test=("*Test.kt",), ignored=("gen/",))
    kinds = [patterns.kind_of(p) for p in ("A.kt", "ATest.kt", "gen/A.kt", "gen/ATest.kt")]
    assert kinds == ["source", "test", "other", "other"]


def test_git_apply_takes_the_parts_in_a_plain_checkout(repo: Upstream, tmp_path: Path) -> None:
    put(repo, f"{SOURCE}/A.kt", b"a\n")
    repo.commit("a", "Begin")
    put(repo, f"{SOURCE}/A.kt", b"b\n")
    put(repo, f"{TEST}/ATest.kt", b"t\n")
    repo.commit("a", "Change")
    found, _ = parted(repo, tmp_path / "store")
    repo.git("checkout", "-q", "HEAD~1")
    kinds: tuple[Kind, ...] = ("test", "source", "other")
    for kind in kinds:
        part = found.patch(kind)
        subprocess.run(["git", "apply", "--index"], cwd=repo.root, input=part, check=True)
    assert repo.git("write-tree") == repo.git("rev-parse", "main^{tree}")
