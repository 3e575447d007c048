"""Which environment a change gets: by where it stands in the branch."""

from pathlib import Path

import pytest

from kbench_build.errors import KbenchError
from kbench_build.model.repository import Commit
from kbench_build.rim.history import History
from kbench_build.rules.pins import Pin, pin, pinned
from tests.upstream_kit import Upstream, new_upstream


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = new_upstream(tmp_path)
    for number in range(6):
        repository.commit("a", f"Step {number}")
        if number in (2, 4):
            repository.git("tag", "-a", "-m", "release", f"v{number}")
        repository.later()
    return repository


def opened(repository: Upstream, folder: Path) -> tuple[History, list[Commit]]:
    history = History(repository.root, folder)
    return history, list(history.commits(history.tip()))


def make(history: History, line: list[Commit], name: str, start: str = "", end: str = "") -> Pin:
    return pin(
        name,
        start=start,
        end=end,
        line=line,
        first_with=lambda each: history.first_with(each, line),
    )


def served(line: list[Commit], pins: list[Pin]) -> dict[str, str]:
    """Message → environment of each commit as a base."""
    return {c.message.strip(): pinned(n, pins) for n, c in enumerate(line)}


def test_ranges_begin_with_one_tag_and_end_before_another(
    upstream: Upstream, tmp_path: Path
) -> None:
    history, line = opened(upstream, tmp_path / "store")
    pins = [
        make(history, line, "old", end="v2"),
        make(history, line, "middle", start="v2", end="v4"),
        make(history, line, "new", start="v4"),
    ]
    assert served(line, pins) == {
        "Step 0": "old",
        "Step 1": "old",
        "Step 2": "middle",
        "Step 3": "middle",
        "Step 4": "new",
        "Step 5": "new",
    }


def test_ranges_by_day_and_by_commit(upstream: Upstream, tmp_path: Path) -> None:
    history, line = opened(upstream, tmp_path / "store")
    third = line[2].id[:10]
    pins = [
        make(history, line, "days", start="2023-11-15", end="2023-11-17"),
        make(history, line, "commits", start=third),
    ]
    found = served(line, pins)
    assert [name for name, where in found.items() if where == "days"] == ["Step 2", "Step 1"]
    assert [n for n, where in found.items() if where == "commits"] == ["Step 5", "Step 4", "Step 3"]
    assert found["Step 0"] == ""


def test_a_change_written_early_and_merged_late_gets_the_later_environment(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.git("checkout", "-q", "-b", "topic", "HEAD~4")
    upstream.now -= 400 * 86_400
    upstream.commit("b", "Written long ago")
    upstream.git("checkout", "-q", "main")
    upstream.now += 400 * 86_400
    upstream.merge("topic", "Merge pull request #3 from ada/topic")
    history, line = opened(upstream, tmp_path / "store")
    pins = [make(history, line, "old", end="v2"), make(history, line, "new", start="v2")]
    assert pinned(1, pins) == "new"  # the base of the merge is the commit before it
    inside = history.first_with("topic", line)
    assert line[inside].message.startswith("Merge pull request #3")


@pytest.mark.parametrize("name", ["v9", "0123456789", "--all", "v2^{evil}"])
def test_an_unknown_name_is_one_line(upstream: Upstream, tmp_path: Path, name: str) -> None:
    history, line = opened(upstream, tmp_path / "store")
    with pytest.raises(KbenchError, match="the clone has no such commit"):
        history.first_with(name, line)


def test_a_tag_outside_the_branch_is_one_line(upstream: Upstream, tmp_path: Path) -> None:
    upstream.git("checkout", "-q", "-b", "side")
    upstream.commit("b", "Aside")
    upstream.git("tag", "aside")
    upstream.git("checkout", "-q", "main")
    history, line = opened(upstream, tmp_path / "store")
    with pytest.raises(KbenchError, match="aside: isn't in the history of the branch"):
        history.first_with("aside", line)


def test_the_first_environment_that_serves_wins() -> None:
    pins = [Pin(name="a", newest=0, oldest=3), Pin(name="b", newest=2, oldest=9)]
    assert [pinned(place, pins) for place in (0, 3, 4, 10)] == ["a", "a", "b", ""]
