"""The patch reader agrees with git: about what patches touch, and about what it refuses."""

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from kbench_build.rim.presets import preset_names, runnable
from kbench_build.rules.patch_checks import kind_of
from kbench_build.rules.patches import escapes, parse_patch


def git(root: Path, *arguments: str, stdin: bytes = b"", check: bool = True) -> bytes:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(
        command, cwd=root, check=check, input=stdin, capture_output=True, timeout=60
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose work tree changes files in every way that git knows."""
    git(tmp_path, "init", "-q")
    names = [
        "plain.txt",
        "gone.txt",
        "a name.txt",
        'q"uote.txt',
        "tab\there.txt",
        "line\nend",
        "Ü 試",
    ]
    for name in names:
        (tmp_path / name).write_text(f"{name}\none\ntwo\n", encoding="utf-8")
    (tmp_path / "moved from.txt").write_text("".join(f"line {n}\n" for n in range(30)))
    (tmp_path / "picture.png").write_bytes(bytes(range(256)))
    (tmp_path / "script.sh").write_text("echo\n")
    (tmp_path / "no newline").write_text("one")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "base")
    for name in names:
        (tmp_path / name).write_text(f"{name}\nonly\n--- a/x\n+++ b/x\ndiff --git a/y b/y\n")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "moved from.txt").rename(tmp_path / "moved to.txt")
    (tmp_path / "picture.png").write_bytes(bytes(range(255, -1, -1)))
    (tmp_path / "script.sh").chmod(0o755)
    (tmp_path / "no newline").write_text("two")
    (tmp_path / "empty").write_text("")
    (tmp_path / "link").symlink_to("plain.txt")
    git(tmp_path, "add", "-A")
    return tmp_path


def as_git_says(repository: Path, *options: str) -> set[tuple[str, str, str]]:
    """(path, "mode id" before, "mode id" after) of every change; empty where there is no file."""
    raw = git(
        repository, "diff", "--cached", "--raw", "-z", "--no-abbrev", "--no-renames", *options
    )
    fields = raw.decode().split("\0")[:-1]
    found = set()
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = head[1:].split(" ")
        before = "" if old_mode == "000000" else f"{old_mode} {old}"
        after = "" if new_mode == "000000" else f"{new_mode} {new}"
        found.add((path, before, after))
    return found


def test_it_reads_what_git_wrote(repository: Path) -> None:
    data = git(repository, "diff", "--cached", "--binary", "--full-index", "--no-renames")
    patch = parse_patch(data)
    assert patch.malformed == ()
    found = {
        (
            f.new or f.old or "",
            f"{f.old_mode} {f.old_blob}" if f.old else "",
            f"{f.new_mode or f.old_mode} {f.new_blob}" if f.new else "",
        )
        for f in patch.files
    }
    changed_mode = {c for c in as_git_says(repository) if c[0] == "script.sh"}
    # A change of mode alone has no index line, so no blob ids.
    assert (
        found - {f for f in found if f[0] == "script.sh"} == as_git_says(repository) - changed_mode
    )
    (script,) = [f for f in patch.files if f.new == "script.sh"]
    assert (script.old_mode, script.new_mode, script.new_blob) == ("100644", "100755", None)
    assert [f.new for f in patch.files if f.binary] == ["picture.png"]


def test_it_reads_renames_and_copies(repository: Path) -> None:
    patch = parse_patch(git(repository, "diff", "--cached", "-M", "--full-index"))
    (moved,) = [f for f in patch.files if f.old != f.new and f.old and f.new]
    assert moved.paths == ("moved from.txt", "moved to.txt")


@pytest.mark.parametrize("prefix", ["--no-prefix", "--src-prefix=a/"])
def test_it_reads_mails_and_other_prefixes(repository: Path, prefix: str) -> None:
    git(repository, "commit", "-qm", "A change\n\n--- a/not a file\n+++ b/not a file")
    data = git(repository, "format-patch", "-1", "--stdout", "--no-renames", "--binary", prefix)
    patch = parse_patch(data)
    assert patch.malformed == ()
    assert "gone.txt" in patch.paths
    assert len(patch.files) == 14


def test_a_plain_unified_diff_is_read() -> None:
    patch = parse_patch(b"--- a/x.txt\t2024-01-01\n+++ b/x.txt\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n")
    (file,) = patch.files
    assert (file.paths, file.removed, file.added) == (("x.txt",), (b"a",), (b"b",))


HUNK = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


@pytest.mark.parametrize(
    "data",
    [
        HUNK.rstrip(b"\n"),
        HUNK.replace(b"@@ -1,2", b"@@ -1,3"),
        HUNK.replace(b"+c\n", b""),
        HUNK.replace(b" a\n", b"a\n"),
        b"diff --git a/f b/f\nindex 1234567..89abcde 100644\nBinary files a/f and b/f differ\n",
        b"diff --git a/f b/f\nindex 1234567..89abcde 100644\nGIT binary patch\n",
        b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
    ],
    ids=["open end", "count", "cut", "damaged", "stub", "no content", "no file"],
)
def test_what_git_refuses_is_malformed(tmp_path: Path, data: bytes) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "f").write_text("a\nb\n")
    git(tmp_path, "apply", "--check", stdin=HUNK)  # the sound twin
    assert parse_patch(HUNK).malformed == ()
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "apply", "--check", stdin=data)
    assert parse_patch(data).malformed


@pytest.mark.parametrize(
    "data",
    [
        HUNK.replace(b" a\n", b"\n").replace(b"a/f b/f", b"a/g b/g").replace(b"/f\n", b"/g\n"),
        HUNK[:-1] + b"\n\\ No newline at end of file",
        HUNK + b"-- \n2.39.5\n\n",
    ],
    ids=["an empty line of context", "no newline after the mark", "a mail's signature"],
)
def test_what_git_takes_is_sound(tmp_path: Path, data: bytes) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "f").write_text("a\nb\n")
    (tmp_path / "g").write_text("\nb\n")
    git(tmp_path, "apply", "--check", stdin=data)
    assert parse_patch(data).malformed == ()


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../../x", ".git/config", "a/.GIT/x", "a\nb", "", "C:\\x", "C:/x"]
)
def test_paths_that_lead_out_are_told(path: str) -> None:
    assert escapes(path)


@pytest.mark.parametrize("path", ["a", "a/b..c", ".gitignore", "a/.github/x", "Ü/試 1.kt"])
def test_paths_that_stay_inside_are_told(path: str) -> None:
    assert escapes(path) == ""


@pytest.mark.parametrize("preset", preset_names())
def test_what_a_preset_runs_as_a_test_is_one_to_checks(preset: str) -> None:
    for pattern in runnable(preset):
        # A path that the pattern matches: gitignore's stars stand for a folder, or for a name.
        path = pattern.replace("**", "a/b").replace("*", "some")
        path = path.replace("[jt]", "t").replace("[cm]", "m")
        assert GitIgnoreSpec.from_lines([pattern]).match_file(path), (pattern, path)
        assert kind_of(path) == "test", (pattern, path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("core/src/main/kotlin/A.kt", "source"),
        ("core/src/test/kotlin/A.kt", "test"),
        ("core/src/jvmTest/kotlin/A.kt", "test"),
        ("core/src/test/resources/a.json", "test"),
        ("core/src/testFixtures/kotlin/A.kt", "test"),
        ("kotlin/AdderTest.kt", "test"),
        ("acme-test/src/main/kotlin/Assert.kt", "source"),
        ("acme-test/src/main/kotlin/com/acme/test/Assert.kt", "source"),
        ("core/src/test/resources/app/src/main/kotlin/A.kt", "test"),
        ("app/tests/src/main/kotlin/A.kt", "test"),
        ("acme-test/src/test/kotlin/AssertTest.kt", "test"),
        ("acme-tests/build.gradle.kts", "test"),
        ("test-acme/src/main/kotlin/Fixture.kt", "test"),
        ("pkg/test_adder.py", "test"),
        ("pkg/conftest.py", "test"),
        ("pkg/contest.py", "other"),
        ("adder/adder_test.go", "test"),
        ("src/adder.spec.ts", "test"),
        ("src/attest.ts", "other"),
        ("core/src/it/java/AdderCase.java", "test"),
        ("src/main/kotlin/Test.kt", "source"),
        ("src/main/kotlin/Latest.kt", "source"),
        ("src/main/kotlin/contest/Round.kt", "source"),
        ("docs/guide.md", "docs"),
        ("CHANGELOG.md", "docs"),
        ("src/main/resources/docs.properties", "other"),
        ("build.gradle.kts", "other"),
    ],
)
def test_kinds_of_files(path: str, kind: str) -> None:
    assert kind_of(path) == kind


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                HUNK,
                b"diff --git ",
                b'"a/\\303" ',
                b"@@ -9999999999 +1 @@\n",
                b"index 1234..5678\n",
                b"GIT binary patch\n",
                b"literal 4\n",
                b"rename from ",
                b"\\",
                b"\n",
                b"\x00\xff",
            ]
        )
        | st.binary(max_size=20),
        max_size=30,
    )
)
def test_no_bytes_make_it_raise(parts: list[bytes]) -> None:
    parse_patch(b"".join(parts))


def test_a_large_patch_is_read_in_linear_time() -> None:
    lines = b"".join(b"+line %d\n" % n for n in range(400_000))
    data = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,400000 @@\n" + lines
    began = time.monotonic()
    patch = parse_patch(data + b"diff --git a/g" * 200_000)
    assert len(patch.files[0].added) == 400_000
    assert time.monotonic() - began < 10
