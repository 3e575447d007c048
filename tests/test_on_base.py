"""The patches on their base commit: what git really makes of them, hostile ones included."""

import random
import shutil
import subprocess
import sys
import time
import zlib
from base64 import b85encode
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kbench_build.model import Finding
from kbench_build.plan import Plan
from kbench_build.rules.content import Around
from kbench_build.rules.on_base import (
    CHECKS,
    is_applied_to_the_checkout,
    names_among,
    unpacked,
    with_own_test,
)
from kbench_build.steps.validate import findings_of, read_task
from tests.defects.kit import FIXED, UPSTREAM, diff, git
from tests.defects.patches import SPACIOUS, SPACIOUS_TESTED, at_hand, at_the_end
from tests.samples import SOURCE, SPEC, TASK, Sample
from tests.test_house import ROOT

RULES = {check.id for check in CHECKS}
FIX, TEST = "solution/fix.patch", "tests/test.patch"


def found(sample: Sample) -> list[Finding]:
    """What the checks on the base commit say."""
    report = Plan(sample.root).run("validate", TASK)
    return [f for f in findings_of(report) if f.rule in RULES]


def rules(sample: Sample) -> set[tuple[str, str]]:
    return {(f.rule, f.file.removeprefix(f"tasks/{TASK}/")) for f in found(sample)}


def repository_of(folder: Path) -> Path:
    return folder / UPSTREAM / "acme" / "adder"


def test_patches_that_fit_are_let_be(tmp_path: Path) -> None:
    assert found(at_hand(tmp_path)) == []


def edit(path: str, old: str, new: str) -> Callable[[Sample], None]:
    return lambda sample: sample.edit(path, old, new)


PLAIN = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
NONSENSE = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (PLAIN.format("no/such/file.kt"), "patch/base"),
        (PLAIN.format("../../etc/passwd"), "patch/base"),
        (PLAIN.format("/etc/passwd"), "patch/base"),
        (PLAIN.format(".git/config"), "patch/base"),
        (PLAIN.format("a\\b"), "patch/base"),
        (PLAIN.format(SOURCE), "patch/base"),
        (PLAIN.format(SOURCE).replace("@@ -1 +1 @@", "@@ -99999999 +99999999 @@"), "patch/base"),
        (PLAIN.format(SOURCE).replace("-a\n", "-\udcff\n"), "patch/base"),
        ("diff --git a/x b/x\ndeleted file mode 100644\n", "patch/base"),
        ("diff --git a/x b/y\nrename from x\nrename to y\nsimilarity index 100%\n", "patch/base"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 5\nnonsense\n\n", "patch/base"),
        (
            f"diff --git a/m b/m\nnew file mode 160000\nindex 0000000..{NONSENSE}\n--- /dev/null\n"
            f"+++ b/m\n@@ -0,0 +1 @@\n+Subproject commit {NONSENSE}\n",
            "",
        ),
        ("", ""),
        ("no patch at all\n", ""),
    ],
)
def test_a_patch_that_doesnt_fit_is_a_finding(tmp_path: Path, patch: str, expected: str) -> None:
    sample = at_hand(tmp_path)
    sample.write(FIX, patch.encode("utf-8", "surrogateescape"))
    said = {rule for rule, file in rules(sample) if file == FIX}
    assert said == ({expected} if expected else set())
    assert all("\n" not in f.message for f in found(sample))


