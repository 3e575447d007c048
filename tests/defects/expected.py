"""Rows of the expected tests: what they claim of before, and what they leave out."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.defects.kit import BEFORE, TESTED, Row, expected, small
from tests.samples import SPEC, Sample

INTEGRATION = "src/integrationTest/kotlin/AdderIntegration.kt"


def results(
    *, f2p: list[str], p2p: list[str], before: list[str], n2p: list[str] | None = None
) -> dict[str, object]:
    """Expected tests, with those that pass on the untouched base; the hidden tests agree."""
    skipped: list[str] = []
    return {
        "f2p_tests": f2p,
        "p2p_tests": p2p,
        "s2p_tests": [],
        "n2p_tests": n2p or [],
        "run_result": {"passed_tests": before, "failed_tests": [], "skipped_tests": skipped},
        "test_patch_result": {"passed_tests": p2p, "failed_tests": f2p, "skipped_tests": skipped},
    }


def tell(sample: Sample, value: Mapping[str, object]) -> None:
    sample.write("tests/expected_tests.json", json.dumps(value))


# The test that must come to pass is there before, with another assertion.
_OTHER = {
    **BEFORE,
    SPEC: TESTED[SPEC].replace("(2, Adder().add(1, 1))", "(0, Adder().add(1, 1))"),
}


def _passes_already(folder: Path) -> None:
    names = ["AdderTest.none", "AdderTest.two", "AdderTest.zero"]
    value = results(f2p=["AdderTest.two"], p2p=["AdderTest.none", "AdderTest.zero"], before=names)
    tell(small(folder, before=_OTHER), value)


def _one_is_new(folder: Path) -> None:
    more = {
        SPEC: TESTED[SPEC].replace(
            "fun two()", "fun three() = check(3)\n\n    @Test\n    fun two()"
        )
    }
    names = ["AdderTest.none", "AdderTest.two", "AdderTest.zero"]
    value = results(
        f2p=["AdderTest.three", "AdderTest.two"],
        p2p=["AdderTest.none", "AdderTest.zero"],
        before=names,
    )
    tell(small(folder, before=_OTHER, tested=more), value)


def _renamed(folder: Path) -> None:
    value = results(
        f2p=["AdderTest.Sums -- two"],
        p2p=["AdderTest.none", "AdderTest.zero"],
        before=["AdderTest.none", "AdderTest.two", "AdderTest.zero"],
    )
    tell(small(folder, before=_OTHER), value)


def _by_both_names(folder: Path) -> None:
    """A runner that reports a test by its own name, and by that of its container as well."""
    old = ["AdderTest.none", "AdderTest.two", "AdderTest.zero"]
    value = results(f2p=["AdderTest.two"], n2p=["AdderTest.Sums -- zero"], p2p=old, before=old)
    value["f2p_tests"] = []
    tell(small(folder, before=_OTHER), value)


def _same_leaf_elsewhere(folder: Path) -> None:
    """The old test is still there beside the new one."""
    old = ["AdderTest.none", "AdderTest.two", "AdderTest.zero"]
    value = results(f2p=["AdderTest.Sums -- two"], p2p=old, before=old)
    tell(small(folder, before=_OTHER), value)


def _only_new(folder: Path, passing: int = 2) -> None:
    names = ["AdderTest.none", "AdderTest.two", "AdderTest.zero"]
    before = [*["AdderTest.none", "AdderTest.zero", "OtherTest.a"][:passing], "OtherTest.a"]
    value = results(f2p=[], n2p=names, p2p=["OtherTest.a"], before=sorted(set(before)))
    tell(small(folder), value)


def _few_pass_before(folder: Path) -> None:
    _only_new(folder, passing=1)


def _integration(folder: Path, tasks: str) -> None:
    tested = {
        **TESTED,
        INTEGRATION: "class AdderIntegration {\n    @Test\n    fun two() = check(2)\n}\n",
    }
    sample = small(folder, tested=tested)
    sample.write(
        "tests/test.sh",
        f"git apply /tests/test.patch || exit 1\n./gradlew clean {tasks} --continue || true\n",
    )


def _never_run(folder: Path) -> None:
    _integration(folder, "test")


def _is_run(folder: Path) -> None:
    _integration(folder, "test integrationTest")


def _nobody_expects(folder: Path) -> None:
    more = "    @Test\n    fun `three and four`() = check(7)\n\n    @Test\n    fun two()"
    small(folder, tested={SPEC: TESTED[SPEC].replace("    @Test\n    fun two()", more)})


def _ignored(folder: Path) -> None:
    """A test that is switched off is one that nobody can expect."""
    more = (
        "    @Test\n    @Ignore\n    fun `three and four`() = check(7)\n\n    @Test\n    fun two()"
    )
    small(folder, tested={SPEC: TESTED[SPEC].replace("    @Test\n    fun two()", more)})


def _guard(folder: Path, before: list[str]) -> None:
    """An added test that passes without the fix."""
    more = "    @Test\n    fun one() = check(1)\n\n    @Test\n    fun two()"
    p2p = ["AdderTest.none", "AdderTest.one", "AdderTest.zero"]
    value = results(f2p=["AdderTest.two"], p2p=p2p, before=before)
    tested = {SPEC: TESTED[SPEC].replace("    @Test\n    fun two()", more)}
    tell(small(folder, tested=tested), value)


def _added_passes(folder: Path) -> None:
    _guard(folder, ["AdderTest.none", "AdderTest.zero"])


def _passed_before(folder: Path) -> None:
    _guard(folder, ["AdderTest.none", "AdderTest.one", "AdderTest.zero"])


def _assets(folder: Path, tasks: str) -> None:
    tested = {**TESTED, "src/functionalTest/assets/sums.json": "[2]\n"}
    sample = small(folder, tested=tested)
    sample.write(
        "tests/test.sh", f"git apply /tests/test.patch || exit 1\n./gradlew {tasks} || true\n"
    )


def _assets_of_none(folder: Path) -> None:
    _assets(folder, "test")


def _assets_of_a_run(folder: Path) -> None:
    _assets(folder, "test functionalTest")


def _still_fails(folder: Path) -> None:
    value = expected()
    value["test_patch_result"] = {
        "passed_tests": ["AdderTest.none", "AdderTest.zero"],
        "failed_tests": ["AdderTest.two", "OtherTest.broken"],
        "skipped_tests": [],
    }
    tell(small(folder), value)


def _comes_to_pass(folder: Path) -> None:
    _still_fails(folder)
    path = folder / "dataset/tasks/acme_adder-7/tests/expected_tests.json"
    value = json.loads(path.read_bytes())
    value["f2p_tests"].append("OtherTest.broken")
    path.write_text(json.dumps(value))


def _unguarded(folder: Path, tested: Mapping[str, str] = TESTED) -> None:
    value = results(
        f2p=["AdderTest.two"], p2p=["AdderTest.zero"], before=["AdderTest.none", "AdderTest.zero"]
    )
    tell(small(folder, tested=tested), value)


def _removed(folder: Path) -> None:
    """The hidden patch takes the test away."""
    gone = "\n    @Test\n    fun none() = assertEquals(1, Adder().add(1, 0))\n"
    _unguarded(folder, {SPEC: TESTED[SPEC].replace(gone, "")})


ROWS = (
    Row(
        row="passes already",
        rule="expected/all-pass-before",
        defect=_passes_already,
        twin=_one_is_new,
    ),
    Row(row="renamed", rule="expected/renamed", defect=_renamed, twin=_same_leaf_elsewhere),
    Row(row="renamed", rule="expected/renamed", defect=_by_both_names, twin=_same_leaf_elsewhere),
    Row(
        row="only new",
        rule="expected/mostly-pass-before",
        defect=_only_new,
        twin=_few_pass_before,
    ),
    Row(row="never run", rule="expected/never-run", defect=_never_run, twin=_is_run),
    Row(
        row="nobody expects", rule="expected/nobody-expects", defect=_nobody_expects, twin=_ignored
    ),
    Row(
        row="nobody expects",
        rule="expected/added-passes",
        defect=_added_passes,
        twin=_passed_before,
    ),
    Row(row="never run", rule="expected/never-run", defect=_assets_of_none, twin=_assets_of_a_run),
    Row(
        row="fails when fixed",
        rule="expected/still-fails",
        defect=_still_fails,
        twin=_comes_to_pass,
    ),
    Row(row="unguarded", rule="expected/unguarded", defect=_unguarded, twin=_removed),
    Row(row="unguarded", rule="expected/given-up", defect=_removed, twin=_unguarded),
)
