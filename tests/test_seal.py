"""The proof of a seal: every route is closed by the script and found when planted afterwards."""

import dataclasses
import hashlib
import io
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbench_build import digest
from kbench_build.errors import EngineError, KbenchError
from kbench_build.rules.step_inputs import seal_inputs
from kbench_build.steps.seal import seal
from tests.seal_kit import TASK, FolderImage, prove, rules, run_seal, said, write_task
from tests.seal_routes import ROUTES, Site, Upstream, git, make_upstream


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return make_upstream(tmp_path_factory.mktemp("upstream") / "parser")


@pytest.fixture(scope="session")
def sealed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    places = {}
    for history in ("ancestors", "none"):
        places[history] = tmp_path_factory.mktemp("sealed") / "checkout"
        git(upstream.folder, "clone", "-q", str(upstream.folder), str(places[history]))
        run_seal(places[history], upstream.base, history)
    return places


@pytest.fixture
def clone(upstream: Upstream, tmp_path: Path) -> Site:
    """A clone of everything, with the base checked out."""
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", "--no-local", str(upstream.folder), str(folder))
    git(folder, "checkout", "-q", upstream.base)
    return Site(folder=folder, upstream=upstream)


@pytest.fixture
def site(upstream: Upstream, sealed: Mapping[str, Path], tmp_path: Path) -> Site:
    """A sealed checkout with its ancestors."""
    folder = tmp_path / "checkout"
    shutil.copytree(sealed["ancestors"], folder, symlinks=True)
    return Site(folder=folder, upstream=upstream)


