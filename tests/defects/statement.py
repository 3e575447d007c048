"""Rows of the instruction: what the hidden tests need and it doesn't say, and what it says of."""

from pathlib import Path

from tests.defects.kit import BEFORE, Row, small
from tests.samples import SOURCE, SPEC

FIXED = {
    SOURCE: "class Adder {\n    fun add(left: Int, right: Int) = left + right\n\n"
    "    fun sumOf(values: List<Int>) = values.fold(0, ::add)\n}\n",
}
TESTED = {
    SPEC: BEFORE[SPEC].replace(
        "    @Test\n    fun none()",
        "    @Test\n    fun two() = assertEquals(2, Adder().sumOf(listOf(1, 1)))\n\n"
        "    @Test\n    fun none()",
    ),
}


def _needs_a_name(folder: Path) -> None:
    small(folder, fixed=FIXED, tested=TESTED)


def _names_it(folder: Path) -> None:
    sample = small(folder, fixed=FIXED, tested=TESTED)
    sample.write("instruction.md", "Adding subtracts. And `Adder.sumOf` should add a whole list.\n")


def _tells_two_issues(folder: Path) -> None:
    sample = small(folder)
    sample.write(
        "instruction.md",
        "# Adding subtracts numbers\nSee https://example.org/acme/adder/issues/6.\n\n"
        "# Adding one is slow\nSee https://example.org/acme/adder/issues/5.\n",
    )


def _lists_both(folder: Path) -> None:
    _tells_two_issues(folder)
    small_task = folder / "dataset/tasks/acme_adder-7/task.toml"
    listed = '"https://example.org/acme/adder/issues/6"'
    both = f'{listed}, "https://example.org/acme/adder/issues/5"'
    text = small_task.read_text(encoding="utf-8")
    small_task.write_text(text.replace(listed, both), encoding="utf-8")


ROWS = (
    Row(
        row="unknown name",
        rule="statement/unknown-name",
        defect=_needs_a_name,
        twin=_names_it,
    ),
    Row(
        row="unlisted issue",
        rule="statement/unlisted-issue",
        defect=_tells_two_issues,
        twin=_lists_both,
    ),
    Row(
        row="unlisted issue",
        rule="statement/several-issues",
        defect=_tells_two_issues,
        twin=_lists_both,
    ),
)
