"""What a statement is made from and held against: texts in, texts and reasons out."""

import pytest

from kbench_build.rules.fix_references import without_references
from kbench_build.rules.issue_links import Issue
from kbench_build.rules.issue_records import IssueText, read_issues
from kbench_build.rules.merges import Candidate
from kbench_build.rules.records import FormatError
from kbench_build.rules.statement_check import (
    Change,
    change_of,
    names_to_look_for,
    notes,
    problems,
)
from kbench_build.rules.statement_prompt import answer, prompt
from kbench_build.rules.statement_texts import Text, issue_text, joined, seen, without_fix
from kbench_build.rules.statements import Judge, Source, Statement, from_json, to_json
from tests.statement_cases import patch

SOURCE, SPEC = "src/main/kotlin/Adder.kt", "src/test/kotlin/AdderTest.kt"
MERGE = "deadbeef" + "0" * 32
CODE = "    private fun carryOver(left: Int): Int = left.shl(1) // keeps what is over\n"
FIX = patch(
    SOURCE,
    CODE,
    "    fun total(): Int = carryOver(2) + maxRetries\n",
    '    val key = "retry-after-limit"\n',
    "    val résumé_naïve = 1\n",
    "    class Keeper\n",
)
TEST = patch(
    SPEC, "    @Test fun sums() = assertEquals(2, Adder().total())\n", kept="class AdderTest {"
)


def candidate(number: int | None = 12, **more: object) -> Candidate:
    values = {
        "id": f"#{number}",
        "number": number,
        "how": "squash",
        "title": "Add properly",
        "body": "",
        "author": "ada",
        "author_email": "",
        "labels": (),
        "created": 0,
        "merged": 0,
        "base": "b" * 40,
        "merge": MERGE,
        "commits": (MERGE,),
        "issues": (Issue(repository="acme/text", number=9),),
        "url": "",
        "branch": "",
    }
    return Candidate(**(values | more))  # type: ignore[arg-type]


def a_change(number: int | None = 12) -> Change:
    return change_of("acme/text", candidate(number), FIX, TEST)


def wrong(
    text: str, *sources: str, source: Source = "judge", at_base: frozenset[str] = frozenset()
) -> str:
    found = problems(a_change(), text, source, sources=sources, at_base=at_base)
    return "; ".join(found)


def cut(text: str, number: int = 12) -> str:
    change = a_change(number)
    return without_references(text, change.content.origin, change.ids)


# Cutting what leads to the fix.


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It crashes, see #12 for more.", "It crashes, see … for more."),
        ("Crashes.\nFixed by https://github.com/acme/text/pull/12.\nOften.", "Crashes.\nOften."),
        ("Fixed in #12", None),
        (
            "See [the fix](https://github.com/acme/text/pull/12/files#r1) there.",
            "See the fix there.",
        ),
        ("[#12](https://github.com/acme/text/pull/12)", None),
        ("acme/text#12 will do, other/text#12 won't.", "… will do, other/text#12 won't."),
        ("https://github.com/other/text/pull/12 is like it", None),
        ("Merged as deadbeef00 today, not as feedbeef00.", "Merged as … today, not as feedbeef00."),
        ("PR 12 does it better", "… does it better"),
        ("`#12` is the colour, #121 another; 12 steps", None),
        ("    #12 in code", "    … in code"),
        ("* GH-12", None),
    ],
)
def test_references_to_the_fix_are_cut(text: str, left: str | None) -> None:
    gone = {"Fixed in #12", "[#12](https://github.com/acme/text/pull/12)", "* GH-12"}
    wanted = ("" if text in gone else text) if left is None else left
    assert cut(text) == wanted


def test_a_small_number_of_the_change_is_cut_too() -> None:
    assert (
        cut("It crashes since yesterday, #7 says why", 7)
        == "It crashes since yesterday, … says why"
    )


def test_cutting_takes_no_longer_than_the_text() -> None:
    line = "https://github.com/acme/text/pull/12" * 4_000
    assert len(cut(line)) < len(line)


# What a reader sees.


def test_comments_that_nobody_sees_are_cut_outside_of_code() -> None:
    origin = a_change().content.origin
    body = (
        "Before <!-- a\nb --> after\r\n<!--\nHow to fill this in\n-->\n\n\n\n"
        "`<!--` stays\n```html\n<!-- this too -->\n```\n<!-- never closed"
    )
    assert seen(" A  title\n", body, origin, ()) == Text(
        title="A title",
        body="Before \n after\n\n`<!--` stays\n```html\n<!-- this too -->\n```",
    )


