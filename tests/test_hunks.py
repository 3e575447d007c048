"""Parts of real git patches, and what real git makes of a patch without one of them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench_build.rules.hunks import Part, parts_of, without
from tests.verifier_box import git

LONG = [f"line {n}\n" for n in range(60)]
# Every line of this file is there many times: only its number says which one is meant.
ALIKE = ["}\n"] * 80


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hunks")
    git(root, "init", "--quiet")
    files = {"long.kt": "".join(LONG), "alike.kt": "".join(ALIKE), "gone.kt": "old\n",
             "moved.kt": "".join(LONG), "tool.sh": "true\n", "open.kt": "no newline",
             "with space.kt": "a\n"}  # fmt: skip
    for name, text in files.items():
        (root / name).write_text(text)
    (root / "data.bin").write_bytes(bytes(range(256)))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "base")
    return root


def changed(root: Path) -> bytes:
    """Change a bit of everything and return the patch; the base again after."""
    long = LONG.copy()
    long[5:7] = []
    long[20] = "changed\n"
    long[50:50] = ["new 1\n", "new 2\n"]
    (root / "long.kt").write_text("".join(long))
    alike = ALIKE.copy()
    alike[70] = "last\n"
    alike[40:40] = ["middle\n"] * 3
    alike[10:12] = ["first\n"]
    (root / "alike.kt").write_text("".join(alike))
    (root / "gone.kt").unlink()
    (root / "new.kt").write_text("fresh\n")
    moved = LONG.copy()
    moved[30] = "moved and changed\n"
    (root / "moved.kt").unlink()
    (root / "at" / "last").mkdir(parents=True)
    (root / "at" / "last" / "moved.kt").write_text("".join(moved))
    (root / "tool.sh").write_text("false\n")
    (root / "tool.sh").chmod(0o755)
    (root / "open.kt").write_text("still none")
    (root / "with space.kt").write_text("b\n")
    (root / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (root / "README.md").write_text("words\n")
    git(root, "add", "--all")
    patch = git(root, "diff", "--cached", "--binary", "--full-index", "-M")
    git(root, "reset", "--quiet", "--hard")
    return patch


@pytest.fixture(scope="module")
def patch(repository: Path) -> bytes:
    return changed(repository)


def tree_after(root: Path, patch: bytes) -> dict[str, str]:
    """Path → mode and blob id, after the patch."""
    if patch:
        git(root, "apply", "--index", "--whitespace=nowarn", "-", stdin=patch)
    listed = git(root, "ls-files", "--stage").decode().splitlines()
    git(root, "reset", "--quiet", "--hard")
    return {line.partition("\t")[2]: line[:47] for line in listed}


def test_every_kind_of_part_is_told(patch: bytes) -> None:
    found = [(str(part), part.inert) for part in parts_of(patch)]
    assert found == [
        ("README.md (new file)", "documentation"),
        ("alike.kt @@ -8,6 +8,7 @@", ""),
        ("alike.kt @@ -36,6 +37,9 @@", ""),
        ("alike.kt @@ -66,9 +70,7 @@", ""),
        ("at/last/moved.kt (rename)", ""),
        ("at/last/moved.kt @@ -28,7 +28,7 @@", ""),
        ("data.bin (binary)", ""),
        ("gone.kt (deleted file)", ""),
        ("long.kt @@ -3,8 +3,6 @@", ""),
        ("long.kt @@ -20,7 +18,7 @@", ""),
        ("long.kt @@ -50,6 +48,8 @@", ""),
        ("new.kt (new file)", ""),
        ("open.kt @@ -1 +1 @@", ""),
        ("tool.sh (mode)", ""),
        ("tool.sh @@ -1 +1 @@", ""),
        ("with space.kt @@ -1 +1 @@", ""),
    ]
    lines = patch.split(b"\n")
    for part in parts_of(patch):
        assert lines[part.line - 1].startswith(b"@@" if part.kind == "hunk" else b"diff --git")


def test_a_patch_without_a_part_applies_and_lacks_just_that(repository: Path, patch: bytes) -> None:
    whole, base = tree_after(repository, patch), tree_after(repository, b"")
    for part in parts_of(patch):
        found = tree_after(repository, without(patch, part))
        touched = {"moved.kt", part.path} if "moved" in part.path else {part.path}
        differs = {p for p in {*whole, *found} if whole.get(p) != found.get(p)}
        assert differs, part
        assert differs <= touched, part
        if part.kind not in ("hunk", "rename", "mode"):
            assert found.get(part.path) == base.get(part.path), part


def applied(root: Path, patch: bytes, path: str) -> str:
    git(root, "apply", "--whitespace=nowarn", "-", stdin=patch)
    text = (root / path).read_text()
    git(root, "reset", "--quiet", "--hard")
    git(root, "clean", "-fdq")
    return text


def test_later_hunks_go_where_they_mean_even_where_all_lines_are_alike(
    repository: Path, patch: bytes
) -> None:
    _, second, third = (p for p in parts_of(patch) if p.path == "alike.kt")
    found = applied(repository, without(patch, second), "alike.kt").splitlines()
    assert (found.index("first"), found.index("last")) == (10, 69)
    found = applied(repository, without(patch, third), "alike.kt").splitlines()
    assert found[39:42] == ["middle"] * 3


def test_a_rename_can_be_left_out_and_its_hunk_kept(repository: Path, patch: bytes) -> None:
    rename, hunk = (p for p in parts_of(patch) if "moved" in p.path)
    assert "moved and changed" in applied(repository, without(patch, rename), "moved.kt")
    kept = applied(repository, without(patch, hunk), "at/last/moved.kt")
    assert kept == "".join(LONG)


def test_a_mode_can_be_left_out_and_its_hunk_kept(repository: Path, patch: bytes) -> None:
    mode, hunk = (p for p in parts_of(patch) if p.path == "tool.sh")
    base, whole = tree_after(repository, b"")["tool.sh"], tree_after(repository, patch)["tool.sh"]
    assert tree_after(repository, without(patch, mode))["tool.sh"] == f"100644{whole[6:]}"
    assert tree_after(repository, without(patch, hunk))["tool.sh"] == f"100755{base[6:]}"


def test_without_its_only_part_nothing_is_left() -> None:
    patch = b"diff --git a/x.kt b/x.kt\n--- a/x.kt\n+++ b/x.kt\n@@ -1 +1 @@\n-a\n+b\n"
    (part,) = parts_of(patch)
    assert without(patch, part) == b""
    assert without(b"Subject: a mail\n\n" + patch, part_of_mail(patch)) == b""


def part_of_mail(patch: bytes) -> Part:
    (part,) = parts_of(b"Subject: a mail\n\n" + patch)
    return part


@pytest.mark.parametrize(
    ("path", "changed_lines", "inert"),
    [
        ("a.kt", ["-// one", "+    /** two */", "+", "+     * three", "+     */"], "comments"),
        ("a.kt", ["+/* x */ code()"], ""),
        ("a.kt", ["+    *spread"], ""),
        ("a.kt", ["+# no comment"], ""),
        ("a.py", ["+# a comment", "-    # another"], "comments"),
        ("a.py", ["+#!/bin/python"], ""),
        ("a.c", ["+// unknown language"], ""),
        ("docs/a.kt", ["+code()"], "documentation"),
    ],
)
def test_what_nothing_that_runs_can_depend_on(
    path: str, changed_lines: list[str], inert: str
) -> None:
    minus = sum(line[0] == "-" for line in changed_lines)
    head = f"@@ -1,{minus} +1,{len(changed_lines) - minus} @@"
    text = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{head}\n"
    (part,) = parts_of((text + "\n".join(changed_lines) + "\n").encode())
    assert part.inert == inert


def test_a_malformed_patch_has_no_parts() -> None:
    assert parts_of(b"@@ -1 +1 @@\n-a\n+b\n") == ()
    assert parts_of(b"") == ()


@given(st.binary(max_size=300), st.integers(0, 5))
def test_no_bytes_break_it(noise: bytes, at: int) -> None:
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n"
    hostile = b"\n".join([*patch.split(b"\n")[:at], noise, *patch.split(b"\n")[at:]])
    for part in parts_of(hostile):
        without(hostile, part)


def test_many_hunks_take_little_time(tmp_path: Path) -> None:
    before = tmp_path / "a"
    before.write_text("".join(f"{n}\n" * 8 for n in range(5_000)))
    (tmp_path / "b").write_text("".join(f"{n}\n" * 8 + "x\n" for n in range(5_000)))
    done = subprocess.run(
        ["git", "diff", "--no-index", "a", "b"], cwd=tmp_path, capture_output=True, check=False
    )
    parts = parts_of(done.stdout)
    assert len(parts) >= 2_000
    assert without(done.stdout, parts[-1]).count(b"@@ -") == len(parts) - 1
