"""Ways to leave a fix in a checkout's repository, each planted by real git or by hand.

Every route is a function of a `Site`; it works on a fresh clone of the whole upstream and on a
checkout that has already been sealed (objects of the fix are then brought back first).
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ann Author",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "Ann Author",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
}


TOKENS = """\
package acme.parser

/** Splits a line into tokens; what stands in quotes is one of them. */
internal class TokenReader(private val line: String) {
    private var position = 0

    fun readAllTokens(): List<String> {
        val tokens = mutableListOf<String>()
        while (skipBlanksBefore(position)) tokens += quotedOrPlain()
        return tokens
    }

    private fun skipBlanksBefore(start: Int): Boolean {
        position = (start until line.length).firstOrNull { line[it] != ' ' } ?: line.length
        return position < line.length
    }

    private fun quotedOrPlain(): String {
        val end = if (line[position] == '"') line.indexOf('"', position + 1) else line.indexOf(' ')
        require(end >= 0) { "a quote in this line is never closed" }
        return line.substring(position, end).also { position = end + 1 }
    }
}
"""


def git(folder: Path, *argv: str, stdin: bytes = b"", **env: str) -> str:
    """Run git in a folder; its standard output without the final line break."""
    done = subprocess.run(
        ["git", *argv], cwd=folder, env=ENV | env, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, (argv, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A small upstream repository: the base, the fix (dated before it), and what came later."""

    folder: Path
    ancestor: str
    base: str
    fix: str
    fixed_blob: str
    fix_patch: bytes
    test_patch: bytes


def make_upstream(folder: Path, algorithm: str = "sha1") -> Upstream:
    """Make it. The fix changes one file, adds one and is dated before the base."""
    git(folder.parent, "init", "-q", "-b", "main", f"--object-format={algorithm}", str(folder))
    commits = [
        _commit(folder, number, {"src/parser.kt": f"fun parse() = {number}\n", **extra})
        for number, extra in enumerate(
            ({"README": "A parser.\n"}, {".gitignore": "build/\n"}, {"src/a b.kt": "val ä = 1\n"}),
            1,
        )
    ]
    git(folder, "tag", "v1")
    fixed = {
        "src/parser.kt": "fun parse() = 42\n",
        "src/fixed.kt": "object OnlyInTheFix\n",
        "src/tokens.kt": TOKENS,
    }
    fix = _commit(folder, 0, fixed)
    fix_patch = git(folder, "diff", "--binary", commits[-1], fix).encode() + b"\n"
    _commit(folder, 4, {"test/ParserTest.kt": "class ParserTest // hidden\n"})
    test_patch = git(folder, "diff", fix, "HEAD").encode() + b"\n"
    _commit(folder, 5, {"src/later.kt": "object Later\n"})
    git(folder, "tag", "-a", "-m", "after", "v2")
    git(folder, "branch", "release", "HEAD~1")
    return Upstream(
        folder=folder,
        ancestor=commits[0],
        base=commits[-1],
        fix=fix,
        fixed_blob=git(folder, "rev-parse", f"{fix}:src/parser.kt"),
        fix_patch=fix_patch,
        test_patch=test_patch,
    )


