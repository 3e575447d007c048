"""Which merged changes are left out, and for which reason."""

from dataclasses import replace

import pytest

from kbench_build.rim.presets import read_preset
from kbench_build.rules.merges import Candidate
from kbench_build.rules.mine_filters import (
    REASONS,
    Filters,
    change_id,
    refused,
    without_repeats,
)
from kbench_build.rules.patch_split import split_patch
from kbench_build.rules.path_kinds import Patterns

PATTERNS = Patterns(**read_preset("kotlin-gradle"))
FILTERS = Filters(patterns=PATTERNS)
SOURCE, TEST = "src/main/kotlin/A.kt", "src/test/kotlin/ATest.kt"
CHANGE = Candidate(
    id="#5",
    number=5,
    how="squash",
    title="Keep the last line",
    body="",
    author="Ada",
    author_email="ada@example.org",
    labels=(),
    created=1,
    merged=2,
    base="b" * 40,
    merge="c" * 40,
    commits=("c" * 40,),
    issues=(),
    url="",
    branch="",
)


def reason(change: Candidate, paths: tuple[str, ...] = (SOURCE, TEST)) -> str:
    found = FILTERS.refuse(change, paths)
    return found.reason if found else ""


def patch(source: int, test: int, lock: int = 0, at: int = 1) -> bytes:
    parts = [(SOURCE, source), (TEST, test), ("package-lock.json", lock)]
    text = "".join(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
        f"@@ -{at},1 +{at},{lines + 1} @@\n same\n" + "".join(f"+line {n}\n" for n in range(lines))
        for name, lines in parts
        if lines
    )
    return text.encode()


def by_size(source: int, test: int, lock: int = 0) -> str:
    split = split_patch(patch(source, test, lock), PATTERNS)
    found = FILTERS.refuse_split(CHANGE, split)
    return found.reason if found else ""


def test_a_change_of_source_and_tests_goes_on() -> None:
    assert reason(CHANGE) == ""


@pytest.mark.parametrize(
    ("author", "mail", "branch"),
    [
        ("dependabot[bot]", "x@example.org", ""),
        ("Renovate Bot", "bot@renovateapp.com", "renovate/gradle-8.x"),
        ("Someone", "49699333+dependabot[bot]@users.noreply.github.com", ""),
        ("Someone", "x@example.org", "acme/dependabot/npm/left-pad-2"),
        ("acme-release-bot", "x@example.org", ""),
        ("pre-commit-ci[bot]", "x@example.org", ""),
    ],
)
def test_programs_are_told_by_name_mail_and_branch(author: str, mail: str, branch: str) -> None:
    change = replace(CHANGE, author=author, author_email=mail, branch=branch)
    assert reason(change) == "bot"


@pytest.mark.parametrize("author", ["Abbott", "Bo Tanaka", "robotics", "Ada"])
def test_people_are_no_programs(author: str) -> None:
    change = replace(CHANGE, author=author, author_email=f"{author.lower()}@example.org")
    assert reason(change) == ""


@pytest.mark.parametrize(
    "title",
    [
        "Bump com.squareup:kotlinpoet from 1.14.2 to 1.15.0",
        "Bump actions/checkout from 3 to 4 in /.github",
        "chore(deps): update dependency ktlint to v1.2.0",
        "build(deps-dev): bump a",
        "Update dependency org.junit to v5.10.1 (main)",
        "Update Kotlin to 2.0.0",
        "Upgrade gradle 7.6 -> 8.0",
        "Update dependencies",
        "chore: update all dependencies",
        "Lock file maintenance",
        "Release 1.2.3",
        "chore(release): v2.0.0-rc.1",
        "v1.2.3",
        "1.0.0-RC1",
        "Prepare next development version",
        "Prepare for release 2.1.0",
        "Bump version",
        "Update changelog for 1.2",
        "Merge branch 'main' into topic",
        "Merge main into release",
        "[automated] Refresh the API dump",
        "Update translations",
    ],
)
def test_chores_are_told_by_their_titles(title: str) -> None:
    assert reason(replace(CHANGE, title=title)) == "chore"


@pytest.mark.parametrize(
    "title",
    [
        "Fix a crash when a release is prepared",
        "Update the parser to accept 3 commas in a row",
        "Bump allocator: don't grow past the end",
        "Upgrade path for old databases",
        "Merge overlapping windows",
        "Don't merge branches that overlap",
        "Release the lock when the writer dies",
        "Version ranges with two bounds",
        "Set version of the snapshot in one place",
        "Automate nothing",
        "Update dependency graph when a node is removed",
        "Published events keep their order",
    ],
)
def test_titles_that_only_look_like_chores_go_on(title: str) -> None:
    assert reason(replace(CHANGE, title=title)) == ""


@pytest.mark.parametrize("title", ['Revert "Keep the last line"', "revert: keep it", "Reverts #3"])
def test_what_takes_a_change_back_is_told(title: str) -> None:
    assert reason(replace(CHANGE, title=title)) == "revert"


def test_reverting_as_a_feature_goes_on() -> None:
    assert reason(replace(CHANGE, title="Reverting an edit keeps the cursor")) == ""


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        ((SOURCE,), "no-test"),
        ((TEST,), "no-source"),
        (("README.md",), "no-source"),
        (("src/main/kotlin/Contest.kt",), "no-test"),
        ((), "no-source"),
        (tuple(f"{n}.kt" for n in range(10_000)), "too-many-files"),
    ],
)
def test_changes_are_told_by_their_files(paths: tuple[str, ...], wanted: str) -> None:
    assert reason(CHANGE, paths) == wanted


def test_labels_can_be_left_out() -> None:
    filters = replace(FILTERS, labels=("dependencies",))
    found = filters.refuse(replace(CHANGE, labels=("bug", "dependencies")), (SOURCE, TEST))
    assert found is not None
    assert (found.reason, found.detail) == ("label", "dependencies")


@pytest.mark.parametrize(
    ("source", "test", "lock", "wanted"),
    [
        (1, 1, 0, "too-small"),
        (1, 2, 0, ""),
        (1_000, 500, 0, ""),
        (1_000, 501, 0, "too-large"),
        # A lockfile made anew doesn't throw a small fix out, and doesn't lift a tiny one.
        (5, 5, 40_000, ""),
        (1, 1, 40_000, "too-small"),
        (5, 0, 0, "no-test"),
        (0, 5, 0, "no-source"),
    ],
)
def test_only_lines_of_source_and_tests_count(
    source: int, test: int, lock: int, wanted: str
) -> None:
    assert by_size(source, test, lock) == wanted


def test_every_reason_is_said_in_words() -> None:
    for why in REASONS:
        assert refused(CHANGE, why).reason in REASONS


def test_the_same_change_merged_again_is_left_out_and_names_the_first() -> None:
    first = replace(CHANGE, merged=10)
    backport = replace(CHANGE, id="#9", number=9, title="[1.x] Keep the last line", merged=20)
    other = replace(CHANGE, id="#7", number=7, merged=15)
    ids = [change_id(split_patch(patch(*size), PATTERNS)) for size in [(2, 2), (2, 3)]]
    moved = change_id(split_patch(patch(2, 2, lock=7, at=90), PATTERNS))
    assert moved == ids[0]
    kept, left_out = without_repeats([(backport, moved), (other, ids[1]), (first, ids[0])])
    assert [c.id for c in kept] == ["#7", "#5"]
    assert [(r.id, r.reason, r.detail) for r in left_out] == [("#9", "same-change", "#5")]
