"""`sync`: the shipped files and the data that come from upstream, renewed in every task."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbench_build import runtime
from kbench_build.errors import KbenchError
from kbench_build.rules.shipped import SHIPPED
from kbench_build.steps.sync import Synced, sync
from tests.verifier_box import git

RUNTIME = Path(runtime.__file__).parent
TASK = "acme_up-1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset of one task, and its upstream repository beside it."""
    up = tmp_path / "up"
    for name, content in {
        "build.gradle": "plugins {}\n",
        "src/main/A.kt": "val a = 1\n",
        "src/test/ATest.kt": "// one\n",
        "src/test/OldTest.kt": "// old\n",
        "src/test/Kept.kt": "// kept\n",
        "caf\u00e9/src/test/B.kt": "// b\n",
    }.items():
        (up / name).parent.mkdir(parents=True, exist_ok=True)
        (up / name).write_text(content)
    (up / "shared").symlink_to("src")
    (up / "core").mkdir()
    (up / "core" / "src").symlink_to("../src")
    git(up, "init", "--quiet", "--initial-branch=main")
    git(up, "add", "--all")
    git(up, "commit", "--quiet", "--message=Base")
    base = git(up, "rev-parse", "HEAD").decode().strip()
    task = tmp_path / "tasks" / TASK
    for part in ("tests", "solution", "environment"):
        (task / part).mkdir(parents=True)
    (up / "src/test/ATest.kt").write_text("// one\n// two\n")
    (up / "src/test/OldTest.kt").unlink()
    (up / "src/test/NewTest.kt").write_text("// new\n")
    git(up, "add", "--all")
    diff = ("diff", "--cached", "--binary", "--full-index")
    (task / "tests" / "test.patch").write_bytes(git(up, *diff))
    git(up, "reset", "--quiet", "--hard")
    (up / "src/main/A.kt").write_text("val a = 2 // fixed\n")
    (task / "solution" / "fix.patch").write_bytes(git(up, "diff"))
    git(up, "checkout", "--quiet", ".")
    write(tmp_path, base_commit=base)
    return tmp_path


def write(root: Path, **changes: Any) -> None:
    path = root / "tasks" / TASK / "tests" / "verify.json"
    data = {
        "version": 1,
        "workdir": "/home/up",
        "base_commit": "",
        "command": ["gradle", "test"],
        "timeout_sec": 60,
        "reports": ["**/build/test-results/test/TEST-*.xml"],
        "protected": {"globs": ["**/src/test/**", "build.gradle"]},
    }
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**data, **old, **changes}))