# Routes that differ in a name alone are planted together: the script knows none of them by name.
FAMILIES: dict[str, list[str]] = {}
for _name in ROUTES:
    _kind = _name.split(" ", 1)[0]
    FAMILIES.setdefault(_kind if _kind in ("ref", "pseudo-ref", "text") else _name, []).append(
        _name
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_script_closes(family: str, clone: Site, tmp_path: Path) -> None:
    for name in FAMILIES[family]:
        ROUTES[name].plant(clone)
    run_seal(clone.folder, clone.upstream.base, "ancestors")
    report = prove(clone, tmp_path)
    assert report.ok, said(report)
    everything = b"".join(p.read_bytes() for p in clone.dot_git.rglob("*") if p.is_file())
    for each in (clone.fix, clone.upstream.fixed_blob):
        assert each.encode() not in everything
        assert bytes.fromhex(each) not in everything
    assert clone.git("status", "--porcelain") == ""
    assert clone.git("rev-parse", "HEAD") == clone.upstream.base


@pytest.mark.parametrize("name", ROUTES)
def test_the_proof_finds(name: str, site: Site, tmp_path: Path) -> None:
    ROUTES[name].plant(site)
    report = prove(site, tmp_path)
    assert not report.ok
    assert ROUTES[name].rule in rules(report), said(report)


@pytest.mark.parametrize("history", ["ancestors", "none"])
def test_a_sealed_checkout_is_proven(
    history: str, sealed: Mapping[str, Path], upstream: Upstream, tmp_path: Path
) -> None:
    report = prove(Site(folder=sealed[history], upstream=upstream), tmp_path)
    assert report.ok, said(report)
    ids = git(sealed[history], "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    version = git(tmp_path, "--version")
    # The patches make 4 blobs, 3 changed folders and 3 roots; later history has other commits.
    assert report.data["proof"] == {
        "version": 2,
        "base_commit": upstream.base,
        "history": history,
        "head": "ref: refs/heads/main",
        "refs": {"refs/heads/main": upstream.base},
        "objects": len(ids.splitlines()),
        "objects_blake3": digest.of_text("".join(f"{i}\n" for i in sorted(ids.splitlines()))),
        "names": [
            "HEAD",
            "config",
            "index",
            "objects/*.idx",
            "objects/*.pack",
            "refs/heads/main",
            *(["shallow"] if history == "none" else []),
        ],
        "tracked_files": 4,
        "other_files": 0,
        "bytes_read": report.data["proof"]["bytes_read"],
        "forbidden_ids": report.data["proof"]["forbidden_ids"],
        "image": report.data["proof"]["image"],
        "workdir": "/home/checkout",
        "git": version,
    }
    assert report.data["proof"]["bytes_read"] > 1000
    assert report.inputs == "digest"
    assert report.step == "seal"
    assert report.subject == TASK


def test_the_ids_searched_are_those_that_only_the_fix_and_later_history_have(
    site: Site, tmp_path: Path
) -> None:
    up = site.upstream
    listing = ("rev-list", "--objects", "--no-object-names", "--all")
    later = git(up.folder, *listing, "--not", up.base).splitlines()
    counted = prove(site, tmp_path).data["proof"]["forbidden_ids"]
    assert counted["upstream"] == len(set(later))
    assert counted["searched"] >= len(set(later))
    alone = prove(site, tmp_path, upstream=False).data["proof"]["forbidden_ids"]
    assert alone["upstream"] == 0
    assert alone["searched"] == counted["patches"] > 3


# What later steps of a build do to a sealed checkout without harm.


def _status(site: Site) -> None:
    (site.folder / "src" / "parser.kt").touch()
    site.git("status")


def _checkout_again(site: Site) -> None:
    site.git("checkout", "-q", site.upstream.base)
    site.git("reset", "-q", "--hard")
    site.git("checkout", "-q", "main")


def _build(site: Site) -> None:
    (site.folder / "build").mkdir()
    (site.folder / "build" / "parser.class").write_bytes(b"\xca\xfe\xba\xbe")
    (site.folder / "build" / "empty").touch()
    (site.folder / "build" / "link").symlink_to("parser.class")
    (site.folder / "build" / "twin").hardlink_to(site.folder / "build" / "parser.class")


def _name_the_user(site: Site) -> None:
    site.git("config", "user.name", "Ann Author")
    site.git("config", "user.email", "ann@example.com")


def _pack_refs(site: Site) -> None:
    site.git("pack-refs", "--all")


def _index_version_4(site: Site) -> None:
    site.git("update-index", "--index-version", "4")


def _unpack(site: Site) -> None:
    (pack,) = site.dot_git.glob("objects/pack/*.pack")
    data = pack.read_bytes()
    for each in site.dot_git.glob("objects/pack/*"):
        each.unlink()
    site.git("unpack-objects", "-q", stdin=data)


def _reverse_index(site: Site) -> None:
    (pack,) = site.dot_git.glob("objects/pack/*.pack")
    site.git("index-pack", "--rev-index", str(pack))


def _crlf(site: Site) -> None:
    path = site.folder / "src" / "parser.kt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def _seal_twice(site: Site) -> None:
    run_seal(site.folder, site.upstream.base, "ancestors")


@pytest.mark.parametrize(
    "harmless",
    [
        _status,
        _checkout_again,
        _build,
        _name_the_user,
        _pack_refs,
        _index_version_4,
        _unpack,
        _reverse_index,
        _crlf,
        _seal_twice,
    ],
)
def test_the_proof_is_silent_about(
    harmless: Callable[[Site], None], site: Site, tmp_path: Path
) -> None:
    harmless(site)
    report = prove(site, tmp_path)
    assert report.ok, said(report)


# What is wrong in ways that git's own commands don't make.


def _junk_after_a_pack(site: Site) -> None:
    (pack,) = site.dot_git.glob("objects/pack/*.pack")
    pack.chmod(0o644)
    with pack.open("ab") as file:
        file.write(b"fun parse() = 42")


def _junk_in_a_pack_index(site: Site) -> None:
    (idx,) = site.dot_git.glob("objects/pack/*.idx")
    idx.chmod(0o644)
    with idx.open("ab") as file:
        file.write(bytes.fromhex(site.fix))


def _index_of_no_pack(site: Site) -> None:
    site.place_pack().unlink()


def _loose_with_bytes_after_it(site: Site) -> None:
    _unpack(site)
    path = next(site.dot_git.glob("objects/??/*"))
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"fun parse() = 42")


def _loose_under_a_wrong_name(site: Site) -> None:
    (site.dot_git / "objects" / "ab").mkdir()
    name = "cd" * 19
    data = zlib.compress(b"blob 17\0fun parse() = 42\n")
    (site.dot_git / "objects" / "ab" / name).write_bytes(data)


def _loose_that_is_cut_off(site: Site) -> None:
    _unpack(site)
    path = next(site.dot_git.glob("objects/??/*"))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-5])


def _loose_that_is_text(site: Site) -> None:
    (site.dot_git / "objects" / "ab").mkdir()
    (site.dot_git / "objects" / "ab" / ("cd" * 19)).write_text("parse must be 42")


