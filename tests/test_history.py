"""A history kept as text becomes the same commits, whoever builds it and wherever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "history.py"

# The ids of the small series below, which must never change.
FIRST = "54aca8d1bb357f78843a1ea00e1fd04becd1d18b"
SECOND = "370cbdd185d430127c635f55193e1677deeb620d"

SERIES = """\
history 1
commit 0001-start.patch   # the first one
branch main
tag v0
commit 0002-second.patch
branch main
head main
"""
START = """\
author Plain role <plain@example.invalid>
date 2023-01-02 03:04:05 +0100

    Start: ünïcödé

    A second paragraph.

diff --git a/a file.txt b/a file.txt
new file mode 100644
index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a
--- /dev/null
+++ b/a file.txt\t
@@ -0,0 +1 @@
+hello
"""
MODE = """\
author Plain role <plain@example.invalid>
date 2023-01-03 00:00:00 -0930
committer Other role <other@example.invalid>
committed 2023-02-01 12:00:00 +0000

    Make it run

diff --git a/a file.txt b/a file.txt
old mode 100644
new mode 100755
"""


def history(
    *words: str | Path,
    env: dict[str, str] | None = None,
    umask: int = 0o022,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)],
        env=os.environ | (env or {}),
        umask=umask,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def git(repository: Path, *words: str, env: dict[str, str] | None = None) -> str:
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(repository),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Rôle one",
        "GIT_AUTHOR_EMAIL": "one@example.invalid",
        "GIT_COMMITTER_NAME": "Role two",
        "GIT_COMMITTER_EMAIL": "two@example.invalid",
        "GIT_AUTHOR_DATE": "2022-05-06T07:08:09+05:45",
        "GIT_COMMITTER_DATE": "2022-05-06T08:00:00-03:30",
    }
    done = subprocess.run(
        ["git", "-C", str(repository), *words],
        env=base | (env or {}),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode(errors="replace").strip()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "series").write_text(SERIES)
    (folder / "0001-start.patch").write_text(START)
    (folder / "0002-second.patch").write_text(MODE)
    return folder


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """Make a repository with each thing that a history may hold."""
    path = tmp_path / "rich"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "text").write_text("".join(f"line {n}\n" for n in range(30)))
    (path / "no newline").write_text("last line")
    (path / "crlf").write_bytes(b"one\r\ntwo  \r\n")
    (path / "latin").write_bytes(b"caf\xe9\n")
    (path / "binary").write_bytes(bytes(range(256)) * 9)
    (path / "zürich").symlink_to("text")
    save(path, "Start\n\n    indented\n\ndiff --git isn't a difference here\n")
    git(path, "tag", "plain")
    git(path, "checkout", "-q", "-b", "pull/1")
    (path / "text").write_text(
        "".join(f"line {n}\n" for n in range(29)) + "changed on the branch\n"
    )
    (path / "binary").write_bytes(bytes(range(255, -1, -1)) * 9)
    (path / "crlf").chmod(0o755)
    save(path, "Change the end, a binary file and a mode")
    git(path, "checkout", "-q", "main")
    (path / "text").write_text("changed on main\n" + "".join(f"line {n}\n" for n in range(1, 30)))
    (path / "no newline").rename(path / "renamed")
    save(path, "Change the beginning")
    git(path, "merge", "-q", "--no-ff", "-m", "Merge pull request #1 from pull/1", "pull/1")
    git(path, "tag", "-a", "annotated", "-m", "A tag\n\nwith more text")
    git(path, "checkout", "-q", "-b", "release", "plain")
    (path / "text").write_text("conflicting\n")
    save(path, "Conflict")
    git(path, "commit", "-q", "--allow-empty", "-m", "Change nothing")
    git(path, "merge", "-q", "-s", "ours", "-m", "Merge main, keeping ours", "main")
    git(path, "checkout", "-q", "main")
    return path


def save(path: Path, message: str) -> None:
    git(path, "add", "-A")
    git(path, "commit", "-q", "--cleanup=verbatim", "-m", message)


def heads(bundle: Path) -> list[str]:
    done = subprocess.run(
        ["git", "bundle", "list-heads", str(bundle)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return sorted(done.stdout.splitlines())


def test_a_series_becomes_the_commits_it_always_became(small: Path, tmp_path: Path) -> None:
    done = history("build", small, tmp_path / "out.bundle")
    assert done.returncode == 0, done.stderr
    assert heads(tmp_path / "out.bundle") == sorted(
        [f"{FIRST} refs/tags/v0", f"{SECOND} HEAD", f"{SECOND} refs/heads/main"]
    )


def test_what_a_clone_of_the_bundle_holds(small: Path, tmp_path: Path) -> None:
    assert history("build", small, tmp_path / "out.bundle").returncode == 0
    git(tmp_path, "clone", "-q", "out.bundle", "clone")
    clone = tmp_path / "clone"
    assert git(clone, "log", "-1", "--format=%an|%ae|%ad|%cn|%cd", "--date=iso") == (
        "Plain role|plain@example.invalid|2023-01-03 00:00:00 -0930"
        "|Other role|2023-02-01 12:00:00 +0000"
    )
    assert git(clone, "log", "-1", "--format=%B", "v0") == "Start: ünïcödé\n\nA second paragraph."
    assert git(clone, "ls-files", "-s").startswith(
        "100755 ce013625030ba8dba906f756967f9e9ca394464a"
    )
    assert git(clone, "branch", "--show-current") == "main"


def test_the_output_can_be_named_by_the_environment(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "named.bundle"
    assert history("build", small, env={"KBENCH_OUTPUT": str(out)}).returncode == 0
    assert f"{SECOND} HEAD" in heads(out)


HOSTILE = """\
[user]
\tname = Somebody else
\temail = else@example.invalid
\tsigningKey = 00000000
[commit]
\tgpgSign = true
[tag]
\tgpgSign = true
[core]
\tautocrlf = true
\tfileMode = false
\tquotePath = false
[apply]
\twhitespace = fix
[diff]
\tnoprefix = true
\trenames = copies
\tcontext = 0
[merge]
\tff = only
\tconflictStyle = diff3
[init]
\tdefaultBranch = trunk
[i18n]
\tcommitEncoding = ISO-8859-1
[pack]
\tthreads = 7
"""


@pytest.mark.parametrize(
    ("env", "umask"),
    [
        ({"TZ": "Pacific/Apia"}, 0o022),
        ({"LC_ALL": "C", "LANG": "C"}, 0o077),
        ({"LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "7"}, 0o000),
        ({"GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z", "GIT_COMMITTER_NAME": "x"}, 0o022),
        ({"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": "/x"}, 0o022),
        ({"GIT_DEFAULT_HASH": "sha256", "GIT_CONFIG_COUNT": "0"}, 0o027),
        ({"HOME": "hostile", "XDG_CONFIG_HOME": "hostile"}, 0o002),
    ],
    ids=["time zone", "locale and umask", "turkish", "identity", "git's own", "hash", "settings"],
)
def test_neither_user_nor_surroundings_change_an_id_or_a_patch(
    rich: Path, tmp_path: Path, env: dict[str, str], umask: int
) -> None:
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / ".gitconfig").write_text(HOSTILE)
    for number, (variables, mask) in enumerate([({}, 0o022), (env, umask)]):
        series = tmp_path / f"series{number}"
        bundle = tmp_path / f"{number}.bundle"
        for words in (("export", rich, series), ("build", series, bundle)):
            done = history(*words, env=variables, umask=mask, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    assert files(tmp_path / "series0") == files(tmp_path / "series1")
    assert heads(tmp_path / "0.bundle") == heads(tmp_path / "1.bundle")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_repository_comes_back_as_it_was(rich: Path, tmp_path: Path) -> None:
    done = history("export", rich, tmp_path / "series")
    assert done.returncode == 0, done.stderr
    assert history("build", tmp_path / "series", tmp_path / "out.bundle").returncode == 0
    refs = git(rich, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    assert heads(tmp_path / "out.bundle") == sorted(
        [*refs, git(rich, "rev-parse", "HEAD") + " HEAD"]
    )


def test_what_is_exported_is_readable(rich: Path, tmp_path: Path) -> None:
    assert history("export", rich, tmp_path / "series").returncode == 0
    operations = (tmp_path / "series" / "series").read_text().splitlines()
    assert operations[0] == "history 1"
    assert {line.split()[0] for line in operations} == {
        "history", "commit", "at", "merge", "ours", "branch", "tag", "head"
    }  # fmt: skip
    patches = files(tmp_path / "series")
    clean = next(data for name, data in patches.items() if "merge-pull-request-1" in name)
    settled = next(data for name, data in patches.items() if "merge-main-keeping-ours" in name)
    assert b"diff --git" not in clean
    assert b"GIT binary patch" in b"".join(patches.values())
    assert b"old mode 100644\nnew mode 100755" in b"".join(patches.values())
    assert settled.endswith(b"    Merge main, keeping ours\n")


def test_a_bundle_is_the_same_file_each_time(small: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert history("build", small, tmp_path / name).returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_log_says_which_id_a_number_becomes(small: Path) -> None:
    done = history("log", small)
    assert done.stdout == f"0001 {FIRST} Start: ünïcödé\n0002 {SECOND} Make it run\n"


@pytest.mark.parametrize(
    "wrong",
    [
        ("series", "history 1", "history 2", "series:1: the first line must be 'history 1'"),
        ("series", "tag v0", "tga v0", "series:4: not an operation: tga v0"),
        (
            "series",
            "0002-second.patch",
            "0003-none.patch",
            "series:5: 0003-none.patch: No such file",
        ),
        (
            "series",
            "0002-second.patch",
            "../x.patch",
            "series:5: ../x.patch: a patch file lies beside",
        ),
        ("series", "0002-second.patch", "0001-start.patch", "series:5: git apply"),
        ("series", "tag v0", "at 0009", "series:4: no commit 0009 before this line"),
        ("series", "branch main\n", "branch a..b\n", "series:3: git check-ref-format"),
        ("0001-start.patch", "05 +0100", "05", "0001-start.patch: not a date"),
        ("0001-start.patch", "05 +0100", "05 +01:00", "0001-start.patch: not a date"),
        ("0001-start.patch", "author Plain role <", "author <", "not a name and an address"),
        (
            "0001-start.patch",
            "    Start",
            "Start",
            "message lines are indented by four spaces: Start",
        ),
        ("0001-start.patch", "date", "when", "0001-start.patch: unknown header: when"),
        ("0002-second.patch", "old mode 100644", "old mode 100755", "series:5: git apply"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    small: Path, tmp_path: Path, wrong: tuple[str, str, str, str]
) -> None:
    file, old, new, said = wrong
    text = (small / file).read_text()
    assert old in text
    (small / file).write_text(text.replace(old, new))
    done = history("build", small, tmp_path / "out.bundle")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("out.bundle*"))


def test_a_merge_with_conflicts_needs_a_difference(rich: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    assert history("export", rich, series).returncode == 0
    text = (series / "series").read_text()
    assert "\nours " in text
    (series / "series").write_text(text.replace("\nours ", "\nmerge "))
    done = history("build", series, tmp_path / "out.bundle")
    assert done.returncode == 2
    assert "the merge has conflicts and no difference to settle them" in done.stderr


def test_a_merge_settled_by_hand_comes_back(rich: Path, tmp_path: Path) -> None:
    git(rich, "checkout", "-q", "release")
    (rich / "text").write_text("settled by hand\n")
    git(rich, "add", "text")
    tree = git(rich, "write-tree")
    commit = git(rich, "commit-tree", tree, "-p", "HEAD~1", "-p", "main", "-m", "Settled")
    git(rich, "branch", "settled", commit)
    assert history("export", rich, tmp_path / "series").returncode == 0
    assert history("build", tmp_path / "series", tmp_path / "out.bundle").returncode == 0
    assert f"{commit} refs/heads/settled" in heads(tmp_path / "out.bundle")


def test_an_export_never_writes_over_a_folder(rich: Path, tmp_path: Path) -> None:
    (tmp_path / "series").mkdir()
    done = history("export", rich, tmp_path / "series")
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert not list((tmp_path / "series").iterdir())


def test_a_signed_commit_is_refused_rather_than_changed(rich: Path, tmp_path: Path) -> None:
    content = git(rich, "cat-file", "commit", "HEAD").replace("\n\n", "\ngpgsig none\n\n", 1)
    (tmp_path / "object").write_text(content + "\n")
    signed = git(rich, "hash-object", "-t", "commit", "-w", str(tmp_path / "object"))
    git(rich, "update-ref", "refs/heads/signed", signed)
    done = history("export", rich, tmp_path / "series")
    assert done.returncode == 2
    assert f"{signed}: can't be written as text: gpgsig" in done.stderr
    assert not (tmp_path / "series").exists()