def data(root: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((root / "tasks" / TASK / "tests/verify.json").read_text())
    return value


def one(root: Path, **options: Any) -> Synced:
    (synced,) = sync(root, [TASK], **{"repository": root / "up", **options})
    return synced


def test_everything_that_ships_is_copied_and_the_data_filled_in(root: Path) -> None:
    synced = one(root)
    assert synced.changed == tuple(sorted([*SHIPPED, "tests/verify.json"]))
    assert (synced.findings, synced.note) == ((), "")
    for place, name in SHIPPED.items():
        assert (root / "tasks" / TASK / place).read_bytes() == (RUNTIME / name).read_bytes()
    up = root / "up"
    blob = {
        path: "100644 " + git(up, "rev-parse", f"HEAD:{path}").decode().strip()
        for path in ("build.gradle", "src/test/ATest.kt", "src/test/OldTest.kt")
    }
    hidden = data(root)["hidden"]
    assert list(hidden) == ["src/test/ATest.kt", "src/test/NewTest.kt", "src/test/OldTest.kt"]
    assert hidden["src/test/ATest.kt"]["base"] == blob["src/test/ATest.kt"]
    new = git(up, "hash-object", "--stdin", stdin=b"// one\n// two\n").decode().strip()
    assert hidden["src/test/ATest.kt"]["after"] == f"100644 {new}"
    assert hidden["src/test/NewTest.kt"]["base"] is None
    assert hidden["src/test/OldTest.kt"] == {"base": blob["src/test/OldTest.kt"], "after": None}
    files = data(root)["protected"]["files"]
    assert set(files) == {
        "build.gradle",
        "caf\u00e9/src/test/B.kt",
        "core/src",
        "src/test/Kept.kt",
    }
    assert files["build.gradle"] == blob["build.gradle"]
    assert files["core/src"].startswith("120000 ")


def test_a_second_run_changes_nothing(root: Path) -> None:
    one(root)
    before = {p: p.stat().st_mtime_ns for p in root.glob("tasks/**/*") if p.is_file()}
    assert one(root).changed == ()
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_only_what_differs_is_written(root: Path) -> None:
    one(root)
    script = root / "tasks" / TASK / "tests" / "test.sh"
    script.write_text("exit 0\n")
    assert one(root).changed == ("tests/test.sh",)
    assert script.read_bytes() == (RUNTIME / "test.sh").read_bytes()


def test_check_says_what_differs_and_writes_nothing(root: Path) -> None:
    synced = one(root, check=True)
    assert "tests/verify.json" in synced.changed
    assert not (root / "tasks" / TASK / "tests" / "test.sh").exists()
    one(root)
    assert one(root, check=True).changed == ()


def test_the_upstream_repository_is_left_alone(root: Path) -> None:
    def state() -> dict[str, bytes]:
        found = (root / "up" / ".git").rglob("*")
        return {str(p): p.read_bytes() for p in found if p.is_file()}

    before = state()
    one(root)
    assert state() == before


def test_a_bundle_serves_as_the_upstream(root: Path) -> None:
    bundle = root / ".kbench" / "inputs" / "up" / "history.bundle"
    bundle.parent.mkdir(parents=True)
    git(root / "up", "bundle", "create", str(bundle), "main")
    (root / "up").rename(root / "gone")
    assert "tests/verify.json" in one(root, repository=None).changed
    assert one(root, repository=bundle).changed == ()


def test_a_bare_repository_and_a_worktree_serve_too(root: Path) -> None:
    git(root, "clone", "--quiet", "--bare", str(root / "up"), str(root / "bare"))
    git(root / "up", "worktree", "add", "--quiet", "--detach", str(root / "tree"))
    one(root)
    assert one(root, repository=root / "bare").changed == ()
    assert one(root, repository=root / "tree").changed == ()


def test_without_a_repository_the_data_is_left_and_that_is_said(root: Path) -> None:
    synced = one(root, repository=None)
    assert synced.changed == tuple(sorted(SHIPPED))
    assert "no repository at hand holds the base commit" in synced.note
    assert "hidden" not in data(root)


def test_a_task_with_its_own_verifier_is_left_alone(root: Path) -> None:
    (root / "tasks" / TASK / "tests" / "verify.json").unlink()
    synced = one(root)
    assert (synced.changed, synced.note) == ((), "own verifier, left alone")
    assert not (root / "tasks" / TASK / "tests" / "test.sh").exists()


def test_a_gold_patch_that_the_verifier_would_undo_is_found(root: Path) -> None:
    write(root, protected={"globs": ["**/*.kt", "build.gradle"]})
    (found,) = one(root).findings
    assert (found.rule, found.where) == ("verifier/fix-undone", "src/main/A.kt")


def test_a_build_file_that_an_agent_may_change_is_found(root: Path) -> None:
    write(root, protected={"globs": ["**/src/test/**"]})
    (found,) = one(root).findings
    assert (found.rule, found.severity) == ("verifier/free-build-file", "warning")
    assert "build.gradle" in found.message


def test_a_build_file_that_the_fix_changes_is_free(root: Path) -> None:
    write(root, protected={"globs": ["**/src/test/**"]})
    patch = "diff --git a/build.gradle b/build.gradle\n--- a/build.gradle\n+++ b/build.gradle\n"
    patch += "@@ -1 +1,2 @@\n plugins {}\n+x\n"
    (root / "tasks" / TASK / "solution" / "fix.patch").write_text(patch)
    assert one(root).findings == ()


def test_a_copied_file_is_found(root: Path) -> None:
    up = root / "up"
    shutil.copy(up / "src/test/Kept.kt", up / "src/test/Twin.kt")
    git(up, "add", "--all")
    patch = git(up, "diff", "--cached", "--find-copies-harder", "--full-index")
    assert b"copy from" in patch
    (root / "tasks" / TASK / "tests" / "test.patch").write_bytes(patch)
    git(up, "reset", "--quiet", "--hard")
    assert [f.rule for f in one(root).findings] == ["verifier/copied-from"]


def test_files_with_crlf_in_a_checkout_are_marked(root: Path) -> None:
    """By the attributes of the base; of a file that is only taken for text the content decides."""
    up = root / "up"
    rules = "* text=auto eol=crlf\n*.kt text eol=crlf\n*.lf eol=lf\n*.raw -text\n"
    (up / ".gitattributes").write_text(rules)
    tests = up / "src/test"
    (tests / "a.auto").write_text("x\n")
    (tests / "b.auto").write_bytes(b"\0\n")
    (tests / "c.lf").write_text("x\n")
    (tests / "d.raw").write_bytes(b"x\r\n")
    git(up, "add", "--all")
    git(up, "commit", "--quiet", "--message=Ends")
    write(root, base_commit=git(up, "rev-parse", "HEAD").decode().strip())
    assert one(root).findings == ()
    marked = {p for p, blob in data(root)["protected"]["files"].items() if blob.endswith(" crlf")}
    assert marked == {
        "build.gradle",
        "caf\u00e9/src/test/B.kt",
        "src/test/Kept.kt",
        "src/test/a.auto",
    }
    after = {path: sides["after"] for path, sides in data(root)["hidden"].items()}
    assert after["src/test/NewTest.kt"].endswith(" crlf")
    assert after["src/test/OldTest.kt"] is None


def test_a_renamed_file_is_two_hidden_paths(root: Path) -> None:
    up = root / "up"
    git(up, "mv", "src/test/Kept.kt", "src/test/Moved.kt")
    patch = git(up, "diff", "--cached", "--find-renames", "--full-index")
    assert b"rename from" in patch
    (root / "tasks" / TASK / "tests" / "test.patch").write_bytes(patch)
    git(up, "reset", "--quiet", "--hard")
    assert one(root).findings == ()
    assert list(data(root)["hidden"]) == ["src/test/Kept.kt", "src/test/Moved.kt"]


def test_a_submodule_in_the_hidden_patch_is_found(root: Path) -> None:
    up = root / "up"
    base = data(root)["base_commit"]
    git(up, "update-index", "--add", "--cacheinfo", f"160000,{base},lib")
    patch = git(up, "diff", "--cached", "--full-index")
    (root / "tasks" / TASK / "tests" / "test.patch").write_bytes(patch)
    assert [f.rule for f in one(root).findings] == ["verifier/submodule"]


def test_a_patch_that_does_not_apply_names_its_place(root: Path) -> None:
    (root / "tasks" / TASK / "tests" / "test.patch").write_text(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    )
    with pytest.raises(KbenchError, match=f"tasks/{TASK}/tests/test.patch: doesn't apply"):
        one(root)


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_verify_json_that_cannot_be_read_names_its_place(root: Path, content: str) -> None:
    (root / "tasks" / TASK / "tests" / "verify.json").write_text(content)
    with pytest.raises(KbenchError, match=r"verify\.json"):
        one(root)


def test_a_repository_that_is_none_is_one_line(root: Path) -> None:
    empty = root / "empty"
    empty.mkdir()
    with pytest.raises(KbenchError):
        one(root, repository=empty)
    (root / "file").write_text("x")
    with pytest.raises(KbenchError):
        one(root, repository=root / "file")
    with pytest.raises(KbenchError):
        one(root, repository=root / "nowhere")


def test_every_shipped_file_is_a_file_of_the_package() -> None:
    assert all((RUNTIME / name).is_file() for name in SHIPPED.values())


def test_a_base_is_found_in_a_folder_of_mirrors_by_the_name_in_task_toml(
    root: Path, tmp_path: Path
) -> None:
    mirrors = tmp_path / "mirrors"
    (mirrors / "acme").mkdir(parents=True)
    shutil.copytree(root / "up", mirrors / "acme" / "up")
    assert "no repository" in one(root, repository=None, mirrors=str(mirrors)).note
    toml = '[metadata.source]\nrepository_owner = "acme"\nrepository_name = "up"\n'
    (root / "tasks" / TASK / "task.toml").write_text(toml)
    synced = one(root, repository=None, mirrors=str(mirrors))
    assert synced.note == ""
    assert len(data(root)["hidden"]) == 3
