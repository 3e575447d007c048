"""Instructions that give the fix away or omit what tests need, and those that are only near it."""

from collections.abc import Callable

from tests.samples import BASE, SOURCE, SPEC, Sample, patches

Break = Callable[[Sample], None]

TOLD = "Adding 1 and 1 gives 0. It should give 2.\n"
CODE = "    fun sumOf(left: Int, right: Int): Int = left.plus(right) // carries over\n"
USES = "    @Test fun sums() = assertEquals(2, Adder().sumOf(1, 1))\n"


def told(text: str) -> Break:
    return lambda s: s.write("instruction.md", TOLD + text)


def patch(path: str, *lines: str, kept: str = "class Adder {") -> bytes:
    """A patch that adds the lines to a file after the one that it keeps."""
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
    added = "".join(f"+{line}" for line in lines)
    return f"{head}@@ -1 +1,{1 + len(lines)} @@\n {kept}\n{added}".encode()


def change(fix: bytes, test: bytes, text: str = "") -> Break:
    """Other patches, and an instruction beside them."""

    def apply(sample: Sample) -> None:
        told(text)(sample)
        sample.write("solution/fix.patch", fix)
        if sample.form == "plain":
            sample.write("tests/adder.test.kt", _added(test))
        else:
            sample.write("tests/test.patch", test)

    return apply


def _added(test: bytes) -> bytes:
    lines = (line[1:] for line in test.splitlines(keepends=True) if line[:1] in (b"+", b" "))
    return b"".join(line for line in lines if not line.startswith(b"++"))


def issues(*urls: str) -> Break:
    old = '"https://example.org/acme/adder/issues/6"'
    return lambda s: s.edit("task.toml", old, ", ".join(f'"{url}"' for url in urls))


def both(*breaks: Break) -> Break:
    def apply(sample: Sample) -> None:
        for each in breaks:
            each(sample)

    return apply


def numbered(sample: Sample) -> None:
    """The change under a number of two digits, which can be no step of a list."""
    sample.edit("task.toml", 'code_change_id = "7"', 'code_change_id = "73"')
    sample.edit("task.toml", "/pull/7", "/pull/73")


FIX = patch(SOURCE, CODE)
TEST = patch(SPEC, USES, kept="class AdderTest {")
BLOB = patches()[0].split(b"\n", 2)[1].split(b"..")[1][:40].decode()
INTERNAL = "    private fun carryOver(left: Int) = left and 1\n"