@pytest.mark.parametrize(
    "damage",
    [
        _junk_after_a_pack,
        _junk_in_a_pack_index,
        _index_of_no_pack,
        _loose_with_bytes_after_it,
        _loose_under_a_wrong_name,
        _loose_that_is_cut_off,
        _loose_that_is_text,
    ],
)
def test_the_proof_finds_a_store_that_git_would_not_write(
    damage: Callable[[Site], None], site: Site, tmp_path: Path
) -> None:
    damage(site)
    assert "seal.store" in rules(prove(site, tmp_path))


def test_objects_that_the_base_reaches_must_all_be_there(site: Site, tmp_path: Path) -> None:
    _unpack(site)
    blob = site.git("rev-parse", f"{site.upstream.base}:src/parser.kt")
    (site.dot_git / "objects" / blob[:2] / blob[2:]).unlink()
    report = prove(site, tmp_path)
    assert f"{blob} is missing" in said(report)
    _unpack_commit = site.upstream.ancestor
    (site.dot_git / "objects" / _unpack_commit[:2] / _unpack_commit[2:]).unlink()
    assert "history is incomplete" in said(prove(site, tmp_path))


def test_a_broken_index_is_a_finding(site: Site, tmp_path: Path) -> None:
    path = site.dot_git / "index"
    whole = path.read_bytes()
    for broken in (b"", b"nonsense", whole[:-1], whole[:-30] + b"x" * 30):
        path.write_bytes(broken)
        assert rules(prove(site, tmp_path)) == {"seal.index"}


def test_an_index_without_a_file_of_the_base_is_a_finding(site: Site, tmp_path: Path) -> None:
    site.git("rm", "-q", "--cached", "README")
    report = prove(site, tmp_path)
    assert rules(report) == {"seal.index"}
    assert "lacks 'README' as the base has it" in said(report)


def test_a_tree_of_the_fix_in_the_indexs_cache_is_a_finding(site: Site, tmp_path: Path) -> None:
    site.git("read-tree", "HEAD")
    own = site.git("rev-parse", "HEAD^{tree}")
    foreign = git(site.upstream.folder, "rev-parse", f"{site.fix}^{{tree}}")
    body = (site.dot_git / "index").read_bytes()[:-20]
    changed = body.replace(bytes.fromhex(own), bytes.fromhex(foreign))
    assert changed != body
    (site.dot_git / "index").write_bytes(changed + hashlib.sha1(changed).digest())
    assert f"remembers tree {foreign}" in said(prove(site, tmp_path))


def test_an_id_of_the_fix_is_found_in_every_spelling(site: Site, tmp_path: Path) -> None:
    blob = site.git("hash-object", "-w", "--stdin", stdin=b"fun parse() = 42\n")
    site.write(f"kept/{site.fix}", "")
    site.write("shouted", f"see {site.fix.upper()}.")
    site.write("short", f"({site.fix[:7]})")
    site.write("too-short", site.fix[:6])
    site.write("described", f"v1-1-g{site.fix[:9]}-dirty")
    site.write("glued", f"fade{site.fix}fade")
    (site.dot_git / "bytes").write_bytes(b"graph\0\1" + bytes.fromhex(site.fix) + b"\2")
    report = prove(site, tmp_path)
    hits = {f["where"]: f["message"] for f in report.data["findings"] if f["rule"] == "seal.fix-id"}
    assert hits == {
        f".git/objects/{blob[:2]}/{blob[2:]}": "its name is an id of the fix",
        f".git/kept/{site.fix}": "its name is an id of the fix",
        ".git/shouted": f"holds {site.fix}, an id of the fix",
        ".git/short": f"holds {site.fix[:7]}, an id of the fix",
        ".git/described": f"holds {site.fix[:9]}, an id of the fix",
        ".git/glued": f"holds {site.fix}, an id of the fix",
        ".git/bytes": f"holds {site.fix}, an id of the fix",
    }


def test_two_branches_at_the_base_are_one_too_many(site: Site, tmp_path: Path) -> None:
    site.write("refs/heads/master", f"{site.upstream.base}\n")
    report = prove(site, tmp_path)
    assert rules(report) == {"seal.ref"}
    assert "more than one branch" in said(report)


def test_a_hard_link_in_git_is_a_finding(site: Site, tmp_path: Path) -> None:
    (site.dot_git / "ORIG_HEAD").hardlink_to(site.dot_git / "refs" / "heads" / "main")
    assert "neither a file nor a folder" in said(prove(site, tmp_path))


