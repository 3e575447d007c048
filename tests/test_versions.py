"""Versions: their order, what a step means, and the least one that changes call for."""

from datetime import date
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbench_build.rules.versions import (
    Bump,
    Version,
    VersionError,
    bump_between,
    is_too_small,
    least_version,
    parse_version,
    previous_of,
)

numbers = st.integers(min_value=0, max_value=40)
parts = st.one_of(
    numbers.map(str), st.text("abcABC-", min_size=1, max_size=4).map(lambda t: f"{t}x")
)
pre_releases = st.lists(parts, max_size=3).map(lambda p: f"-{'.'.join(p)}" if p else "")
semantic = st.builds(lambda a, b, c, p: f"{a}.{b}.{c}{p}", numbers, numbers, numbers, pre_releases)
proper = st.builds(lambda a, b, c: f"{a}.{b}.{c}", numbers, numbers, numbers)
dated = st.builds(
    lambda day, mark, count: f"{day:%Y{mark}%m{mark}%d}{count}",
    st.dates(min_value=date(1000, 1, 1)),
    st.sampled_from(".-"),
    st.integers(min_value=0, max_value=9).map(lambda n: f".{n}" if n else ""),
)
versions = st.one_of(semantic, dated).map(parse_version)
bumps = st.sampled_from(["none", "patch", "minor", "major"])


SEMANTIC_LOOKALIKES = ["", "1", "1.0", "1.0.0.0", "v1.0.0", "1.0.0+build", "01.0.0", "1.0.0\n"]
SEMANTIC_LOOKALIKES += ["1.0.0-", "1.0.0-01", "1.0.0-a..b", "1१.0.0", "9" * 20 + ".0.0"]
DATE_LOOKALIKES = ["2026.02.30", "2026.13.01", "2026-11.29", "2026.11.29.01", "0000.01.01"]


@pytest.mark.parametrize("text", SEMANTIC_LOOKALIKES + DATE_LOOKALIKES)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(VersionError, match="is no version"):
        parse_version(text)


def test_versions_come_in_the_order_of_semantic_versioning() -> None:
    texts = ["0.1.0", "0.9.9", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1"]
    texts += ["1.0.0-beta", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0", "2026.01.05"]
    texts += ["2026.11.29", "2026-11-29.1", "2026.11.29.2", "2026-12-01"]
    for earlier, later in pairwise(map(parse_version, texts)):
        assert later.is_later_than(earlier), (earlier, later)
        assert not earlier.is_later_than(later)


@given(versions, versions)
def test_of_two_versions_at_most_one_is_later(a: Version, b: Version) -> None:
    assert not (a.is_later_than(b) and b.is_later_than(a))
    assert a == b or a.is_later_than(b) or b.is_later_than(a) or a.numbers == b.numbers


@given(versions, versions, versions)
def test_the_order_has_no_circles(a: Version, b: Version, c: Version) -> None:
    if a.is_later_than(b) and b.is_later_than(c):
        assert a.is_later_than(c)


@pytest.mark.parametrize(
    ("old", "new", "bump"),
    [
        ("1.0.0", "1.0.0", "none"),
        ("1.0.1", "1.0.0", "none"),
        ("1.0.0", "1.0.1", "patch"),
        ("1.0.9", "1.1.0", "minor"),
        ("1.9.9", "2.0.0", "major"),
        ("0.1.0", "0.1.1", "minor"),
        ("0.1.9", "0.2.0", "major"),
        ("0.9.0", "1.0.0", "major"),
        ("1.0.0-rc.1", "1.0.0", "major"),
        ("1.0.0", "1.0.1-rc.1", "patch"),
        ("2026.11.29", "2026.11.30", "major"),
        ("2026.11.29", "2026.11.29", "none"),
        ("2026-11-29", "2026.11.29", "none"),
        ("1.0.0", "2026.11.29", "major"),
        ("2026.11.29", "3.0.0", "none"),
    ],
)
def test_what_a_step_means(old: str, new: str, bump: Bump) -> None:
    assert bump_between(parse_version(old), parse_version(new)) == bump


@pytest.mark.parametrize(
    ("old", "needed", "least"),
    [
        ("1.2.3", "patch", "1.2.4"),
        ("1.2.3", "minor", "1.3.0"),
        ("1.2.3", "major", "2.0.0"),
        ("0.2.3", "patch", "0.2.4"),
        ("0.2.3", "minor", "0.2.4"),
        ("0.2.3", "major", "0.3.0"),
        ("2026.11.29", "major", "a date after 2026.11.29"),
    ],
)
def test_the_least_version(old: str, needed: Bump, least: str) -> None:
    assert least_version(parse_version(old), needed) == least


@given(proper, bumps)
def test_the_least_version_is_enough_and_nothing_below_it_is(old: str, needed: Bump) -> None:
    before = parse_version(old)
    least = parse_version(least_version(before, needed))
    assert not is_too_small(before, least, needed)
    major, minor, patch = least.numbers
    below = [(major, minor, patch - 1), (major, minor - 1, 99), (major - 1, 99, 99)]
    for numbers_below in below:
        if min(numbers_below) < 0:
            continue
        candidate = parse_version(".".join(map(str, numbers_below)))
        if candidate.is_later_than(before) and needed != "none":
            assert is_too_small(before, candidate, needed)


@given(semantic, semantic, bumps)
def test_a_version_that_doesnt_move_is_too_small_for_any_change(
    a: str, b: str, needed: Bump
) -> None:
    old, new = parse_version(a), parse_version(b)
    assume(not new.is_later_than(old))
    assert is_too_small(old, new, needed) == (needed != "none")


@given(proper, proper, bumps)
def test_a_larger_change_never_needs_less(a: str, b: str, needed: Bump) -> None:
    old, new = parse_version(a), parse_version(b)
    if not is_too_small(old, new, "major"):
        assert not is_too_small(old, new, needed)
    if is_too_small(old, new, needed):
        assert is_too_small(old, new, "major")


@given(dated, dated, bumps)
def test_dated_versions_need_only_move_forward(a: str, b: str, needed: Bump) -> None:
    old, new = parse_version(a), parse_version(b)
    assert is_too_small(old, new, needed) == (needed != "none" and not new.is_later_than(old))


def previous_text(version: str, *released: str) -> str | None:
    found = previous_of(parse_version(version), map(parse_version, released))
    return found.text if found else None


def test_the_release_compared_with_is_the_newest_earlier_one() -> None:
    assert previous_text("1.2.0", "1.0.0", "1.1.5", "1.1.10", "1.3.0") == "1.1.10"
    assert previous_text("1.0.0") is None
    assert previous_text("1.0.0", "1.0.0", "2.0.0") is None


def test_pre_releases_are_compared_with_only_where_nothing_else_is() -> None:
    assert previous_text("2.0.0", "1.0.0", "2.0.0-rc.1") == "1.0.0"
    assert previous_text("2.0.0-rc.2", "1.0.0", "2.0.0-rc.1") == "1.0.0"
    assert previous_text("2.0.0", "2.0.0-rc.1", "2.0.0-rc.2") == "2.0.0-rc.2"