def test_an_issues_text_is_its_title_and_what_it_says() -> None:
    issues = [
        issue(9, "It crashes", "When I add.\n\nFixed by #12"),
        issue(10, "Alone", "#12"),
        issue(11, "A change", "It does it.", is_change=True),
        issue(13, "It is slow", "Very."),
    ]
    texts = issue_text(issues, a_change().content.origin, ())
    assert joined(texts) == "# It crashes\n\nWhen I add.\n\n# It is slow\n\nVery.\n"


def issue(number: int, title: str, body: str, **more: bool) -> IssueText:
    found = Issue(repository="acme/text", number=number)
    return IssueText(issue=found, title=title, body=body, url=f"u/{number}", **more)


@pytest.mark.parametrize(
    "quoted",
    [
        "```diff\n-    old\n+    new\n```",
        "```\ndiff --git a/x b/x\n+    new\n```",
        "~~~patch\n+    new\n~~~",
        "```suggestion\n    new\n```",
        f"```kotlin\n{CODE}```",
        f"`{CODE.strip()}`",
        "```diff\n+    never closed",
    ],
)
def test_what_a_description_quotes_of_the_fix_is_cut(quoted: str) -> None:
    text = Text(title="Add", body=f"It crashes.\n{quoted}\n")
    shown = without_fix(text, a_change().lines).body
    assert shown.startswith("It crashes.")
    assert "new" not in shown
    assert "carryOver" not in shown


def test_other_code_in_a_description_stays() -> None:
    body = "It crashes.\n\n```kotlin\nAdder().total()\n```"
    assert without_fix(Text(title="Add", body=body), a_change().lines).body == body


# What is asked of a judge.


def test_the_prompt_holds_title_and_description_and_nothing_of_the_change() -> None:
    asked = prompt([Text(title="Add", body='It "crashes".'), Text(title="An issue", body="")])
    assert '"title": "Add"' in asked
    assert '"description": "It \\"crashes\\"."' in asked
    assert '"issues": "An issue"' in asked
    added = [line[1:].strip() for line in (FIX + TEST).decode().splitlines() if line[:1] == "+"]
    assert not [line for line in added if line in asked]


@pytest.mark.parametrize(
    ("said", "text", "refused"),
    [
        ('{"statement": " # It crashes\\n"}', "# It crashes\n", ""),
        ('```json\n{"statement": "It crashes", "model": "m"}\n```\n', "It crashes\n", ""),
        ('{"refused": "no\\nsymptom"}', "", "the judge refused: no symptom"),
        ('{"statement": 7}', "", "the judge's answer has no statement"),
        ('{"statement": " "}', "", "the judge's answer has no statement"),
        ("[1]", "", "the judge's answer is no JSON object"),
        ("Sure! It crashes.", "", "the judge's answer is no JSON"),
        ("", "", "the judge's answer is no JSON"),
        ("[" * 100_000, "", "the judge's answer is no JSON"),
    ],
)
def test_an_answer_is_a_text_or_a_reason(said: str, text: str, refused: str) -> None:
    found = answer(said)
    assert (found.text, found.refused) == (text, refused)


# The leak check.


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("It forgets maxRetries.", "maxRetries"),
        ("It should call carryOver(2).", "carryOver"),
        ("Nothing has `shl` in it.", "shl"),
        ("```\nAdder().shl\n```", "shl"),
        ("Set `retry-after-limit` to 1.", "retry-after-limit"),
        ("The name `résumé_naïve` is gone.", "résumé_naïve"),
        ("There is no Keeper for it.", "Keeper"),
    ],
)
def test_a_name_of_the_fix_alone_rejects(text: str, name: str) -> None:
    assert f"names '{name}', which stands in the fix alone" in wrong(text)


@pytest.mark.parametrize("source", ["issue", "judge", "draft"])
def test_it_rejects_whoever_wrote_it(source: Source) -> None:
    assert "'maxRetries'" in wrong("It forgets maxRetries.", source=source)


@pytest.mark.parametrize(
    "text",
    [
        "It adds wrongly.",
        "It keeps what is over, private or not.",
        "Keeper of the totals: it adds wrongly.",  # a word at its sentence's beginning
        "`Adder().total()` is wrong.",  # the tests need it
        "Adder.total is wrong",
        "# Total\n\n1. Call it.\n2. See 3.",
        "The key goes.\n\n- a list that\n    goes on with the key",  # which is no code
    ],
)
def test_a_plain_word_or_what_tests_need_does_not(text: str) -> None:
    assert wrong(text) == ""


def test_what_its_sources_say_or_the_base_holds_does_not() -> None:
    text = "It forgets maxRetries."
    assert wrong(text, "maxRetries isn't read", source="issue") == ""
    assert wrong(text, at_base=frozenset({"maxRetries"})) == ""
    assert wrong("Set `retry-after-limit`.", "There is retry-after-limit", source="issue") == ""


