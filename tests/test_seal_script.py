"""The two scripts that ship in tasks: what they do to a checkout, and how they fail."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seal_kit import RUNTIME, prove, run_script, run_seal, said
from tests.seal_routes import ENV, Site, Upstream, git, make_upstream


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return make_upstream(tmp_path_factory.mktemp("upstream") / "parser")


@pytest.fixture
def site(upstream: Upstream, tmp_path: Path) -> Site:
    """A fresh clone, standing at the newest commit."""
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", "--no-local", str(upstream.folder), str(folder))
    return Site(folder=folder, upstream=upstream)


def picture(folder: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Everything below a folder: mode, time and content of each path."""
    seen: dict[str, tuple[int, int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        content: bytes | str = b""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        moved = 0 if path.is_dir() else stat.st_mtime_ns
        seen[str(path.relative_to(folder))] = (stat.st_mode, moved, content)
    return seen


def check(folder: Path, commit: str, code: int = 0) -> str:
    done = run_script("check_git_changes.sh", folder, commit, code=code)
    return done.stderr.decode()


# What a sealed checkout is.


@pytest.mark.parametrize("history", ["ancestors", "none", ""])
def test_a_sealed_checkout_is_a_repository_that_builds_can_ask(history: str, site: Site) -> None:
    base = site.upstream.base
    run_seal(site.folder, base, *filter(None, [history]))
    assert site.git("rev-parse", "HEAD") == base
    assert site.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert site.git("status", "--porcelain", "--ignored") == ""
    assert site.git("describe", "--always", "--dirty") == base[:7]
    assert site.git("diff", "HEAD") == ""
    commits = site.git("log", "--format=%H").splitlines()
    assert commits[0] == base
    assert len(commits) == (3 if history == "ancestors" else 1)
    assert site.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert site.git("fsck", "--full", "--strict") == ""
    (site.folder / "new.kt").write_text("val new = 1\n")
    site.git("add", "-A")
    site.git("commit", "-q", "-m", "An agent's work")
    assert site.git("rev-parse", "HEAD~1") == base


def test_only_a_few_files_are_left_in_git(site: Site) -> None:
    run_seal(site.folder, site.upstream.base, "none")
    names = {str(p.relative_to(site.dot_git)) for p in site.dot_git.rglob("*") if p.is_file()}
    packs = {name for name in names if name.startswith("objects/pack/pack-")}
    assert len(packs) == 2
    assert names - packs == {"HEAD", "config", "index", "refs/heads/main", "shallow"}
    assert (site.dot_git / "shallow").read_text() == f"{site.upstream.base}\n"
    assert "bare = false" in (site.dot_git / "config").read_text()


def test_the_checkout_may_stand_at_any_commit(site: Site, tmp_path: Path) -> None:
    assert (site.folder / "src" / "fixed.kt").exists()
    run_seal(site.folder, site.upstream.base)
    for gone in ("src/fixed.kt", "src/later.kt", "test"):
        assert not (site.folder / gone).exists()
    assert (site.folder / "src" / "parser.kt").read_text() == "fun parse() = 3\n"
    check(site.folder, site.upstream.base)
    report = prove(site, tmp_path)
    assert report.ok, said(report)


def test_files_that_equal_the_base_and_build_output_keep_content_and_times(site: Site) -> None:
    site.git("checkout", "-q", site.upstream.base)
    (site.folder / "build").mkdir()
    (site.folder / "build" / "parser.class").write_bytes(b"\xca\xfe\xba\xbe")
    (site.folder / "notes.txt").write_text("not tracked, not ignored\n")
    for path in site.folder.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (1_600_000_000, 1_600_000_000))
    before = {k: v for k, v in picture(site.folder).items() if not k.startswith(".git/")}
    run_seal(site.folder, site.upstream.base)
    after = {k: v for k, v in picture(site.folder).items() if not k.startswith(".git/")}
    assert after == before


def test_changed_missing_and_mode_changed_files_are_restored(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")
    (site.folder / "README").unlink()
    (site.folder / "README").mkdir()
    (site.folder / "README" / "in the way").touch()
    (site.folder / "src" / "a b.kt").chmod(0o755)
    run_seal(site.folder, site.upstream.base)
    check(site.folder, site.upstream.base)


def test_names_modes_and_links_of_every_kind_survive(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    git(tmp_path, "init", "-q", str(folder))
    names = [b"-rf", b"a\nb", b'"quoted"', b"caf\xe9", "ünï".encode(), b"  ", b"[x]*", b"d/e/f"]
    for name in names:
        path = os.fsencode(folder) + b"/" + name
        Path(os.fsdecode(path)).parent.mkdir(parents=True, exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(name)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("d/e/f")
    (folder / "dangling").symlink_to("nowhere\nat all")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "All kinds")
    base = git(folder, "rev-parse", "HEAD")
    before = {k: v for k, v in picture(folder).items() if not k.startswith(".git/")}
    later = [b"-later", b"g\nh", b"caf\xe9-later"]
    for name in later:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(name)
    git(folder, "rm", "-q", "-r", "d")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Later")
    run_seal(folder, base)
    check(folder, base)
    after = {k: v for k, v in picture(folder).items() if not k.startswith(".git/")}
    assert after.keys() == before.keys()
    assert {k: (m, c) for k, (m, _, c) in after.items()} == {
        k: (m, c) for k, (m, _, c) in before.items()
    }


def test_line_ends_that_the_base_asks_for_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    git(tmp_path, "init", "-q", str(folder))
    (folder / ".gitattributes").write_text("*.bat text eol=crlf\n")
    (folder / "run.bat").write_bytes(b"echo\r\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Windows")
    base = git(folder, "rev-parse", "HEAD")
    (folder / "run.bat").unlink()
    run_seal(folder, base)
    assert (folder / "run.bat").read_bytes() == b"echo\r\n"
    check(folder, base)


def test_two_seals_make_the_same_pack(site: Site, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(site.folder, twin)
    for folder in (site.folder, twin):
        run_seal(folder, site.upstream.base, "ancestors")
    packs = [sorted(f.glob(".git/objects/pack/*.pack"))[0] for f in (site.folder, twin)]
    assert packs[0].read_bytes() == packs[1].read_bytes()
    assert packs[0].name == packs[1].name


def test_sealing_again_changes_nothing(site: Site) -> None:
    base = site.upstream.base
    run_seal(site.folder, base, "ancestors")
    before = picture(site.folder)
    run_seal(site.folder, base, "ancestors")
    after = picture(site.folder)
    packs = {k for k in before if k.endswith((".pack", ".idx"))}
    assert after.keys() == before.keys()
    assert all(after[k][2] == before[k][2] for k in before.keys() - {".git/index"})
    assert packs


def test_the_history_can_be_cut_later_but_not_come_back(site: Site) -> None:
    base = site.upstream.base
    run_seal(site.folder, base, "none")
    run_seal(site.folder, base, "ancestors")
    assert site.git("log", "--format=%H") == base
    assert (site.dot_git / "shallow").read_text() == f"{base}\n"
    run_seal(site.folder, site.upstream.ancestor, "none", code=1)


# Repositories of other shapes.


def test_a_linked_worktree_becomes_a_repository_of_its_own(site: Site, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    site.git("worktree", "add", "-q", "--detach", str(linked), "HEAD")
    assert (linked / ".git").is_file()
    error = run_seal(linked, site.upstream.base, "ancestors")
    assert f"{site.dot_git} is outside the checkout" in error
    assert (linked / ".git").is_dir()
    assert site.git("rev-parse", "HEAD") != site.upstream.base
    report = prove(Site(folder=linked, upstream=site.upstream), tmp_path)
    assert report.ok, said(report)


def test_a_separate_git_folder_becomes_an_own_one(upstream: Upstream, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    git(
        tmp_path,
        "clone",
        "-q",
        "--separate-git-dir",
        str(elsewhere),
        str(upstream.folder),
        str(folder),
    )
    run_seal(folder, upstream.base)
    assert (folder / ".git").is_dir()
    check(folder, upstream.base)


def test_a_git_folder_behind_a_link_becomes_an_own_one(site: Site, tmp_path: Path) -> None:
    site.dot_git.rename(tmp_path / "elsewhere")
    site.dot_git.symlink_to("../elsewhere")
    error = run_seal(site.folder, site.upstream.base)
    assert "is outside the checkout" in error
    assert not site.dot_git.is_symlink()
    assert (tmp_path / "elsewhere" / "objects").is_dir()
    check(site.folder, site.upstream.base)


def test_objects_of_alternates_are_taken_in(upstream: Upstream, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", "--shared", str(upstream.folder), str(folder))
    error = run_seal(folder, upstream.base, "ancestors")
    assert f"alternate object stores keep their history: {upstream.folder}/.git/objects" in error
    assert not (folder / ".git" / "objects" / "info" / "alternates").exists()
    report = prove(Site(folder=folder, upstream=upstream), tmp_path)
    assert report.ok, said(report)


def test_a_shallow_clone_keeps_its_own_end(upstream: Upstream, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    source = f"file://{upstream.folder}"
    git(tmp_path, "clone", "-q", "--depth", "5", "--branch", "main", source, str(folder))
    run_seal(folder, upstream.base, "ancestors")
    assert len(git(folder, "log", "--format=%H").splitlines()) == 2
    report = prove(Site(folder=folder, upstream=upstream), tmp_path)
    assert report.ok, said(report)


def test_a_shallow_end_after_the_base_is_forgotten(site: Site) -> None:
    site.write("shallow", f"{site.git('rev-parse', 'HEAD')}\n")
    site.git("fetch", "-q", str(site.upstream.folder), f"{site.upstream.base}:refs/heads/kept")
    run_seal(site.folder, site.upstream.base, "ancestors")
    assert not (site.dot_git / "shallow").exists()
    assert len(site.git("log", "--format=%H").splitlines()) == 3


def test_a_clone_without_a_checkout_gets_one(upstream: Upstream, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", "--no-checkout", str(upstream.folder), str(folder))
    run_seal(folder, upstream.base)
    check(folder, upstream.base)


def test_a_sha256_repository_stays_one(tmp_path: Path) -> None:
    upstream = make_upstream(tmp_path / "upstream", "sha256")
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", str(upstream.folder), str(folder))
    run_seal(folder, upstream.base, "ancestors")
    check(folder, upstream.base)
    assert git(folder, "rev-parse", "--show-object-format") == "sha256"


@pytest.fixture
def with_submodule(upstream: Upstream, tmp_path: Path) -> Site:
    """A checkout with the parser as a submodule at the parser's base."""
    library, folder = tmp_path / "library", tmp_path / "checkout"
    git(tmp_path, "init", "-q", "-b", "main", str(library))
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(library, *add, str(upstream.folder), "parser")
    git(library / "parser", "checkout", "-q", upstream.base)
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "Use the parser")
    base = git(library, "rev-parse", "HEAD")
    clone = ("-c", "protocol.file.allow=always", "clone", "-q", "--recurse-submodules")
    git(tmp_path, *clone, str(library), str(folder))
    own = Upstream(
        folder=library,
        ancestor=base,
        base=base,
        fix=upstream.fix,
        fixed_blob=upstream.fixed_blob,
        fix_patch=b"",
        test_patch=b"",
    )
    return Site(folder=folder, upstream=own)


def test_a_submodule_keeps_its_files_and_loses_its_history(
    with_submodule: Site, tmp_path: Path
) -> None:
    folder = with_submodule.folder
    assert (folder / "parser" / ".git").is_file()
    run_seal(folder, with_submodule.upstream.base)
    assert (folder / "parser" / "src" / "parser.kt").read_text() == "fun parse() = 3\n"
    assert not (folder / "parser" / ".git").exists()
    assert with_submodule.git("status", "--porcelain") == ""
    check(folder, with_submodule.upstream.base)
    report = prove(with_submodule, tmp_path)
    assert report.ok, said(report)


def test_a_submodule_at_another_commit_is_refused(with_submodule: Site) -> None:
    git(with_submodule.folder / "parser", "checkout", "-q", with_submodule.fix)
    before = picture(with_submodule.folder)
    error = run_seal(with_submodule.folder, with_submodule.upstream.base, code=1)
    assert f"the submodule parser is at {with_submodule.fix}" in error
    assert picture(with_submodule.folder) == before


def test_a_submodule_that_the_base_does_not_have_goes(
    with_submodule: Site, upstream: Upstream
) -> None:
    with_submodule.git("rm", "-q", "-r", "--cached", "parser")
    with_submodule.git("commit", "-q", "-m", "Without the parser")
    without = with_submodule.git("rev-parse", "HEAD")
    with_submodule.git("reset", "-q", "--hard", "HEAD~1")
    assert upstream.base in with_submodule.git("ls-tree", "HEAD", "parser")
    run_seal(with_submodule.folder, without)
    assert not (with_submodule.folder / "parser").exists()


def test_another_repository_inside_is_refused(site: Site) -> None:
    inside = site.folder / "build" / "clone"
    inside.parent.mkdir()
    git(site.folder, "clone", "-q", str(site.upstream.folder), str(inside))
    before = picture(site.folder)
    error = run_seal(site.folder, site.upstream.base, code=1)
    assert f"another repository is inside the checkout: {inside}/.git" in error
    assert picture(site.folder) == before


# Wrong calls and failures: said in one line, and nothing changed.


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "usage: "),
        (["{folder}"], 2, "usage: "),
        (["{folder}", "{base}", "none", "more"], 2, "usage: "),
        (["{folder}", "{base}", "some"], 2, "'ancestors' or 'none', not 'some'"),
        (["{folder}", "{base}", ""], 2, "'ancestors' or 'none', not ''"),
        (["{folder}", "HEAD"], 2, "must be a full commit id"),
        (["{folder}", "main"], 2, "must be a full commit id"),
        (["{folder}", "v1"], 2, "must be a full commit id"),
        (["{folder}", "{short}"], 2, "must be a full commit id"),
        (["{folder}", "{upper}"], 2, "must be a full commit id"),
        (["{folder}", "{base}^"], 2, "must be a full commit id"),
        (["{folder}", "{base}\n"], 2, "must be a full commit id"),
        (["{folder}", "{tree}"], 1, "has no commit"),
        (["{folder}", "{tag}"], 1, "has no commit"),
        (["{folder}", "{absent}"], 1, "has no commit"),
        (["{folder}", "{sha256}"], 1, "has no commit"),
        (["{folder}/src", "{base}"], 2, "not the top of a git checkout"),
        (["{folder}/none", "{base}"], 2, "no such folder"),
    ],
)
def test_a_wrong_call_is_refused(arguments: list[str], code: int, message: str, site: Site) -> None:
    base = site.upstream.base
    site.git("tag", "-a", "-m", "x", "annotated", base)
    values = {
        "folder": str(site.folder),
        "base": base,
        "short": base[:12],
        "upper": base.upper(),
        "tree": site.git("rev-parse", f"{base}^{{tree}}"),
        "tag": site.git("rev-parse", "annotated"),
        "absent": "12" * 20,
        "sha256": "12" * 32,
    }
    before = picture(site.folder)
    filled = [argument.format(**values) for argument in arguments]
    done = run_script("seal_git_history.sh", *filled, code=code)
    assert message in done.stderr.decode()
    assert picture(site.folder) == before


def damage_pack(site: Site) -> None:
    (pack,) = site.dot_git.glob("objects/pack/*.pack")
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[12:-20] = b"x" * (len(data) - 32)
    pack.write_bytes(data)


def lose_a_blob(site: Site) -> None:
    (pack,) = site.dot_git.glob("objects/pack/*.pack")
    data = pack.read_bytes()
    for each in site.dot_git.glob("objects/pack/*"):
        each.unlink()
    site.git("unpack-objects", "-q", stdin=data)
    blob = site.git("rev-parse", f"{site.upstream.base}:README")
    (site.dot_git / "objects" / blob[:2] / blob[2:]).unlink()


def break_the_index(site: Site) -> None:
    (site.dot_git / "index").write_bytes(b"not an index")


def lose_the_objects(site: Site) -> None:
    shutil.rmtree(site.dot_git / "objects")


def point_nowhere(site: Site) -> None:
    shutil.rmtree(site.dot_git)
    site.dot_git.write_text("gitdir: /nowhere\n")


def write_nonsense(site: Site) -> None:
    shutil.rmtree(site.dot_git)
    site.dot_git.write_text("nonsense\n")


@pytest.mark.parametrize(
    "damage",
    [damage_pack, lose_a_blob, break_the_index, lose_the_objects, point_nowhere, write_nonsense],
)
def test_a_broken_repository_is_refused_and_left_as_it_was(
    damage: Callable[[Site], None], site: Site
) -> None:
    damage(site)
    before = picture(site.folder)
    error = run_seal(site.folder, site.upstream.base, "ancestors", code=1)
    assert "seal_git_history.sh: " in error
    assert picture(site.folder) == before


def test_a_partial_clone_that_lacks_objects_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    git(upstream.folder, "config", "uploadpack.allowFilter", "true")
    source = f"file://{upstream.folder}"
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", source, str(folder))
    error = run_seal(folder, upstream.base, code=1)
    assert "incomplete" in error
    assert sorted(p.name for p in folder.iterdir()) == [".git"]


def test_a_full_disk_leaves_the_old_repository(site: Site, tmp_path: Path) -> None:
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "git").write_text(
        '#!/bin/sh\ncase " $* " in *" index-pack "*) echo "No space left on device" >&2; exit 128;;'
        f' esac\nexec {shutil.which("git")} "$@"\n'
    )
    (shim / "git").chmod(0o755)
    before = picture(site.folder)
    error = run_seal(site.folder, site.upstream.base, code=1, env={"PATH": f"{shim}:{ENV['PATH']}"})
    assert "No space left on device" in error
    assert picture(site.folder) == before


def test_a_failing_swap_puts_the_old_repository_back(site: Site, tmp_path: Path) -> None:
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "mv").write_text(
        '#!/bin/sh\ncase "$*" in *.git-seal.*/git\\ */.git) echo "mv: no" >&2; exit 1;; esac\n'
        f'exec {shutil.which("mv")} "$@"\n'
    )
    (shim / "mv").chmod(0o755)
    before = picture(site.dot_git)
    error = run_seal(site.folder, site.upstream.base, code=1, env={"PATH": f"{shim}:{ENV['PATH']}"})
    assert "mv: no" in error
    assert picture(site.dot_git) == before
    assert not list(site.folder.glob(".git-seal.*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_seal_leaves_the_old_repository(
    number: signal.Signals, site: Site, tmp_path: Path
) -> None:
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" index-pack "*) touch {tmp_path}/there; sleep 2;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (shim / "git").chmod(0o755)
    before = picture(site.folder)
    command: list[str | Path] = ["bash", RUNTIME / "seal_git_history.sh"]
    command += [site.folder, site.upstream.base]
    env = ENV | {"PATH": f"{shim}:{ENV['PATH']}"}
    with subprocess.Popen(command, env=env, start_new_session=True) as process:
        while not (tmp_path / "there").exists():
            time.sleep(0.02)
        os.killpg(process.pid, number)
        assert process.wait() == (143 if number is signal.SIGTERM else 130)
    assert picture(site.folder) == before


# What is foreign has no say.


def test_nothing_that_the_old_repository_configures_is_run(site: Site, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = tmp_path / "hook.sh"
    hook.write_text(f'#!/bin/sh\necho "$0" >>{ran}\ncat\n')
    hook.chmod(0o755)
    (site.dot_git / "info").mkdir(exist_ok=True)
    (site.dot_git / "info" / "attributes").write_text("* filter=evil\n")
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "core.pager"):
        site.git("config", key, str(hook))
    (site.dot_git / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        shutil.copy(hook, site.dot_git / "hooks" / name)
    ran.unlink(missing_ok=True)
    run_seal(site.folder, site.upstream.base, "ancestors")
    assert not ran.exists()
    assert site.git("config", "--list", "--local").splitlines() == [
        "core.repositoryformatversion=0",
        "core.filemode=true",
        "core.bare=false",
    ]


def test_the_callers_git_variables_have_no_say(site: Site, tmp_path: Path) -> None:
    site.bring()
    hostile = {
        "GIT_DIR": str(site.upstream.folder / ".git"),
        "GIT_WORK_TREE": str(tmp_path),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tmp_path),
        "GIT_SHALLOW_FILE": str(tmp_path / "shallow"),
        "GIT_NAMESPACE": "x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TRACE": "1",
    }
    run_seal(site.folder, site.upstream.base, "ancestors", env=hostile)
    check(site.folder, site.upstream.base)
    assert not (tmp_path / "index").exists()
    assert git(site.upstream.folder, "rev-parse", "main") != site.upstream.base


def test_grafts_replacements_and_commit_graphs_do_not_steer_the_walk(site: Site) -> None:
    base, ancestor = site.upstream.base, site.upstream.ancestor
    site.git("replace", "--graft", base)
    site.write("info/grafts", f"{base}\n")
    run_seal(site.folder, base, "ancestors")
    assert site.git("log", "--format=%H").splitlines()[-1] == ancestor


def test_leftovers_behind_a_symbolic_link_are_not_followed(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "ParserTest.kt").write_text("someone else's\n")
    shutil.rmtree(site.folder / "test")
    (site.folder / "test").symlink_to("../outside")
    run_seal(site.folder, site.upstream.base)
    assert (outside / "ParserTest.kt").read_text() == "someone else's\n"


def test_tracked_files_behind_a_symbolic_link_are_not_followed(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(site.folder / "src", outside)
    before = picture(outside)
    shutil.rmtree(site.folder / "src")
    (site.folder / "src").symlink_to("../outside")
    run_seal(site.folder, site.upstream.base)
    assert picture(outside) == before
    assert not (site.folder / "src").is_symlink()
    check(site.folder, site.upstream.base)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_new_repository_belongs_to_the_owner_of_the_old_one(site: Site) -> None:
    for path in [site.dot_git, *site.dot_git.rglob("*")]:
        os.chown(path, 1234, 1234)
    run_seal(site.folder, site.upstream.base)
    owners = {path.lstat().st_uid for path in [site.dot_git, *site.dot_git.rglob("*")]}
    assert owners == {1234}


def test_a_relative_path_and_the_folder_itself_will_do(site: Site) -> None:
    command: list[str | Path] = ["bash", RUNTIME / "seal_git_history.sh"]
    command += [".", site.upstream.base]
    subprocess.run(command, cwd=site.folder, env=ENV, check=True, capture_output=True)
    check(site.folder, site.upstream.base)


# check_git_changes.sh


def change(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")


def change_and_hide(site: Site) -> None:
    change(site)
    site.git("update-index", "--assume-unchanged", "src/parser.kt")


def change_and_skip(site: Site) -> None:
    change(site)
    site.git("update-index", "--skip-worktree", "src/parser.kt")


def change_and_stage(site: Site) -> None:
    change(site)
    site.git("add", "-A")


def change_under_the_same_time(site: Site) -> None:
    path = site.folder / "src" / "parser.kt"
    site.git("status")
    stat = path.stat()
    path.write_text("fun parse() = 4\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def delete(site: Site) -> None:
    (site.folder / "README").unlink()


def make_executable(site: Site) -> None:
    (site.folder / "README").chmod(0o755)


def make_a_link(site: Site) -> None:
    delete(site)
    (site.folder / "README").symlink_to("src")


def add(site: Site) -> None:
    (site.folder / "extra file").touch()


def add_and_exclude(site: Site) -> None:
    add(site)
    site.write("info/exclude", "extra*\n")


def add_and_configure(site: Site) -> None:
    add(site)
    site.write("excludes", "*\n")
    site.git("config", "core.excludesFile", str(site.dot_git / "excludes"))
    site.git("config", "status.showUntrackedFiles", "no")


@pytest.mark.parametrize(
    ("dirt", "line"),
    [
        (change, "M\tsrc/parser.kt"),
        (change_and_hide, "M\tsrc/parser.kt"),
        (change_and_skip, "M\tsrc/parser.kt"),
        (change_and_stage, "M\tsrc/parser.kt"),
        (change_under_the_same_time, "M\tsrc/parser.kt"),
        (delete, "D\tREADME"),
        (make_executable, "M\tREADME"),
        (make_a_link, "T\tREADME"),
        (add, "?\textra file"),
        (add_and_exclude, "?\textra file"),
        (add_and_configure, "?\textra file"),
    ],
)
def test_a_change_is_named(dirt: Callable[[Site], None], line: str, site: Site) -> None:
    run_seal(site.folder, site.upstream.base)
    assert check(site.folder, site.upstream.base) == ""
    dirt(site)
    assert line in check(site.folder, site.upstream.base, code=1).splitlines()


def test_the_check_changes_nothing(site: Site) -> None:
    run_seal(site.folder, site.upstream.base)
    change(site)
    before = picture(site.folder)
    check(site.folder, site.upstream.base, code=1)
    assert picture(site.folder) == before


def test_another_head_is_named_even_when_files_agree(site: Site) -> None:
    run_seal(site.folder, site.upstream.base, "ancestors")
    site.git("commit", "-q", "--allow-empty", "-m", "Same files")
    head = site.git("rev-parse", "HEAD")
    assert f"is {head}, not {site.upstream.base}" in check(site.folder, site.upstream.base, code=1)


def test_ignored_files_may_be_there(site: Site) -> None:
    run_seal(site.folder, site.upstream.base)
    (site.folder / "build").mkdir()
    (site.folder / "build" / "x.class").touch()
    check(site.folder, site.upstream.base)


def test_wrong_calls_of_the_check_are_refused(site: Site, tmp_path: Path) -> None:
    base = site.upstream.base
    for arguments in ([], [site.folder], [site.folder, "HEAD"], [site.folder, base, "x"]):
        run_script("check_git_changes.sh", *arguments, code=2)
    run_script("check_git_changes.sh", tmp_path, base, code=2)
    run_script("check_git_changes.sh", tmp_path / "none", base, code=2)


@pytest.mark.parametrize("name", ["seal_git_history.sh", "check_git_changes.sh"])
def test_the_scripts_pass_shellcheck(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck isn't installed")
    subprocess.run(["shellcheck", RUNTIME / name], check=True)
