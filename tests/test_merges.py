"""Merged changes found in real histories, whichever way they were merged."""

import subprocess
from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.rim.history import History, MissingObjectsError
from kbench_build.rules.merges import Found, Pull, merged_changes, uncounted
from tests.upstream_kit import DAY, START, Upstream, new_upstream


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    repository.commit("README.md", "Begin")
    repository.later()
    return repository


def changes(repository: Upstream, tmp_path: Path, pulls: tuple[Pull, ...] = ()) -> Found:
    history = History(repository.root, tmp_path / "store")
    commits = list(history.commits(history.tip()))
    return merged_changes(commits, repository="acme/text", pulls=pulls, shallow=history.shallow)


def test_a_merge_commit_is_one_change(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.git("checkout", "-q", "-b", "topic")
    upstream.commit("a.kt", "One")
    upstream.commit("a.kt", "Two")
    upstream.git("checkout", "-q", "main")
    message = "Merge pull request #7 from ada/topic\n\nMake it faster\n\nFixes #3, closes o/r#4"
    merge = upstream.merge("topic", message)
    (found,) = changes(upstream, tmp_path).candidates
    assert (found.id, found.number, found.how, found.title) == ("#7", 7, "merge", "Make it faster")
    assert (found.base, found.merge, found.branch) == (base, merge, "ada/topic")
    assert [(i.repository, i.number) for i in found.issues] == [("acme/text", 3), ("o/r", 4)]


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("Merge branch 'x' into 'main'\n\nTitle\n\nSee merge request g/p!12", (12, "Title", "x")),
        ("Merged in feature/x (pull request #12)\n\nTitle", (12, "Title", "feature/x")),
        ("Merge pull request #12 from o/b", (12, "Merge pull request #12 from o/b", "o/b")),
    ],
)
def test_other_forges_merge_commits_are_read(
    upstream: Upstream, tmp_path: Path, message: str, wanted: tuple[int, str, str]
) -> None:
    upstream.git("checkout", "-q", "-b", "topic")
    upstream.commit("a.kt", "One")
    upstream.git("checkout", "-q", "main")
    upstream.merge("topic", message)
    (found,) = changes(upstream, tmp_path).candidates
    assert (found.number, found.title, found.branch) == wanted


def test_a_merge_of_no_pull_request_is_no_change(upstream: Upstream, tmp_path: Path) -> None:
    upstream.git("checkout", "-q", "-b", "topic")
    upstream.commit("a.kt", "One")
    upstream.git("checkout", "-q", "main")
    upstream.merge("topic", "Merge branch 'topic'")
    assert changes(upstream, tmp_path) == Found(candidates=(), refused=())