def test_a_file_too_large_to_read_is_a_finding(site: Site, tmp_path: Path) -> None:
    with (site.dot_git / "packed-refs").open("wb") as file:
        file.truncate(5 << 20)
    assert "too large" in said(prove(site, tmp_path))


def test_a_git_file_is_a_finding(site: Site, tmp_path: Path) -> None:
    site.dot_git.rename(tmp_path / "elsewhere")
    site.dot_git.write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    assert rules(prove(site, tmp_path)) == {"seal.repository"}


def test_the_base_must_be_named_where_there_is_a_repository(site: Site, tmp_path: Path) -> None:
    for base in ("", "v1", site.upstream.base[:12], site.upstream.base.upper()):
        write_task(site, tmp_path, base=base)
        report = prove(site, tmp_path)
        assert rules(report) == {"seal.base"}
        assert report.ok
        assert report.summary.endswith("can't be judged: no base commit is named")


def test_a_seal_at_another_commit_is_found(site: Site, tmp_path: Path) -> None:
    write_task(site, tmp_path, base=site.upstream.ancestor)
    report = prove(site, tmp_path)
    assert {"seal.head", "seal.ref", "seal.objects", "seal.index"} <= rules(report)
    write_task(site, tmp_path, base="12" * 20)
    assert f"the base commit {'12' * 20} isn't in the repository" in said(prove(site, tmp_path))


# Files beside .git.


def test_other_repositories_in_the_checkout_are_found(site: Site, tmp_path: Path) -> None:
    inside = site.folder / "build"
    git(site.folder, "clone", "-q", str(site.upstream.folder), str(inside / "clone"))
    git(site.folder, "clone", "-q", "--bare", str(site.upstream.folder), str(inside / "bare"))
    (inside / "worktree").mkdir()
    (inside / "worktree" / ".git").write_text("gitdir: /opt/parser\n")
    (inside / "pack").write_bytes(site.pack())
    git(site.upstream.folder, "bundle", "create", "-q", str(inside / "bundle"), "--all")
    report = prove(site, tmp_path)
    spots = {f["where"] for f in report.data["findings"] if f["rule"] == "seal.nested"}
    expected = {f"build/{name}" for name in ("clone", "bare", "worktree", "pack", "bundle")}
    assert expected <= spots


def test_a_copy_of_a_fixed_or_hidden_file_is_found(site: Site, tmp_path: Path) -> None:
    (site.folder / "build").mkdir()
    for name, content in {
        "copy.kt": b"object OnlyInTheFix\n",
        "windows.kt": b"object OnlyInTheFix\r\n",
        "hidden.kt": b"class ParserTest // hidden\n",
        "later.kt": b"object Later\n",
    }.items():
        (site.folder / "build" / name).write_bytes(content)
    spots = {f["where"] for f in prove(site, tmp_path).data["findings"]}
    assert spots == {f"build/{name}.kt" for name in ("copy", "windows", "hidden", "later")}
    without = {f["where"] for f in prove(site, tmp_path, upstream=False).data["findings"]}
    assert without == spots - {"build/later.kt"}


def test_an_ancestor_that_holds_the_fix_is_found_and_no_history_is_the_cure(
    sealed: Mapping[str, Path], upstream: Upstream, tmp_path: Path
) -> None:
    # A fix that puts a file back to how an ancestor had it.
    back = git(upstream.folder, "diff", upstream.base, upstream.ancestor, "--", "src/parser.kt")
    reverting = dataclasses.replace(upstream, fix_patch=back.encode() + b"\n")
    for history, expected in (("ancestors", {"seal.fix-history"}), ("none", set())):
        site = Site(folder=sealed[history], upstream=reverting)
        report = prove(site, tmp_path / history, upstream=False)
        assert rules(report) == expected, said(report)


def test_a_fix_that_only_moves_a_file_makes_no_id_that_is_secret(
    sealed: Mapping[str, Path], upstream: Upstream, tmp_path: Path
) -> None:
    move = (
        b"diff --git a/README b/READ.ME\nsimilarity index 100%\n"
        b"rename from README\nrename to READ.ME\n"
    )
    moving = dataclasses.replace(upstream, fix_patch=move)
    report = prove(Site(folder=sealed["ancestors"], upstream=moving), tmp_path, upstream=False)
    assert report.ok, said(report)


