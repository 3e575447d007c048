"""Rows of the two patches: what git makes of them on the base commit, and what they touch."""

from collections.abc import Mapping
from pathlib import Path

from tests.defects.kit import BEFORE, FIXED, TESTED, UPSTREAM, Row, diff, git, small
from tests.samples import SOURCE, SPEC, Sample

_MORE = "".join(f"\n    @Test\n    fun more{n}() = check({n})\n" for n in range(3))


def _longer(files: Mapping[str, str]) -> Mapping[str, str]:
    """The files, with so many tests at the class's end that a change before doesn't reach it."""
    return {**files, SPEC: files[SPEC].removesuffix("}\n") + _MORE + "}\n"}


SPACIOUS, SPACIOUS_TESTED = _longer(BEFORE), _longer(TESTED)
# A line of a test that ends in blanks, as in a text block.
_BLANKS = {SPEC: SPACIOUS_TESTED[SPEC].replace("(1, 1))", '(1, 1), "text:   \n")')}
_LONG = "class Adder {\n    fun add(left: Int, right: Int) = left - right\n" + "    // ...\n" * 9


def at_the_end(before: Mapping[str, str]) -> Mapping[str, str]:
    """The hidden change of a test class: a test at its end."""
    two = "\n    @Test\n    fun two() = assertEquals(2, Adder().add(1, 1))\n"
    return {SPEC: before[SPEC].removesuffix("}\n") + two + "}\n"}


def at_hand(
    folder: Path,
    *,
    before: Mapping[str, str] = SPACIOUS,
    fixed: Mapping[str, str] = FIXED,
    tested: Mapping[str, str] = SPACIOUS_TESTED,
    form: str = "own",
) -> Sample:
    """The small dataset, whose upstream repository is at hand."""
    sample = small(folder, before=before, fixed=fixed, tested=tested, form=form)
    (sample.root / "kbench.toml").write_text(f'[upstream]\nmirrors = "../{UPSTREAM}"\n')
    return sample


def _damaged(folder: Path) -> None:
    """Somebody's editor took the blanks at the ends of lines away."""
    sample = at_hand(folder, tested=_BLANKS)
    text = (sample.task / "tests/test.patch").read_text()
    sample.write("tests/test.patch", text.replace("text:   \n", "text:\n"))


def _with_blanks(folder: Path) -> None:
    at_hand(folder, tested=_BLANKS)


def _moved_base(folder: Path, *, cut_again: bool) -> None:
    """The base is a later commit than the one that the fix was cut from."""
    sample = at_hand(folder, before={**SPACIOUS, SOURCE: f"{_LONG}}}\n"}, fixed=_long(FIXED))
    repository = folder / UPSTREAM / "acme" / "adder"
    old = git(repository, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    git(repository, "checkout", "-q", "-b", "later", old)
    (repository / SOURCE).write_text(f"{_LONG}    // later\n}}\n")
    git(repository, "commit", "-q", "-a", "-m", "Later")
    new = git(repository, "rev-parse", "HEAD").decode().strip()
    for path in ("task.toml", "environment/prepare.sh", "environment/Dockerfile"):
        sample.edit(path, old, new)
    if cut_again:
        (repository / SOURCE).write_text(f"{_LONG}    // later\n}}\n".replace("left - ", "left + "))
        git(repository, "commit", "-q", "-a", "-m", "Fix")
        sample.write("solution/fix.patch", diff(repository, new, "HEAD"))


def _long(files: Mapping[str, str]) -> Mapping[str, str]:
    return {path: f"{_LONG}}}\n".replace("left - ", "left + ") for path in files}


def _another_base(folder: Path) -> None:
    _moved_base(folder, cut_again=False)


def _the_same_base(folder: Path) -> None:
    _moved_base(folder, cut_again=True)


def _fix_with_docs(folder: Path) -> None:
    small(folder, fixed={**FIXED, "docs/adding.md": "It adds.\n", "CHANGELOG.md": "Fixed.\n"})


def _fix_of_a_resource(folder: Path) -> None:
    small(folder, fixed={**FIXED, "src/main/resources/adder.properties": "sign = plus\n"})


def _tests_with_source(folder: Path) -> None:
    small(folder, tested={**TESTED, "src/main/kotlin/Other.kt": "class Other\n"})


def _tests_with_fixture(folder: Path) -> None:
    small(folder, tested={**TESTED, "src/test/resources/notes.md": "# A fixture\n"})


def _at_the_end(folder: Path) -> None:
    at_hand(folder, tested=at_the_end(SPACIOUS))


ROWS = (
    Row(row="post-image", rule="patch/post-image", defect=_damaged, twin=_with_blanks),
    Row(row="pre-image", rule="patch/pre-image", defect=_another_base, twin=_the_same_base),
    Row(row="fix beyond code", rule="patch/mixed", defect=_fix_with_docs, twin=_fix_of_a_resource),
    Row(
        row="tests beyond tests",
        rule="patch/mixed",
        defect=_tests_with_source,
        twin=_tests_with_fixture,
    ),
    Row(
        row="blocked by an honest agent",
        rule="patch/blocks-own-tests",
        defect=_at_the_end,
        twin=at_hand,
    ),
)
