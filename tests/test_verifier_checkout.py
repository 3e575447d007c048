"""The verifier's small parts: globs, verify.json, paths. And what ships, as shell."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kbench_build import runtime
from kbench_build.runtime.verify_checkout import (
    Blob,
    Checkout,
    Globs,
    Hidden,
    Logs,
    VerifierError,
    blob_id,
    failure,
    finish,
    is_safe_path,
    parse_spec,
)

RUNTIME = Path(runtime.__file__).parent
BASE = "0123456789abcdef0123456789abcdef01234567"
BLOB = f"100644 {BASE}"


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("**/src/test/**", "src/test/A.kt", True),
        ("**/src/test/**", "a/b/src/test/c/d/A.kt", True),
        ("**/src/test/**", "a/src/testing/A.kt", False),
        ("**/src/test/**", "a/xsrc/test/A.kt", False),
        ("**/src/test/**", "src/test", False),
        ("build.gradle", "build.gradle", True),
        ("build.gradle", "a/build.gradle", False),
        ("build.gradle", "buildXgradle", False),
        ("**/build.gradle", "build.gradle", True),
        ("**/build.gradle", "a/b/build.gradle", True),
        ("**/TEST-*.xml", "a/TEST-x.y.xml", True),
        ("**/TEST-*.xml", "a/TEST-x/y.xml", False),
        ("a/*/b", "a/x/b", True),
        ("a/*/b", "a/x/y/b", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/?.kt", "a/B.kt", True),
        ("a/?.kt", "a/BB.kt", False),
        ("**", ".hidden/x", True),
        ("*", ".hidden", True),
        ("[a]*", "[a]b", True),
        ("[a]*", "ab", False),
        ("a/***", "a/b", True),
        ("**/caf\u00e9/*", "x/caf\u00e9/new\nline", True),
    ],
)
def test_globs_mean_what_the_docs_say(glob: str, path: str, matches: bool) -> None:
    assert Globs([glob]).matches(path) is matches


def test_the_last_glob_that_matches_decides() -> None:
    globs = Globs(["**/src/test/**", "!**/src/test/generated/**", "**/generated/Keep.kt"])
    assert globs.matches("a/src/test/A.kt")
    assert not globs.matches("a/src/test/generated/A.kt")
    assert globs.matches("a/src/test/generated/Keep.kt")


@pytest.mark.parametrize(
    ("folder", "leads"),
    [("a/src", True), ("a/src/test", True), ("src", True), ("a", False), ("src/a", False)],
)
def test_links_that_lead_into_a_glob_are_known(folder: str, leads: bool) -> None:
    assert Globs(["**/src/test/**"]).could_hold(folder) is leads


def test_links_that_lead_into_a_rooted_glob_are_known() -> None:
    globs = Globs(["core/src/**/x/*.kt", "!core/**"])
    assert globs.could_hold("core")
    assert globs.could_hold("core/src")
    assert globs.could_hold("core/src/any")
    assert not globs.could_hold("src")


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/../b", "./a", "a//b", "a/", ".git/x", "a/.GIT/x", "a\0", "x" * 300, "\ud800"],
)
def test_paths_that_leave_the_checkout_are_unsafe(path: str) -> None:
    assert not is_safe_path(path)


def test_odd_but_plain_paths_are_safe() -> None:
    for path in ("a b/c'd\"", ".github/x", "a.git/x", "caf\u00e9", "a\nb", "\udcff", "..a/b.."):
        assert is_safe_path(path)


def spec_data(**changes: Any) -> bytes:
    data = {
        "version": 1,
        "workdir": "/home/up",
        "base_commit": BASE,
        "command": ["./gradlew", "test"],
        "environment": {"A": "b"},
        "timeout_sec": 600,
        "reports": ["**/TEST-*.xml"],
        "hidden": {"a/Test.kt": {"base": None, "after": BLOB}},
        "protected": {"globs": ["build.gradle"], "files": {"build.gradle": BLOB}},
    }
    return json.dumps({**data, **changes}).encode()


def test_verify_json_is_read() -> None:
    spec = parse_spec(spec_data())
    assert spec.hidden == {"a/Test.kt": Hidden(None, Blob("100644", BASE))}
    assert spec.wanted() == {p: Blob("100644", BASE) for p in ("a/Test.kt", "build.gradle")}
    assert (spec.timeout_sec, spec.command) == (600.0, ["./gradlew", "test"])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"version": 2}, "version"),
        ({"workdir": "home"}, "workdir"),
        ({"workdir": None}, "workdir"),
        ({"base_commit": "main"}, "base_commit"),
        ({"base_commit": BASE[:12]}, "base_commit"),
        ({"command": []}, "command"),
        ({"command": "gradle test"}, "command"),
        ({"command": ["a", 1]}, "command"),
        ({"environment": {"A": 1}}, "environment"),
        ({"environment": {"A=B": "c"}}, "environment"),
        ({"environment": []}, "environment"),
        ({"timeout_sec": 0}, "timeout_sec"),
        ({"timeout_sec": True}, "timeout_sec"),
        ({"timeout_sec": "600"}, "timeout_sec"),
        ({"timeout_sec": float("nan")}, "timeout_sec"),
        ({"timeout_sec": float("inf")}, "timeout_sec"),
        ({"reports": []}, "reports"),
        ({"hidden": []}, "hidden"),
        ({"hidden": {"../x": {"base": None, "after": BLOB}}}, "hidden"),
        ({"hidden": {".git/x": {"base": None, "after": BLOB}}}, "hidden"),
        ({"hidden": {"x": {"after": BLOB}}}, "hidden"),
        ({"hidden": {"x": {"base": None, "after": None}}}, "hidden"),
        ({"hidden": {"x": {"base": None, "after": f"160000 {BASE}"}}}, "hidden"),
        ({"hidden": {"x": {"base": None, "after": BASE}}}, "hidden"),
        ({"protected": []}, "protected"),
        ({"protected": {"globs": "x"}}, "protected.globs"),
        ({"protected": {"globs": [], "files": {"/x": BLOB}}}, "protected.files"),
        ({"protected": {"globs": [], "files": {"x": None}}}, "protected.files"),
    ],
)
def test_wrong_data_is_refused_with_its_place(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(VerifierError, match=where) as caught:
        parse_spec(spec_data(**changes))
    assert caught.value.kind == "data"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"])
def test_data_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(VerifierError):
        parse_spec(data)


def test_blob_ids_are_gits(tmp_path: Path) -> None:
    for kind, length in (("sha1", 40), ("sha256", 64)):
        command = ["git", "init", "-q", f"--object-format={kind}", str(tmp_path / kind)]
        subprocess.run(command, check=True)
        asked = ["git", "-C", str(tmp_path / kind), "hash-object", "--stdin"]
        said = subprocess.run(asked, input=b"text\n", capture_output=True, check=True).stdout
        assert blob_id(b"text\n", "0" * length) == said.decode().strip()


def test_a_checkout_never_writes_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("mine")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "f")
    checkout = Checkout(str(root))
    assert checkout.read("folder/f") is None
    assert checkout.read("file") == ("120000", str(outside / "f").encode())
    checkout.write("folder/f", "100644", b"new")
    checkout.write("file", "100755", b"new")
    checkout.remove("folder/none")
    assert (outside / "f").read_text() == "mine"
    assert (root / "folder").is_dir()
    assert not (root / "folder").is_symlink()
    assert checkout.read("folder/f") == ("100644", b"new")
    assert checkout.read("file") == ("100755", b"new")


def test_a_checkout_is_walked_without_following_links(tmp_path: Path) -> None:
    for name in ("a/b/c", ".git/x", "sub/.git/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {path for path, _ in Checkout(str(tmp_path)).walk()}
    assert found == {"a/b/c", "sub/.git/x", "loop"}


# --- shell --------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", sorted(RUNTIME.glob("*.sh")), ids=lambda path: path.name)
def test_shipped_shell_is_clean(script: Path) -> None:
    linter = shutil.which("shellcheck")
    assert linter, "shellcheck is missing: pip install -e '.[dev]' brings it"
    command = [linter, "--severity=style", "--shell=bash", str(script)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def collect(checkout: Path, output: Path, *paths: str) -> dict[str, str]:
    """Run the collector; path → content of its copy."""
    done = subprocess.run(
        ["bash", str(RUNTIME / "kotlin_logs_collector.sh"), str(checkout), str(output)],
        input=b"".join(p.encode() + b"\0" for p in paths),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    words = (output / "index").read_bytes().decode().split("\0")[:-1]
    pairs = zip(words[::2], words[1::2], strict=True)
    return {path: (output / name).read_text() for name, path in pairs}


def test_reports_are_collected_under_distinct_names(tmp_path: Path) -> None:
    paths = [
        "a/build/TEST-x.xml",
        "b/build/TEST-x.xml",
        "a+build/TEST-x.xml",
        "sp ace/TEST-'q\"\n.xml",
        f"{'deep/' * 60}TEST-{'y' * 150}.xml",
        "-n/--TEST.xml",
    ]
    for number, path in enumerate(paths):
        (tmp_path / "up" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / path).write_text(str(number))
    got = collect(tmp_path / "up", tmp_path / "out", *paths)
    assert got == {path: str(number) for number, path in enumerate(paths)}


def test_only_regular_files_are_collected(tmp_path: Path) -> None:
    up = tmp_path / "up"
    up.mkdir()
    (up / "real.xml").write_text("real")
    (up / "link.xml").symlink_to("/etc/hostname")
    (up / "folder.xml").mkdir()
    got = collect(up, tmp_path / "out", "link.xml", "folder.xml", "gone.xml", "real.xml")
    assert got == {"real.xml": "real"}


def test_nothing_to_collect_is_fine(tmp_path: Path) -> None:
    assert collect(tmp_path, tmp_path / "out") == {}


# --- solve.sh -----------------------------------------------------------------------------------


def test_solve_applies_the_patch_at_the_top_of_the_checkout(tmp_path: Path) -> None:
    up = tmp_path / "up"
    (up / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(up)], check=True)
    solution = tmp_path / "solution"
    solution.mkdir()
    shutil.copy(RUNTIME / "solve.sh", solution)
    patch = "diff --git a/f b/f\nnew file mode 100755\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x \n"
    (solution / "fix.patch").write_text(patch)
    subprocess.run(["bash", str(solution / "solve.sh")], cwd=up / "sub", check=True)
    assert (up / "f").read_text() == "x \n"
    assert (up / "f").stat().st_mode & 0o100


def test_solve_fails_where_the_patch_does_not_apply(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shutil.copy(RUNTIME / "solve.sh", tmp_path)
    (tmp_path / "fix.patch").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n")
    done = subprocess.run(["bash", "solve.sh"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode != 0


def test_finishing_leaves_nothing_else_in_the_logs(tmp_path: Path) -> None:
    """Also where an error came before the logs were cleared after the test command."""
    (tmp_path / "reward.json").write_text('{"reward": 1}')
    (tmp_path / "reward.txt").write_text("1\n")
    (tmp_path / "reports").mkdir()
    assert finish(Logs(str(tmp_path)), failure("processes", "processes keep appearing")) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"reward.txt", "report.json", "reports"}
    assert (tmp_path / "reward.txt").read_text() == "0\n"


def test_a_reward_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_text("1\n")

    class Full(Logs):
        def write(self, name: str, content: bytes) -> None:
            raise OSError(28, f"no space for {name}", str(content))

    with pytest.raises(OSError, match="no space"):
        finish(Full(str(tmp_path)), failure("bug", "x"))
    assert not (tmp_path / "reward.txt").exists()
