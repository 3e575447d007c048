"""Which issues a change closes, by its text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build.rules.issue_links import Issue, linked_issues

OWN = "acme/text"


def found(text: str) -> list[str]:
    return [f"{i.repository}#{i.number}" for i in linked_issues(text, OWN)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Fixes #12", ["acme/text#12"]),
        ("fix #1\n\nCloses: #2. Resolved #3!", ["acme/text#1", "acme/text#2", "acme/text#3"]),
        ("Fixes #1, closes o/r#2", ["acme/text#1", "o/r#2"]),
        ("Fixes #1, #2 and #3", ["acme/text#1", "acme/text#2", "acme/text#3"]),
        ("Fixes #1, and #2 & o/r.js#3", ["acme/text#1", "acme/text#2", "o/r.js#3"]),
        ("Closes https://github.com/o/r/issues/7", ["o/r#7"]),
        ("closes https://forge.example.org/o/r/-/issues/7.", ["o/r#7"]),
        ("Closes <https://github.com/o/r/issues/7>", ["o/r#7"]),
        ("Fixes [the crash](https://github.com/o/r/issues/7) at last", ["o/r#7"]),
        ("Fixes [#7](https://github.com/o/r/issues/7), #8", ["o/r#7", "acme/text#8"]),
        ("Fixes GH-9", ["acme/text#9"]),
        ("* closes #4\n* closes #5", ["acme/text#4", "acme/text#5"]),
        ("Fixes #4\nfixes #4", ["acme/text#4"]),
        ("This **fixes** #6", ["acme/text#6"]),
        ("# Fixes #6", ["acme/text#6"]),
    ],
)
def test_every_form_is_read(text: str, wanted: list[str]) -> None:
    assert found(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "See #12 and o/r#3",
        "Merge pull request #12 from o/fixes",
        "`Fixes #12`",
        "```\nFixes #12\n```",
        "~~~text\nFixes #12\n~~~",
        "    Fixes #12",
        "> Fixes #12",
        "> quoted\nFixes #12 still in the quote",
        "<!-- Fixes #12 -->",
        "before <!-- Fixes #12 --> after",
        "<!--\nWrite: Fixes #12\n-->\n",
        "prefixes #12",
        "Fixes `#12`",
        "Fixes the build of #12",
        "Closes https://github.com/o/r/pull/7",
        "Fixes #",
        "Fixes #1234567890123",
        "",
    ],
)
def test_what_only_looks_like_one_is_left_out(text: str) -> None:
    assert found(text) == []


def test_text_after_a_quote_counts() -> None:
    assert found("> Fixes #1\n\nFixes #2") == ["acme/text#2"]


def test_an_issue_is_a_value() -> None:
    assert linked_issues("Fixes #2", OWN) == (Issue(repository="acme/text", number=2),)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="fixesFIX #o/r1,`>*[]()<!->\n &and", max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    assert all(0 <= issue.number < 10**9 for issue in linked_issues(text, OWN))


@pytest.mark.parametrize(
    ("piece", "wanted"),
    [("Fixes #1, ", 1), ("fixes ", 0), ("[", 0), ("> ", 0), ("`", 0), ("<!--", 0), ("- ", 0)],
)
def test_long_texts_are_read_to_their_limit(piece: str, wanted: int) -> None:
    assert len(linked_issues(piece * 100_000 + "\n\nFixes #2", OWN)) == wanted