def test_an_empty_file_is_no_secret(site: Site, tmp_path: Path) -> None:
    empty = (
        b"diff --git a/src/empty b/src/empty\nnew file mode 100644\n"
        b"index " + b"0" * 40 + b"..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
    )
    adding = dataclasses.replace(site.upstream, fix_patch=empty)
    (site.folder / "build").mkdir()
    (site.folder / "build" / "lock").touch()
    report = prove(Site(folder=site.folder, upstream=adding), tmp_path, upstream=False)
    assert report.ok, said(report)


def test_ids_named_by_a_patch_that_does_not_apply_are_still_searched(
    site: Site, tmp_path: Path
) -> None:
    task = write_task(site, tmp_path)
    short = site.upstream.fix_patch.replace(b"fun parse() = 3", b"fun parse() = 33")
    whole = short.replace(site.upstream.fixed_blob[:7].encode(), site.upstream.fixed_blob.encode())
    assert len({site.upstream.fix_patch, short, whole}) == 3
    site.append("logs/HEAD", f"{site.upstream.fixed_blob}\n")
    (site.folder / "build").mkdir()
    (site.folder / "build" / "copy").write_bytes(b"fun parse() = 42\n")
    for patch in (short, whole):
        (task / "solution" / "fix.patch").write_bytes(patch)
        found = said(prove(site, tmp_path, upstream=False))
        assert f"holds {site.upstream.fixed_blob}" in found
        assert "build/copy: is" in found


# Images without a repository, or without the folder.


def test_a_checkout_without_a_repository_is_sealed(site: Site, tmp_path: Path) -> None:
    shutil.rmtree(site.dot_git)
    report = prove(site, tmp_path)
    assert report.ok
    assert report.data["proof"]["history"] == "absent"
    assert report.summary == "sealed: no repository in the checkout, 4 files in 1 layer searched"
    (site.folder / "copy.kt").write_bytes(b"object OnlyInTheFix\n")
    assert rules(prove(site, tmp_path)) == {"seal.fix-file"}


def test_an_image_without_the_checkout_folder_is_a_finding(site: Site, tmp_path: Path) -> None:
    assert rules(prove(site, tmp_path, image="empty")) == {"seal.checkout"}


def test_an_image_that_works_at_the_root_has_no_checkout(site: Site, tmp_path: Path) -> None:
    assert prove(site, tmp_path, image="nowhere").ok


def test_the_place_comes_from_verify_json_before_the_image(site: Site, tmp_path: Path) -> None:
    task = write_task(site, tmp_path)
    (task / "tests" / "verify.json").write_text('{"workdir": "/opt/other"}')
    assert rules(prove(site, tmp_path)) == {"seal.checkout"}
    (task / "tests" / "verify.json").write_text("not JSON")
    assert prove(site, tmp_path).ok


# Upstream repositories, and what can't be read.


def test_a_bundle_serves_as_upstream(site: Site, tmp_path: Path) -> None:
    bundle = tmp_path / "parser.bundle"
    git(site.upstream.folder, "bundle", "create", "-q", str(bundle), "--all")
    write_task(site, tmp_path)
    engine = FolderImage(place=site.folder)
    folder = prove(site, tmp_path)
    report = seal(tmp_path, TASK, engine=engine, image="i", inputs="", upstreams=[bundle])
    assert report.data["proof"]["forbidden_ids"] == folder.data["proof"]["forbidden_ids"]
    missing = tmp_path / "none.bundle"
    with pytest.raises(KbenchError, match=r"none\.bundle"):
        seal(tmp_path, TASK, engine=engine, image="i", inputs="", upstreams=[missing])