def test_a_patch_says_why_it_doesnt_fit(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    sample.edit(FIX, "left - right", "left * right")
    (finding,) = found(sample)
    assert "doesn't apply to" in finding.message
    assert SOURCE in finding.message


def test_a_patch_that_fits_alone_only(tmp_path: Path) -> None:
    lines = [f"    // {number}\n" for number in range(9)]
    text = "".join(lines)
    one, other = text.replace("// 4", "// four"), text.replace("// 6", "// six")
    sample = at_hand(
        tmp_path, before={**SPACIOUS, SOURCE: text}, fixed={SOURCE: one}, tested={SOURCE: one}
    )
    repository = repository_of(tmp_path)
    base = git(repository, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    git(repository, "checkout", "-q", base)
    (repository / SOURCE).write_text(other)
    sample.write(TEST, git(repository, "diff", "--full-index"))
    assert rules(sample) == {("patch/order", FIX), ("patch/order", TEST)}


@pytest.mark.parametrize(
    "name", ["CRLF", "latin-1", "binary", "moved", "mode", "link", "new", "gone", "odd name"]
)
def test_changes_of_every_kind_fit(tmp_path: Path, name: str) -> None:
    """What git writes itself is never called damaged."""
    sample = at_hand(tmp_path)
    repository = repository_of(tmp_path)
    old = commit_all(repository, "more", _start)
    for path in ("task.toml", "environment/prepare.sh", "environment/Dockerfile"):
        base = git(repository, "rev-list", "--max-parents=0", "HEAD").decode().strip()
        sample.edit(path, base, old)
    commit_all(repository, "change", _KINDS[name])
    sample.write(FIX, diff(repository, old, "HEAD"))
    sample.write(TEST, "")
    assert found(sample) == []
    short = git(repository, "diff", "--binary", "--find-renames", old, "HEAD")
    sample.write(FIX, short)
    assert found(sample) == []


def commit_all(repository: Path, message: str, change: Callable[[Path], object]) -> str:
    change(repository)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", message)
    return git(repository, "rev-parse", "HEAD").decode().strip()


def _start(folder: Path) -> None:
    (folder / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\nend\n")
    (folder / "picture.bin").write_bytes(bytes(random.Random(1).randbytes(3000)))
    (folder / "long.txt").write_text("".join(f"{n}\n" for n in range(50)))
    (folder / "link").symlink_to("long.txt")


def _append(folder: Path, name: str, more: bytes) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + more)


def _new_link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("crlf.txt")


_KINDS: Mapping[str, Callable[[Path], object]] = {
    "CRLF": lambda folder: _append(folder, "crlf.txt", b"three\r\n"),
    "latin-1": lambda folder: _append(folder, "latin.txt", b"\xe9t\xe9\n"),
    "binary": lambda folder: _append(folder, "picture.bin", b"\0\1\2"),
    "moved": lambda folder: (folder / "long.txt").rename(folder / "moved.txt"),
    "mode": lambda folder: (folder / "long.txt").chmod(0o755),
    "link": _new_link,
    "new": lambda folder: (folder / "new file.txt").write_text("new  \n"),
    "gone": lambda folder: (folder / "crlf.txt").unlink(),
    "odd name": lambda folder: (folder / 'q"\tü\n.txt').write_text("odd\n"),
}


def test_ids_that_lie_are_told_apart(tmp_path: Path) -> None:
    """Another file before is another base; another one after is a damaged patch."""
    sample = at_hand(tmp_path)
    index = next(
        line for line in (sample.task / FIX).read_text().splitlines() if line.startswith("index ")
    )
    old, _, new = index.removeprefix("index ").partition("..")
    new = new.partition(" ")[0]
    sample.edit(FIX, new, NONSENSE)
    assert rules(sample) == {("patch/post-image", FIX)}
    sample.edit(FIX, old, NONSENSE)
    assert rules(sample) == {("patch/pre-image", FIX)}


# Tests of one's own.


def test_a_test_of_ones_own_blocks_the_hidden_patch(tmp_path: Path) -> None:
    (finding,) = found(at_hand(tmp_path, tested=at_the_end(SPACIOUS)))
    assert finding.rule == "patch/blocks-own-tests"
    assert SPEC in finding.message


@pytest.mark.parametrize(
    "script",
    [
        "git -C /app checkout HEAD -- src/test\ngit apply /tests/test.patch\n",
        "git stash\ngit apply --3way /tests/test.patch\n",
        "# git apply /tests/test.patch\ncp -r /tests/src /app\n./gradlew test\n",
        "git apply /solution/other.patch\n",
    ],
)
def test_a_verifier_that_doesnt_apply_it_there_is_let_be(tmp_path: Path, script: str) -> None:
    sample = at_hand(tmp_path, tested=at_the_end(SPACIOUS))
    sample.write("tests/test.sh", script)
    assert found(sample) == []


@pytest.mark.parametrize(
    "script",
    [
        "cd /app\ngit apply --whitespace=nowarn /tests/test.patch\n",
        "git -C /app apply \\\n  /tests/test.patch\ngit checkout HEAD -- other\n",
        "patch -p1 < /tests/test.patch\n",
    ],
)
def test_a_verifier_that_applies_it_there_is_seen(tmp_path: Path, script: str) -> None:
    sample = at_hand(tmp_path, tested=at_the_end(SPACIOUS))
    sample.write("tests/test.sh", script)
    assert rules(sample) == {("patch/blocks-own-tests", TEST)}


@pytest.mark.parametrize(
    "part", [b"git -a ", b"git -C ", b"git apply ", b"git\t\t\t", b"\n", b" ", b"patch -p1 ", b"# "]
)
def test_a_script_costs_no_more_than_its_length(tmp_path: Path, part: bytes) -> None:
    sample = at_hand(tmp_path)
    sample.write("tests/test.sh", part * ((1 << 20) // len(part)))
    around = Around(namespace="x", bases=(), shipped={})
    task = read_task(sample.root, TASK, around)
    began = time.monotonic()
    assert not is_applied_to_the_checkout(task)
    assert time.monotonic() - began < 3


def test_the_shipped_verifier_puts_hidden_files_back(tmp_path: Path) -> None:
    assert found(at_hand(tmp_path, tested=at_the_end(SPACIOUS), form="shipped")) == []


def test_a_test_of_ones_own_stands_in_the_last_class() -> None:
    before = b"class A {\r\n    @Test fun a() {}\r\n}\r\n\r\n"
    made = with_own_test("A.kt", before)
    assert made is not None
    assert made.endswith(b"    @Test\r\n    fun `an agent's own test`() {\r\n    }\r\n}\r\n\r\n")
    assert b"void anAgentsOwnTest" in (with_own_test("A.java", b"class A {\n}\n") or b"")
    for text in (b"", b"}", b"fun a() = 1\n", b"class A {\n  fun a() {} }\n", b"\n\n"):
        assert with_own_test("A.kt", text) is None
    assert with_own_test("A.kt", b"fun a() {\n}\n") is None


@pytest.mark.parametrize(
    "text",
    [
        b"class A : StringSpec({\n    a()\n})\n",
        b"@Tag(1) internal class A {\n}\n\nfun b() {\n    c()\n}\n\nval d =\n    1\n",
        b"fun b() {\n}\nclass A(\n    b: B,\n) : C({\n})\n\nprivate class D(e: E) : F(e)\n",
    ],
)
def test_what_comes_after_the_last_class_is_none_of_it(text: bytes) -> None:
    made = with_own_test("A.kt", text)
    closing = b"})" if b"})" in text else b"}"
    assert made is not None
    own = b"\n    @Test\n    fun `an agent's own test`() {\n    }\n"
    assert made == text.replace(b"\n" + closing, b"\n" + own + closing, 1), made


# Names at the base.


def test_a_name_that_the_base_knows_is_told(tmp_path: Path) -> None:
    fixed = {SOURCE: FIXED[SOURCE].replace("}\n", "    fun sumOf() = 1\n    fun zeroes() = 2\n}\n")}
    before = {**SPACIOUS, "src/main/kotlin/Other.kt": "class Other {\n    fun sumOf() = 3\n}\n"}
    tested = {SPEC: SPACIOUS_TESTED[SPEC].replace("add(1, 1)", "sumOf() + Adder().zeroes()")}
    sample = at_hand(tmp_path, before=before, fixed=fixed, tested=tested)
    said = findings_of(Plan(sample.root).run("validate", TASK))
    (finding,) = [f for f in said if f.rule == "statement/unknown-name"]
    assert "zeroes" in finding.message
    assert "sumOf" not in finding.message


def test_names_are_whole_words() -> None:
    names = {b"add", b"adder", b"Big$Name", b"missing"}
    texts = [b"fun adder() = 1", b"a Big$Name here", b"addition", b"add_"]
    assert names_among(names, texts) == {b"adder", b"Big$Name"}


# Hostile patches.


def delta(before: int, after: int) -> bytes:
    """A binary patch that says how large the file is before and after."""
    content = zlib.compress(number(before) + number(after) + b"\x90\x01")
    line = chr(ord("A") + len(content) - 1).encode() + b85encode(content, pad=True)
    head = b"diff --git a/x b/x\nindex 1111111..2222222\nGIT binary patch\n"
    return head + b"delta %d\n%s\n\n" % (len(content), line)


def number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def test_a_patch_says_how_large_its_binary_parts_are() -> None:
    assert 3_000_000_000 <= unpacked(delta(1000, 3_000_000_000)) < 3_000_010_000
    assert unpacked(b"GIT binary patch\nliteral 99999999999\nzcmZQz\n\n") == 99_999_999_999
    assert unpacked(b"GIT binary patch\ndelta 5\n!!nonsense!!\n\n") == 0
    assert unpacked(b"") == 0


@pytest.mark.parametrize("patch", [delta(1000, 1 << 40), delta(1 << 40, 3), b""])
def test_a_patch_that_would_unpack_without_end_isnt_tried(tmp_path: Path, patch: bytes) -> None:
    sample = at_hand(tmp_path)
    large = patch or (PLAIN.format("x").encode() + b"# more\n" * (3 << 20))
    sample.write(FIX, large)
    began = time.monotonic()
    report = Plan(sample.root).run("validate", TASK)
    assert time.monotonic() - began < 20
    assert any(f"{FIX} is too large to try" in said for said in report.data["not_checked"])
    assert not [f for f in findings_of(report) if f.rule in RULES]


def test_a_patch_of_a_hundred_megabytes_is_left_unread(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    with (sample.task / FIX).open("ab") as file:
        file.truncate(100 << 20)
    report = Plan(sample.root).run("validate", TASK)
    assert [f.rule for f in findings_of(report) if f.file.endswith(FIX)] == ["layout/unreadable"]


def test_a_patch_of_very_many_files_is_tried_in_time(tmp_path: Path) -> None:
    sample = at_hand(tmp_path)
    head = "diff --git a/n{0} b/n{0}\nnew file mode 100644\n--- /dev/null\n+++ b/n{0}\n"
    sample.write(FIX, "".join(f"{head.format(n)}@@ -0,0 +1 @@\n+a\n" for n in range(20_000)))
    began = time.monotonic()
    assert found(sample) == []
    assert time.monotonic() - began < 60


def test_no_damage_makes_it_raise(tmp_path: Path) -> None:
    """Patches cut, spliced and filled with noise are findings, or they fit."""
    sample = at_hand(tmp_path)
    chance = random.Random(7)
    whole = {path: (sample.task / path).read_bytes() for path in (FIX, TEST)}
    noise = (b"\xff", b"\0", b"\r", b"\n", b"@@", b"../", b"-", b"+", b"index ", b"160000", b'"')
    for _ in range(25):
        for path, data in whole.items():
            at, length = chance.randrange(len(data)), chance.choice((0, 1, 3, 40))
            sample.write(path, data[:at] + chance.choice(noise) + data[at + length :])
        assert all("\n" not in f.message for f in found(sample))


def test_the_shipped_tasks_are_let_be(tmp_path: Path) -> None:
    """With their upstreams at hand nothing is left untried, and nothing is found."""
    for name in ("bases", "tasks", "kbench.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    with (tmp_path / "kbench.toml").open("a") as file:
        file.write('\n[upstream]\nmirrors = "mirrors"\n')
    (tmp_path / "mirrors").mkdir()
    for name in ("kalends", "tabula"):
        script = [sys.executable, str(ROOT / "scripts/history.py"), "build"]
        target = tmp_path / f"mirrors/{name}.bundle"
        subprocess.run([*script, ROOT / f"bases/{name}/history", target], check=True, timeout=120)
    plan = Plan(tmp_path)
    assert len(plan.survey.tasks) == 12
    for task in plan.survey.tasks:
        report = plan.run("validate", task)
        assert not [said for said in report.data["not_checked"] if "upstream" in said]
        assert [str(f) for f in findings_of(report) if f.rule in RULES] == []
        assert [str(f) for f in findings_of(report) if f.severity != "note"] == []