def _commit(folder: Path, day: int, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    date = f"2024-01-{day + 10}T00:00:00Z"
    message = f"Change {day}"
    git(folder, "commit", "-qm", message, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return git(folder, "rev-parse", "HEAD")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A checkout in which a route is planted, and the upstream it came from."""

    folder: Path
    upstream: Upstream

    @property
    def dot_git(self) -> Path:
        return self.folder / ".git"

    @property
    def fix(self) -> str:
        return self.upstream.fix

    def git(self, *argv: str, stdin: bytes = b"", **env: str) -> str:
        return git(self.folder, *argv, stdin=stdin, **env)

    def bring(self) -> None:
        """Bring the fix's objects back, as loose ones, where they aren't at hand."""
        command = ["git", "cat-file", "-e", self.fix]
        have = subprocess.run(command, cwd=self.folder, env=ENV, check=False, capture_output=True)
        if have.returncode:
            self.git("unpack-objects", "-q", stdin=self.pack())

    def pack(self) -> bytes:
        """A pack of what only the fix reaches."""
        revs = f"{self.fix}\n^{self.upstream.base}\n".encode()
        command = ["git", "pack-objects", "--revs", "--stdout", "-q"]
        where = self.upstream.folder
        done = subprocess.run(
            command, cwd=where, env=ENV, check=True, input=revs, capture_output=True
        )
        return done.stdout

    def place_pack(self) -> Path:
        """Put that pack into the object store, with its index; its path."""
        store = self.dot_git / "objects" / "pack"
        name = self.git("index-pack", "--stdin", stdin=self.pack()).split("\t")[-1]
        return store / f"pack-{name}.pack"

    def write(self, name: str, text: str) -> None:
        """Write a file below .git."""
        path = self.dot_git / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        """Append to a file below .git."""
        path = self.dot_git / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)


Plant = Callable[[Site], None]


@dataclass(frozen=True, kw_only=True)
class Route:
    """How to plant it, and the rule that must name it (others may, too)."""

    plant: Plant
    rule: str


ROUTES: dict[str, Route] = {}


def _route(rule: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        ROUTES[plant.__name__.replace("_", " ")] = Route(plant=plant, rule=rule)
        return plant

    return add


def _ref(name: str) -> None:
    def plant(site: Site) -> None:
        site.bring()
        site.git("update-ref", name, site.fix)

    ROUTES[f"ref {name}"] = Route(plant=plant, rule="seal.ref")


for _name in (
    "refs/heads/solution",
    "refs/tags/v3",
    "refs/remotes/origin/main",
    "refs/pull/7/head",
    "refs/merge-requests/7/head",
    "refs/changes/07/7/1",
    "refs/original/refs/heads/main",
    "refs/prefetch/remotes/origin/main",
    "refs/bisect/bad",
    "refs/worktree/kept",
    "refs/rewritten/onto",
    "refs/anything",
):
    _ref(_name)


@_route("seal.ref")
def annotated_tag(site: Site) -> None:
    site.bring()
    site.git("tag", "-a", "-m", "the fix", "fixed", site.fix)


@_route("seal.ref")
def stash(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")
    site.git("stash")


@_route("seal.ref")
def note(site: Site) -> None:
    site.git("notes", "add", "-f", "-m", "fun parse() = 42", "HEAD")


@_route("seal.ref")
def replacement(site: Site) -> None:
    site.bring()
    site.git("replace", "-f", site.upstream.base, site.fix)


@_route("seal.ref")
def packed_ref(site: Site) -> None:
    site.bring()
    site.append("packed-refs", f"{site.fix} refs/tags/packed\n")


@_route("seal.ref")
def packed_peeled_id(site: Site) -> None:
    base = site.upstream.base
    site.append("packed-refs", f"{base} refs/heads/main\n^{site.fix}\n")


@_route("seal.ref")
def packed_refs_comment(site: Site) -> None:
    site.append("packed-refs", "# fixed by parse = 42\n")


@_route("seal.head")
def branch_moved_to_the_fix(site: Site) -> None:
    site.bring()
    site.git("update-ref", "HEAD", site.fix)


@_route("seal.head")
def head_detached_at_the_fix(site: Site) -> None:
    site.bring()
    site.git("update-ref", "--no-deref", "HEAD", site.fix)


@_route("seal.head")
def head_at_an_ancestor(site: Site) -> None:
    site.write("HEAD", f"{site.upstream.ancestor}\n")


@_route("seal.head")
def head_on_an_unborn_branch(site: Site) -> None:
    site.write("HEAD", "ref: refs/heads/fix-parse\n")


@_route("seal.head")
def head_with_a_second_line(site: Site) -> None:
    site.append("HEAD", f"{site.fix}\n")


def _pseudo_ref(name: str) -> None:
    def plant(site: Site) -> None:
        site.bring()
        site.write(name, f"{site.fix}\n")

    rule = "seal.ref" if name == "ORIG_HEAD" else "seal.name"
    ROUTES[f"pseudo-ref {name}"] = Route(plant=plant, rule=rule)


for _name in (
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "BISECT_HEAD",
    "BISECT_EXPECTED_REV",
    "AUTO_MERGE",
):
    _pseudo_ref(_name)


def _text(name: str) -> None:
    def plant(site: Site) -> None:
        site.write(name, "parse() must return 42\n")

    ROUTES[f"text {name}"] = Route(plant=plant, rule="seal.name")


for _name in (
    "MERGE_MSG",
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "NOTES_EDITMSG",
    "BISECT_LOG",
    "BISECT_TERMS",
    "description",
    "info/exclude",
    "info/attributes",
    "info/refs",
    "info/sparse-checkout",
    "hooks/post-checkout",
    "branches/fix",
    "remotes/origin",
    "rr-cache/0123/postimage",
    "rebase-merge/message",
    "rebase-apply/0001",
    "sequencer/todo",
    "svn/metadata",
    "gitk.cache",
    "objects/info/http-alternates",
    "objects/pack/tmp_pack_abc",
    "refs/heads/main.lock",
    "fix.patch",
):
    _text(_name)


@_route("seal.name")
def leftover_index_lock(site: Site) -> None:
    shutil.copy(site.dot_git / "index", site.dot_git / "index.lock")


@_route("seal.name")
def merge_in_progress(site: Site) -> None:
    site.bring()
    for name, text in (("HEAD", site.fix), ("MSG", f"Merge commit '{site.fix}'"), ("MODE", "")):
        site.write(f"MERGE_{name}", f"{text}\n")


@_route("seal.name")
def rebase_in_progress(site: Site) -> None:
    site.write("rebase-merge/onto", f"{site.fix}\n")
    site.write("rebase-merge/git-rebase-todo", f"pick {site.fix[:8]} Fix parse\n")


@_route("seal.name")
def rebase_of_mails(site: Site) -> None:
    site.write("rebase-apply/0001", site.upstream.fix_patch.decode())


@_route("seal.log")
def reflog_of_head(site: Site) -> None:
    site.bring()
    who = "Ann Author <ann@example.com> 1700000000 +0000"
    base = site.upstream.base
    site.append("logs/HEAD", f"{base} {site.fix} {who}\tpull: Fast-forward\n")
    site.append("logs/HEAD", f"{site.fix} {base} {who}\treset: moving to {base}\n")


@_route("seal.log")
def reflog_that_only_tells(site: Site) -> None:
    base = site.upstream.base
    who = "Ann Author <ann@example.com> 1700000000 +0000"
    site.append("logs/HEAD", f"{base} {base} {who}\tcheckout: moving from {site.fix[:9]} to main\n")


@_route("seal.name")
def reflog_of_a_deleted_branch(site: Site) -> None:
    site.write("logs/refs/heads/fix", f"{site.fix} {site.fix} a <b> 1 +0000\tx\n")


@_route("seal.objects")
def loose_dangling_blob(site: Site) -> None:
    site.git("hash-object", "-w", "--stdin", stdin=b"fun parse() = 42\n")


@_route("seal.objects")
def loose_dangling_commit(site: Site) -> None:
    site.git("commit-tree", "-m", "parse must be 42", f"{site.upstream.base}^{{tree}}")


@_route("seal.objects")
def second_pack(site: Site) -> None:
    site.place_pack()


@_route("seal.name")
def kept_pack(site: Site) -> None:
    site.place_pack().with_suffix(".keep").write_text("kept\n")


@_route("seal.name")
def promisor_pack(site: Site) -> None:
    site.git("config", "extensions.partialClone", "origin")
    site.git("config", "remote.origin.promisor", "true")
    site.place_pack().with_suffix(".promisor").write_text(f"{site.fix} refs/heads/main\n")


@_route("seal.name")
def cruft_pack(site: Site) -> None:
    site.bring()
    site.git("repack", "-q", "-d", "--cruft")


@_route("seal.store")
def pack_without_index(site: Site) -> None:
    site.place_pack().with_suffix(".idx").unlink()


@_route("seal.name")
def multi_pack_index(site: Site) -> None:
    site.place_pack()
    site.git("multi-pack-index", "write")


@_route("seal.name")
def bitmap(site: Site) -> None:
    site.bring()
    site.git("update-ref", "refs/heads/x", site.fix)
    site.git("repack", "-q", "-a", "-d", "-b")
    site.git("update-ref", "-d", "refs/heads/x")


@_route("seal.name")
def commit_graph(site: Site) -> None:
    site.bring()
    commits = f"{site.fix}\n".encode()
    site.git("commit-graph", "write", "--stdin-commits", stdin=commits)


@_route("seal.name")
def commit_graph_chain(site: Site) -> None:
    site.bring()
    commits = f"{site.fix}\n".encode()
    site.git("commit-graph", "write", "--stdin-commits", "--split", stdin=commits)


@_route("seal.name")
def alternates(site: Site) -> None:
    site.append("objects/info/alternates", f"{site.upstream.folder / '.git' / 'objects'}\n")


@_route("seal.name")
def grafts(site: Site) -> None:
    site.bring()
    site.write("info/grafts", f"{site.upstream.base} {site.fix}\n")


@_route("seal.history")
def shallow_at_the_fix(site: Site) -> None:
    site.bring()
    site.append("shallow", f"{site.fix}\n")


@_route("seal.name")
def linked_worktree(site: Site) -> None:
    site.bring()
    site.git("worktree", "add", "-q", "--detach", str(site.folder.parent / "linked"), site.fix)


@_route("seal.name")
def submodule_store(site: Site) -> None:
    place = site.dot_git / "modules" / "parser"
    git(site.folder, "clone", "-q", "--bare", str(site.upstream.folder), str(place))


@_route("seal.name")
def lost_and_found(site: Site) -> None:
    site.bring()
    site.git("fsck", "--lost-found", "--no-reflogs")
    site.append(f"lost-found/commit/{site.fix}", f"{site.fix}\n")


@_route("seal.name")
def bundle_in_git(site: Site) -> None:
    bundle = site.dot_git / "all.bundle"
    git(site.upstream.folder, "bundle", "create", "-q", str(bundle), "--all")


@_route("seal.index")
def index_entry(site: Site) -> None:
    site.bring()
    site.git(
        "update-index", "--add", "--cacheinfo", f"100644,{site.upstream.fixed_blob},src/new.kt"
    )


@_route("seal.index")
def index_conflict(site: Site) -> None:
    site.bring()
    line = f"100644 {site.upstream.fixed_blob} 3\tsrc/parser.kt\n"
    site.git("update-index", "--index-info", stdin=line.encode())


@_route("seal.index")
def index_resolved_conflict(site: Site) -> None:
    index_conflict(site)
    site.git("add", "src/parser.kt")


@_route("seal.index")
def index_tree_cache(site: Site) -> None:
    site.bring()
    site.git("read-tree", site.fix)
    # Written as a new entry, which drops the tree cache of its folder only.
    site.git("read-tree", "-m", site.fix)


@_route("seal.index")
def index_split(site: Site) -> None:
    site.bring()
    site.git("read-tree", site.fix)
    site.git("update-index", "--split-index")


@_route("seal.index")
def index_with_untracked_cache(site: Site) -> None:
    site.git("update-index", "--force-untracked-cache")
    site.git("status")


@_route("seal.tracked")
def tracked_change_hidden_by_a_flag(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")
    site.git("update-index", "--assume-unchanged", "src/parser.kt")


@_route("seal.tracked")
def tracked_change_hidden_by_a_sparse_flag(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")
    site.git("update-index", "--skip-worktree", "src/parser.kt")


@_route("seal.tracked")
def tracked_file_of_the_fix(site: Site) -> None:
    (site.folder / "src" / "parser.kt").write_text("fun parse() = 42\n")


@_route("seal.tracked")
def tracked_file_missing(site: Site) -> None:
    (site.folder / "src" / "parser.kt").unlink()


@_route("seal.tracked")
def tracked_mode_changed(site: Site) -> None:
    (site.folder / "src" / "parser.kt").chmod(0o755)


@_route("seal.config")
def config_remote(site: Site) -> None:
    site.git("config", "remote.upstream.url", f"https://example.com/{site.fix}.git")


@_route("seal.config")
def config_branch(site: Site) -> None:
    site.git("config", "branch.main.description", "parse must return 42")


@_route("seal.config")
def config_include(site: Site) -> None:
    site.git("config", "include.path", "/opt/other/config")


@_route("seal.config")
def config_alias(site: Site) -> None:
    site.git("config", "alias.solution", "!echo 42")


@_route("seal.config")
def config_hooks(site: Site) -> None:
    site.git("config", "core.hooksPath", "/opt/hooks")


@_route("seal.config")
def config_comment(site: Site) -> None:
    site.append("config", "# parse must return 42\n")


@_route("seal.config")
def config_url_rewrite(site: Site) -> None:
    site.git("config", "url.https://mirror.example.com/.insteadOf", "https://example.com/")


@_route("seal.name")
def worktree_config(site: Site) -> None:
    site.write("config.worktree", f'[remote "x"]\n\turl = {site.fix}\n')


@_route("seal.name")
def folder_named_after_the_fix(site: Site) -> None:
    (site.dot_git / "refs" / "heads" / "fix-parse").mkdir(parents=True, exist_ok=True)


@_route("seal.name")
def symbolic_link_in_git(site: Site) -> None:
    (site.dot_git / "upstream").symlink_to(site.upstream.folder / ".git")


@_route("seal.ref")
def all_of_upstream_fetched(site: Site) -> None:
    site.git("fetch", "-q", "--tags", str(site.upstream.folder), "+refs/*:refs/up/*")