# (rule, form, how to break it, the file and place where it fires)
STATEMENTS: list[tuple[str, str, Break, str, str]] = [
    (
        "statement/fix-link",
        "own",
        told("See https://example.org/acme/adder/pull/7.\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-link",
        "plain",
        told("> [the change](https://github.com/Acme/adder/pull/7/files)\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-link",
        "own",
        told("`gitlab.example.org/acme/adder/-/merge_requests/7`\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-link",
        "own",
        told("\nFixed by acme/adder/issues/7\n"),
        "instruction.md",
        "line 3",
    ),
    (
        "statement/fix-link",
        "own",
        both(numbered, told("Done (#73).\n")),
        "instruction.md",
        "line 2",
    ),
    ("statement/fix-link", "own", told("Done in PR #7.\n"), "instruction.md", "line 2"),
    ("statement/fix-link", "own", told("It fixes acme/adder#7.\n"), "instruction.md", "line 2"),
    ("statement/fix-link", "own", both(numbered, told("See GH-73.\n")), "instruction.md", "line 2"),
    (
        "statement/fix-id",
        "own",
        told(f"The file becomes {BLOB[:9]}.\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-id",
        "own",
        both(
            lambda s: s.edit(
                "task.toml",
                'code_change_id = "7"',
                f'code_change_id = "7"\nmerged = "{"c0ffee" * 7:.40}"',
            ),
            told("Since c0ffeec, all is well.\n"),
        ),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-id",
        "plain",
        both(
            lambda s: s.edit(
                "environment/Dockerfile", "WORKDIR", f"RUN git checkout {'d0d1' * 10}\nWORKDIR"
            ),
            told(f"It works at {'d0d1' * 10}.\n"),
        ),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/fix-name",
        "own",
        change(patch(SOURCE, CODE, INTERNAL), TEST, "\nUse sumOf and carryOver.\n"),
        "instruction.md",
        "line 3",
    ),
    (
        "statement/fix-name",
        "plain",
        change(patch(SOURCE, CODE, INTERNAL), TEST, "\nUse sumOf, and `carryOver` in it.\n"),
        "instruction.md",
        "line 3",
    ),
    ("statement/unknown-name", "own", change(FIX, TEST), "tests/test.patch", ""),
    ("statement/unknown-name", "plain", change(FIX, TEST), "tests", ""),
    (
        "statement/fix-line",
        "own",
        change(FIX, TEST, f"```kotlin\n{CODE}```\n"),
        "instruction.md",
        "line 3",
    ),
    (
        "statement/fix-line",
        "plain",
        change(FIX, TEST, f"- write `{CODE.strip()}`, and it works\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/test-line",
        "own",
        change(FIX, TEST, f"    {USES}"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/test-line",
        "plain",
        change(FIX, TEST, f"> {USES.strip()}\n"),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/unlisted-issue",
        "own",
        told("So does https://example.org/acme/adder/issues/5.\n"),
        "instruction.md",
        "line 2",
    ),
    ("statement/unlisted-issue", "own", told("It also fixes #5.\n"), "instruction.md", "line 2"),
    (
        "statement/unlisted-issue",
        "own",
        both(issues("https://tracker.example.org/issue/ADD-12"), told("See ADD-12 and ADD-13.\n")),
        "instruction.md",
        "line 2",
    ),
    (
        "statement/several-issues",
        "own",
        told("## Issue 6: a\nIt subtracts.\n## Issue 5: b\nIt is slow.\n"),
        "instruction.md",
        "line 4",
    ),
    (
        "statement/several-issues",
        "own",
        told("### Steps to reproduce\nAdd.\n\n### Steps to reproduce:\nAdd again.\n"),
        "instruction.md",
        "line 5",
    ),
    (
        "statement/several-issues",
        "own",
        told("# Adding gives nothing\n**To reproduce**\n\n# Adding twice is slow\n"),
        "instruction.md",
        "line 5",
    ),
]

# (what it is, form, what is done to the sample): nothing of `statement/` may fire.
FAIR: list[tuple[str, str, Break]] = [
    ("the listed issue", "own", told("From https://example.org/acme/adder/issues/6 (#6).\n")),
    (
        "an issue under the number of the change, where it is listed",
        "own",
        both(issues("https://example.org/acme/adder/issues/7"), told("As in issue #7.\n")),
    ),
    (
        "a link to an issue under the number of the change, where it is listed",
        "own",
        both(
            issues("https://example.org/acme/adder/issues/7"),
            told("See https://example.org/acme/adder/issues/7.\n"),
        ),
    ),
    ("another repository's number", "own", both(numbered, told("Like other/adder#73.\n"))),
    (
        "a number that a file of the fix begins with",
        "own",
        change(
            FIX.replace(b"--- a/", b"index 1111111..1234567 100644\n--- a/", 1),
            TEST,
            "sumOf 1234567\n",
        ),
    ),
    (
        "the base commit of a plain task that says so",
        "plain",
        both(
            lambda s: s.edit(
                "task.toml",
                "[verifier]",
                f'[metadata.source]\nbase_commit = "{BASE}"\n\n[verifier]',
            ),
            lambda s: s.edit(
                "environment/Dockerfile", "WORKDIR", f"RUN git checkout {BASE}\nWORKDIR"
            ),
            told(f"Seen at {BASE}.\n"),
        ),
    ),
    ("another repository's change", "own", told("Like github.com/other/adder/pull/7.\n")),
    ("an earlier change", "own", told("Since #23 it rounds, see acme/adder/pull/3.\n")),
    ("a number that counts", "own", told("Do step #7, then case 7 of 7.\n")),
    ("a colour in code", "own", both(numbered, told("```css\ncolor: #73;\n```\nOr `#73`.\n"))),
    ("an entity", "own", both(numbered, told("It shows &#73;.\n"))),
    ("the base commit", "own", told(f"Seen at {'a' * 40}.\n")),
    ("a number as long as an id", "own", told("It gives 1234567 for 7654321.\n")),
    (
        "a name that the fix declares and the tests use",
        "own",
        change(FIX, TEST, "It should be called sumOf.\n"),
    ),
    (
        "a name that the fix only moves",
        "own",
        change(
            patch(SOURCE, INTERNAL, kept="    fun carryOver(left: Int) = 0"),
            TEST,
            "Use sumOf, as carryOver does.\n",
        ),
    ),
    (
        "a plain word that the fix declares",
        "own",
        change(
            patch(SOURCE, "    private fun carry() = 1\n"),
            patch(SPEC, "//\n"),
            "The carry is lost.\n",
        ),
    ),
    (
        "what overrides another",
        "own",
        change(patch(SOURCE, "    override fun sumOf(left: Int) = left\n"), TEST),
    ),
    (
        "a private name under a known one",
        "own",
        change(patch(SOURCE, "    private val sumOf = 1\n"), TEST),
    ),
    ("a local value", "own", change(patch(SOURCE, "        val sumOf = left\n"), TEST)),
    (
        "a name in a string",
        "own",
        change(FIX, patch(SPEC, '    @Test fun a() = run("sumOf") // sumOf\n')),
    ),
    (
        "a name that the tests declare themselves",
        "own",
        change(FIX, patch(SPEC, "    fun sumOf(left: Int) = 1\n", USES)),
    ),
    (
        "a name that tests knew before",
        "own",
        change(FIX, patch(SPEC, USES, kept="    val known = Adder().sumOf(1, 2)")),
    ),
    (
        "an interface that the fix then has",
        "own",
        change(
            patch(SOURCE, "    fun sumOf(left: Int, right: Int): Int {\n", "    }\n"),
            TEST,
            "    fun sumOf(left: Int, right: Int): Int {\n",
        ),
    ),
    (
        "code that is there already",
        "own",
        change(
            patch(SOURCE, CODE, kept=CODE.rstrip()),
            TEST,
            f"Today it is:\n\n{CODE}\nThat is sumOf.\n",
        ),
    ),
    (
        "an example from the fix's documentation",
        "own",
        change(
            patch(SOURCE, "    /* An example:\n", CODE, "    */\n", CODE[:-4]),
            TEST,
            f"As in\n{CODE}",
        ),
    ),
    (
        "a use that a test shares",
        "own",
        change(
            FIX,
            patch(SPEC, "    val both = listOf(sumOf(1, 1), sumOf(2, 2))\n"),
            "    val both = listOf(sumOf(1, 1), sumOf(2, 2))\n",
        ),
    ),
    ("headings of one issue", "own", told("# Adding gives nothing\n## Expected\n# Details\n")),
    ("headings in code", "own", told("```sh\n# one two three\n# four five six\n```\n")),
    (
        "as many issues as are listed",
        "own",
        both(
            issues(
                "https://example.org/acme/adder/issues/6", "https://example.org/acme/adder/issues/5"
            ),
            told("## Issue 6\nIt subtracts.\n## Issue 5\nIt is slow.\n"),
        ),
    ),
    ("issues of a plain task", "plain", told("It also fixes #5.\n## Issue 1\n## Issue 2\n")),
]