def test_a_squashed_commit_names_its_number(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.commit("a.kt", "Keep the last line (#12)\n\n* step\n\nResolves #5")
    upstream.commit("b.kt", "A direct push")
    (found,) = changes(upstream, tmp_path).candidates
    assert (found.number, found.how, found.title) == (12, "squash", "Keep the last line")
    assert (found.base, [i.number for i in found.issues]) == (base, [5])


def test_a_number_that_stands_twice_is_the_newer_changes(
    upstream: Upstream, tmp_path: Path
) -> None:
    older = upstream.commit("a", "Add this, in another repository (#7)")
    upstream.commit("a", "Add that (#7)")
    found = changes(upstream, tmp_path).candidates
    assert [(c.id, c.title[:8]) for c in found] == [("#7", "Add that"), (older[:12], "Add this")]


def test_rebased_commits_are_one_change_by_their_times(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.commit("a.kt", "Step one", authored=START - 3 * DAY)
    last = upstream.commit("b.kt", "Step two\n\nFixes #9", authored=START - 2 * DAY)
    upstream.later()
    upstream.commit("c.kt", "A direct push")
    (found,) = changes(upstream, tmp_path).candidates
    assert (found.how, found.title, found.id) == ("rebase", "Step one", last[:12])
    assert (found.base, found.merge, len(found.commits)) == (base, last, 2)
    assert [i.number for i in found.issues] == [9]


def test_direct_pushes_in_one_go_are_no_rebase_merge(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit("a.kt", "One")
    upstream.commit("a.kt", "Two")
    assert changes(upstream, tmp_path).candidates == ()


def test_the_forge_says_which_commits_a_rebase_wrote(upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.commit("a.kt", "One")
    last = upstream.commit("b.kt", "Two")
    pull = Pull(number=31, title="Both", merge_commit=last, commits=2, labels=("bug",), url="u")
    (found,) = changes(upstream, tmp_path, (pull,)).candidates
    assert (found.id, found.how, found.base, found.merge) == ("#31", "rebase", base, last)
    assert (found.title, found.labels, found.url) == ("Both", ("bug",), "u")


def test_a_squash_whose_number_was_deleted_is_one_commit(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit("a.kt", "Not part of it")
    upstream.later()
    base = upstream.git("rev-parse", "HEAD")
    (upstream.root / "b.kt").write_text("Both\n")
    upstream.git("add", "-A")
    upstream.git("commit", "-q", "-m", "Both\n\nMore", committer="noreply@github.com")
    last = upstream.git("rev-parse", "HEAD")
    pull = Pull(number=31, title="Both", merge_commit=last, commits=2)
    (found,) = changes(upstream, tmp_path, (pull,)).candidates
    assert (found.id, found.how, found.base, found.commits) == ("#31", "squash", base, (last,))


def test_a_list_of_pull_requests_needs_counts_only_for_what_may_be_rebased(
    upstream: Upstream, tmp_path: Path
) -> None:
    squashed = upstream.commit("a.kt", "One (#1)")
    last = upstream.commit("b.kt", "Two")
    pulls = [
        Pull(number=1, title="", merge_commit=squashed),
        Pull(number=2, title="", merge_commit=last),
        Pull(number=3, title="", merge_commit=last, commits=2),
        Pull(number=4, title=""),
    ]
    history = History(upstream.root, tmp_path / "store")
    assert uncounted(list(history.commits(history.tip())), pulls) == (2,)


def test_the_forges_words_win_over_the_commits(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit("a.kt", "wip (#12)")
    pull = Pull(number=12, title="Keep it", body="Fixes #1", author="ada", merged=5, created=4)
    (found,) = changes(upstream, tmp_path, (pull,)).candidates
    assert (found.title, found.body, found.author) == ("Keep it", "Fixes #1", "ada")
    assert (found.created, found.merged) == (4, 5)


def test_the_newest_comes_first(upstream: Upstream, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        upstream.commit("a.kt", f"Step (#{number})")
        upstream.later()
    assert [c.number for c in changes(upstream, tmp_path).candidates] == [3, 2, 1]


def test_a_window_is_kept(upstream: Upstream, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        upstream.commit("a.kt", f"Step (#{number})")
        upstream.later()
    history = History(upstream.root, tmp_path / "store")
    second = upstream.now - 2 * DAY
    commits = history.commits(history.tip("main"), since=second, until=second)
    assert [c.message.strip() for c in commits] == ["Step (#2)"]


def test_an_octopus_is_refused_with_a_reason(upstream: Upstream, tmp_path: Path) -> None:
    for name in ("one", "two"):
        upstream.git("checkout", "-q", "-b", name, "main")
        upstream.commit(f"{name}.kt", name)
    upstream.git("checkout", "-q", "main")
    upstream.commit("main.kt", "Main")
    upstream.merge("one two", "Merge pull request #8 from ada/both\n\nBoth")
    found = changes(upstream, tmp_path)
    assert [(r.id, r.reason) for r in found.refused] == [("#8", "octopus")]
    assert found.candidates == ()


def test_the_first_commit_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "upstream").mkdir()
    repository = Upstream(tmp_path / "upstream")
    repository.git("init", "-q", "-b", "main")
    repository.commit("a.kt", "Everything (#1)")
    assert [r.reason for r in changes(repository, tmp_path).refused] == ["no-base"]


def test_the_end_of_a_shallow_clone_is_refused_with_a_reason(
    upstream: Upstream, tmp_path: Path
) -> None:
    for number in (1, 2, 3):
        upstream.commit("a.kt", f"Step (#{number})")
    source = f"file://{upstream.root}"
    upstream.git("clone", "-q", "--depth=2", source, str(tmp_path / "shallow"))
    found = changes(Upstream(tmp_path / "shallow"), tmp_path)
    assert [c.number for c in found.candidates] == [3]
    assert [(r.number, r.reason) for r in found.refused] == [(2, "base-missing")]


def test_a_partial_clone_says_what_it_lacks(upstream: Upstream, tmp_path: Path) -> None:
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.commit("a.kt", "Step (#1)")
    source = f"file://{upstream.root}"
    options = ["--filter=blob:none", "--no-checkout"]
    upstream.git("clone", "-q", *options, source, str(tmp_path / "partial"))
    found = changes(Upstream(tmp_path / "partial"), tmp_path)
    assert [c.number for c in found.candidates] == [1]
    history = History(tmp_path / "partial", tmp_path / "other")
    pair = (history.tree_of(found.candidates[0].base), history.tree_of(found.candidates[0].merge))
    (patch,) = history.patches([pair])
    assert isinstance(patch, MissingObjectsError)
    assert "lacks objects" in str(patch)


def test_a_bare_mirror_and_a_linked_working_tree_serve_too(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit("a.kt", "Step (#1)")
    upstream.git("clone", "-q", "--mirror", str(upstream.root), str(tmp_path / "mirror"))
    upstream.git("worktree", "add", "-q", str(tmp_path / "linked"))
    for number, name in enumerate(("mirror", "linked")):
        history = History(tmp_path / name, tmp_path / f"store{number}")
        assert len(list(history.commits(history.tip("main")))) == 2


def test_what_is_no_clone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KbenchError, match="is no git repository"):
        History(tmp_path, tmp_path / "store")


def test_an_empty_repository_is_one_line(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty")], check=True)
    history = History(tmp_path / "empty", tmp_path / "store")
    with pytest.raises(KbenchError, match="the repository is empty"):
        history.tip()


def test_an_unknown_branch_names_those_that_there_are(upstream: Upstream, tmp_path: Path) -> None:
    history = History(upstream.root, tmp_path / "store")
    with pytest.raises(KbenchError, match="trunk: no such branch; there is main"):
        history.tip("trunk")


def test_nothing_that_a_clone_configures_is_obeyed(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit("a.kt", "Step (#1)")
    trap = tmp_path / "trap"
    for key in ("diff.external", "core.fsmonitor", "core.pager", "diff.trap.textconv"):
        upstream.git("config", key, f"touch {trap};")
    (upstream.root / ".git" / "info" / "attributes").write_text("* diff=trap\n", encoding="utf-8")
    history = History(upstream.root, tmp_path / "store")
    new, old = history.commits(history.tip())
    (patch,) = history.patches([(old.tree, new.tree)])
    assert isinstance(patch, bytes)
    assert b"+Step (#1)" in patch
    assert not trap.exists()


def test_patches_come_in_the_order_of_the_pairs(upstream: Upstream, tmp_path: Path) -> None:
    ids = [upstream.commit("a.kt", f"Step {number}") for number in range(5)]
    history = History(upstream.root, tmp_path / "store")
    trees = [history.tree_of(each) for each in ids]
    pairs = [(trees[2], trees[3]), (trees[1], trees[1]), (trees[0], trees[1])]
    patches = list(history.patches(pairs))
    assert patches[1] == b""
    assert b"+Step 3" in patches[0] if isinstance(patches[0], bytes) else False
    for (old, new), patch in zip(pairs, patches, strict=True):
        assert isinstance(patch, bytes)
        assert history.apply(old, [patch] if patch else []) == new