def test_an_upstream_without_the_base_adds_no_ids(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    write_task(site, tmp_path)
    engine = FolderImage(place=site.folder)
    report = seal(tmp_path, TASK, engine=engine, image="i", inputs="", upstreams=[other])
    assert report.data["proof"]["forbidden_ids"]["upstream"] == 0


def test_a_broken_archive_is_an_engine_error(site: Site, tmp_path: Path) -> None:
    class Broken(FolderImage):
        def read(self, image: str, path: str) -> Iterator[bytes]:
            yield next(super().read(image, path))[:700]

    write_task(site, tmp_path)
    with pytest.raises(EngineError, match="can't be read from the image"):
        seal(tmp_path, TASK, engine=Broken(place=site.folder), image="i", inputs="")


def test_the_stream_is_closed_when_reading_stops(site: Site, tmp_path: Path) -> None:
    closed = []

    class Watched(FolderImage):
        def read(self, _image: str, path: str) -> Iterator[bytes]:
            try:
                yield b"not a tar archive" * 100
                yield b""
            finally:
                closed.append(path)

    write_task(site, tmp_path)
    with pytest.raises(EngineError):
        seal(tmp_path, TASK, engine=Watched(place=site.folder), image="i", inputs="")
    assert closed == ["/home/checkout"]


def test_members_that_would_escape_are_never_unpacked(site: Site, tmp_path: Path) -> None:
    class Escaping(FolderImage):
        def read(self, _image: str, _path: str) -> Iterator[bytes]:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                archive.add(self.place, arcname="checkout")
                for name in ("checkout/.git/objects/../../../../escaped", "checkout/../escaped"):
                    member = tarfile.TarInfo(name)
                    member.size = 4
                    archive.addfile(member, io.BytesIO(b"evil"))
            yield buffer.getvalue()

    write_task(site, tmp_path)
    report = seal(tmp_path, TASK, engine=Escaping(place=site.folder), image="i", inputs="")
    assert "seal.name" in rules(report)
    assert not list(tmp_path.rglob("escaped"))


def test_git_never_runs_what_the_image_configures(site: Site, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = site.folder / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook"):
        site.git("config", key, str(hook))
    (site.dot_git / "hooks").mkdir()
    shutil.copy(hook, site.dot_git / "hooks" / "post-index-change")
    report = prove(site, tmp_path)
    assert "seal.config" in rules(report)
    assert not ran.exists()


def test_many_findings_are_shortened(site: Site, tmp_path: Path) -> None:
    for number in range(50):
        site.write(f"refs/anything/{number}", f"{site.fix}\n")
    report = prove(site, tmp_path)
    of_refs = [f for f in report.data["findings"] if f["rule"] == "seal.ref"]
    assert len(of_refs) == 21
    assert of_refs[-1]["message"] == "and 30 more of this kind"


def test_findings_name_the_task_the_place_and_the_cure(site: Site, tmp_path: Path) -> None:
    site.write("refs/tags/v9", f"{site.fix}\n")
    report = prove(site, tmp_path)
    line = f"tasks/{TASK}/environment/Dockerfile: .git/refs/tags/v9: is one ref too many [seal.ref]"
    assert line in said(report)
    assert "keep one branch, main, at the base commit" in said(report)
    assert report.summary.startswith("not sealed: 3 findings, first: ")


def test_sha256_repositories_are_proven_alike(tmp_path: Path) -> None:
    upstream = make_upstream(tmp_path / "upstream", "sha256")
    folder = tmp_path / "checkout"
    git(tmp_path, "clone", "-q", str(upstream.folder), str(folder))
    run_seal(folder, upstream.base, "ancestors")
    site = Site(folder=folder, upstream=upstream)
    report = prove(site, tmp_path)
    assert report.ok, said(report)
    site.bring()
    assert "seal.objects" in rules(prove(site, tmp_path))


def test_inputs_change_with_everything_that_is_read() -> None:
    names = ("image_id", "solution", "tests", "instruction", "base_commit")
    known: dict[str, Any] = {name: name for name in names}
    digests = {seal_inputs(**known), *(seal_inputs(**{**known, key: "other"}) for key in known)}
    digests |= {seal_inputs(**known, answers=[("leak/pack", "*", "theirs")])}
    without = {key: value for key, value in known.items() if key != "base_commit"}
    digests |= {seal_inputs(**without, base_commit=None)}
    assert len(digests) == 8


def test_an_old_way_of_sealing_is_found_wanting(clone: Site, tmp_path: Path) -> None:
    """Deleting refs and collecting garbage leaves whatever nobody thought of."""
    clone.git("update-ref", "refs/pull/7/head", clone.fix)
    clone.git("checkout", "-q", "-B", "main", clone.upstream.base)
    for kind in ("heads", "tags", "remotes"):
        for ref in clone.git("for-each-ref", "--format=%(refname)", f"refs/{kind}").split():
            if ref != "refs/heads/main":
                clone.git("update-ref", "-d", ref)
    clone.git("remote", "remove", "origin")
    clone.git("reflog", "expire", "--expire=now", "--all")
    clone.git("gc", "-q", "--prune=now")
    assert clone.git("cat-file", "-t", clone.fix) == "commit"
    assert {"seal.ref", "seal.objects", "seal.name"} <= rules(prove(clone, tmp_path))