def test_what_is_looked_for_at_the_base_is_what_could_leak() -> None:
    text = "It forgets maxRetries, Adder and words."
    # Beside it what the tests need, for the note.
    assert names_to_look_for(a_change(), text, []) == {"maxRetries", "total"}
    assert names_to_look_for(a_change(), f"{text} total", ["maxRetries"]) == frozenset()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("See https://github.com/acme/text/pull/12 for it", "links to the change that fixes it"),
        ("It was mended by #12", "names the change that fixes it: #12"),
        ("It broke at deadbeef000", "holds 'deadbeef000', an id of the fix"),
        (f"Do it:\n\n{CODE}", "holds a line of the fix"),
        ("    @Test fun sums() = assertEquals(2, Adder().total())", "a line of the hidden tests"),
        ("  \n", "says nothing"),
        ("long " * 5_000, "has more than 20000 characters"),
    ],
)
def test_the_checks_of_finished_tasks_reject_too(text: str, reason: str) -> None:
    assert reason in wrong(text)


def test_a_made_up_name_that_no_test_needs_rejects_unless_an_issue_wishes_for_it() -> None:
    text = "Let carryOver be kept."
    assert "names 'carryOver', which no hidden test uses" in wrong(text, text, source="judge")
    assert wrong(text, text, source="issue") == ""


def test_a_persons_text_is_bounded_too() -> None:
    assert "has more than 1048576 characters" in wrong("a " * 600_000, source="draft")


def test_a_retelling_of_the_fix_rejects_whatever_the_base_holds() -> None:
    names = [f"newName{n}" for n in range(60)]
    fix = patch(SOURCE, *(f"    val {name} = 1\n" for name in names))
    change = change_of("acme/text", candidate(), fix, TEST)
    text = " ".join(names)
    assert len(names_to_look_for(change, text, [])) == 51
    (first, *_) = problems(change, text, "judge", sources=[], at_base=frozenset(names))
    assert first == "names 60 things that stand in the fix and in none of its sources"


def test_what_tests_need_and_nobody_says_is_a_note() -> None:
    (note,) = notes(a_change(), "It adds wrongly.", at_base=frozenset())
    assert note == "needs 'total', which only the fix declares"
    assert notes(a_change(), "`total` adds wrongly.", at_base=frozenset()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "a" * 60_000,
        "a(" * 30_000,
        "\n" * 60_000,
        ". " * 30_000,
        "-a" * 30_000,
        "`" * 60_000,
        "[" * 60_000,
        "> " * 30_000,
        "![" * 30_000,
        "*a_ " * 15_000,
        "<" * 60_000,
        "`a``" * 15_000,
    ],
)
def test_hostile_texts_are_checked_in_time(text: str) -> None:
    problems(a_change(), text, "draft", sources=[text], at_base=frozenset())
    seen(text, text, a_change().content.origin, ["abcdef0"])


def test_a_change_without_a_number_is_known_by_its_commit() -> None:
    found = problems(
        a_change(None), f"It broke at {MERGE}", "judge", sources=[], at_base=frozenset()
    )
    assert "an id of the fix" in found[0]


# Files.


def test_a_statement_is_what_was_written() -> None:
    made = Statement(
        key="k",
        source="judge",
        outcome="rejected",
        reason="why",
        text="é",
        issues=("u",),
        judge=Judge(command=("a",), model="m", prompt="p"),
        notes=("n",),
    )
    assert from_json(to_json(made)) == made
    with pytest.raises(FormatError, match="outcome: must be one of accepted, rejected, draft"):
        from_json({**to_json(made), "outcome": "fine"})


def test_issues_are_read_from_the_api_and_from_gh() -> None:
    lines = [
        b'{"number": 9, "title": "A", "body": null, "html_url": "https://h/Acme/Text/issues/9"}',
        b'{"number": 3, "title": "B", "body": "b", "url": "https://github.com/o/r/issues/3"}',
        b'{"number": 4, "repository": "o/r", "pull_request": {}}',
        b"",
        b"{",
        b"7",
        b'{"number": "9"}',
        b'{"number": 9, "url": "ftp://x"}',
    ]
    found = read_issues(lines)
    first = found.of(Issue(repository="acme/text", number=9))
    assert first is not None
    assert (first.title, first.body) == ("A", "")
    fourth = found.of(Issue(repository="o/r", number=4))
    assert fourth is not None
    assert fourth.is_change
    assert [(p.line, p.message) for p in found.problems][1:] == [
        (6, "is no JSON object"),
        (7, "number: must be a whole number from 1 up"),
        (8, "url: names no repository"),
    ]
