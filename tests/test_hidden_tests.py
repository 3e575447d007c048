"""Which tests a patch adds, which of them a command reaches, and which are only renamed."""

import time
from pathlib import Path

import pytest

from kbench_build.rules.added_tests import added_tests
from kbench_build.rules.expected_tests import expected_of
from kbench_build.rules.patches import parse_patch
from kbench_build.rules.renames import renamed
from kbench_build.rules.test_commands import can_not_reach, commands, commands_in_script
from tests.defects.kit import TESTED, findings, small


def added(text: str, path: str = "src/test/kotlin/ATest.kt", removed: str = "") -> list[str]:
    """The tests that a patch with these lines adds."""
    old, new = removed.splitlines(), text.splitlines()
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
    hunk = f"@@ -1,{len(old)} +1,{len(new)} @@\n"
    lines = [*(f"-{line}\n" for line in old), *(f"+{line}\n" for line in new)]
    return [test.name for test in added_tests(parse_patch((head + hunk + "".join(lines)).encode()))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("    @Test\n    fun adds() {\n", "adds"),
        ("    @Test fun adds() = check(1)\n", "adds"),
        ("    @Test\n    fun `adds, and more`() = runTest {\n", "adds, and more"),
        ("    @org.junit.Test\n    @Throws(IOException::class)\n    fun adds() {\n", "adds"),
        ("    @Test(timeout = 5)\n    internal suspend fun adds() {\n", "adds"),
        ('    @Test\n    // why\n\n    @Suppress("x")\n    fun adds() {\n', "adds"),
        ("    @Throws(Exception::class) @Test fun adds() {\n", None),
        ("    @Test\n    public void adds() throws Exception {\n", "adds"),
        ("    @Test\n    void adds() {\n", "adds"),
        ('    @Test\n    def "adds more"() {\n', "adds more"),
        ("    @Test\n    @Disabled\n    fun adds() {\n", None),
        ("    @Ignore\n    @Test\n    fun adds() {\n", None),
        ('    @Test\n    @DisplayName("x")\n    fun adds() {\n', None),
        ("    @ParameterizedTest\n    fun adds(value: Int) {\n", None),
        ("    @RepeatedTest(3)\n    fun adds() {\n", None),
        ("    // @Test\n    fun adds() {\n", None),
        ("    @Test\n", None),
        ("    @Test\n    val x = 1\n", None),
        ("    @TestFactory\n    fun adds() = listOf<DynamicTest>()\n", None),
        ('    val code = """\n    @Test\n    fun adds() {}\n    """\n', None),
        ('    val code = """x"""\n    @Test\n    fun adds() {\n', "adds"),
        ("    fun `@Test`() {\n", None),
    ],
)
def test_an_added_test_is_told_by_its_declaration(text: str, name: str | None) -> None:
    assert added(text) == ([name] if name else [])


def test_a_test_that_moves_isnt_added() -> None:
    text = "    @Test\n    fun adds() {\n"
    assert added(text, removed="  @Test\n  fun adds() {\n") == []
    assert added(text, path="docs/adds.md") == []


def test_reading_added_tests_is_linear() -> None:
    began = time.monotonic()
    added("    @Test\n" * 100_000 + "    @Test(" + "(" * 100_000 + "\n")
    assert time.monotonic() - began < 5


CORE = "core/src/test/kotlin/acme/ATest.kt"
JVM = "core/src/jvmTest/kotlin/acme/ATest.kt"
INTEGRATION = "core/src/integrationTest/kotlin/acme/ATest.kt"


@pytest.mark.parametrize(
    ("script", "path", "runs"),
    [
        ("./gradlew clean test --continue || true", CORE, True),
        ("./gradlew test", INTEGRATION, False),
        ("./gradlew test", JVM, False),
        ("./gradlew test", "core/src/androidTest/kotlin/A.kt", False),
        ("./gradlew test", "core/src/commonTest/kotlin/A.kt", True),
        ("./gradlew test", "core/src/testFixtures/kotlin/A.kt", True),
        ("./gradlew test", "core/src/test/resources/a.txt", True),
        ("./gradlew test integrationTest", INTEGRATION, True),
        ("./gradlew jvmTest", JVM, True),
        ("./gradlew jvmTest", "src/commonTest/kotlin/A.kt", True),
        ("./gradlew jvmTest", "src/nativeTest/kotlin/A.kt", False),
        ("./gradlew jvmTest", CORE, False),
        ("./gradlew :core:test", CORE, True),
        ("./gradlew core:test", CORE, True),
        ("./gradlew :cli:test", CORE, False),
        ("./gradlew :test", CORE, False),
        ("./gradlew :test", "src/test/kotlin/A.kt", True),
        ("./gradlew :cli:test\n./gradlew :core:test", CORE, True),
        ("./gradlew check", INTEGRATION, True),
        ("./gradlew build", INTEGRATION, True),
        ("./gradlew $TASKS", INTEGRATION, True),
        ("./gradlew -p core test", INTEGRATION, True),
        ("./gradlew test koverXmlReport", INTEGRATION, True),
        ("./gradlew testDebugUnitTest", CORE, True),
        ("./gradlew testDebugUnitTest", INTEGRATION, False),
        ("./gradlew test --tests acme.ATest", CORE, True),
        ("./gradlew test --tests 'acme.*'", CORE, True),
        ("./gradlew test --tests '*ATest.adds'", CORE, True),
        ("./gradlew test --tests other.BTest", CORE, False),
        ("cd /app\ngradle \\\n  --offline test 2>&1 | tee log", INTEGRATION, False),
        ("# ./gradlew test\nbash build.sh", INTEGRATION, True),
        ("./gradlew 'test", INTEGRATION, True),
        ("mvn -o test", CORE, True),
        ("mvn -o test", "core/src/test/java/acme/AIT.java", False),
        ("mvn -o test", "core/src/it/java/acme/A.java", False),
        ("mvn -o verify", "core/src/test/java/acme/AIT.java", True),
        ("mvn test -pl cli", CORE, False),
        ("mvn test -pl cli,core -am", CORE, True),
        ("mvn test -pl :cli", CORE, True),
        ("mvn test -pl '!core'", CORE, True),
        ("mvn test -Dtest=ATest#adds", CORE, True),
        ("mvn test -Dtest=BTest", CORE, False),
        ("mvn test -Dtest='!BTest'", CORE, True),
        ("mvn -f core/pom.xml test", INTEGRATION, True),
        ("npm test", CORE, True),
        ("", CORE, True),
    ],
)
def test_what_a_command_cant_reach_is_certain(script: str, path: str, runs: bool) -> None:
    found = commands_in_script(script.encode())
    assert (not found or not can_not_reach(found, path)) is runs


def test_commands_are_words_too() -> None:
    found = commands([["gradle", "--offline", "test"]])
    assert found
    assert "`gradle test` doesn't run" in can_not_reach(found, JVM)
    assert commands([["bash", "build.sh", "test"]]) is None
    assert commands([[]]) is None
    assert commands([["gradle"]]) is None


def pairs(new: list[str], before: list[str], after: list[str] | None = None) -> dict[str, str]:
    return dict(
        renamed(
            expected_of(
                {
                    "n2p_tests": new,
                    "p2p_tests": after or [],
                    "run_result": {"passed_tests": before},
                }
            )
        )
    )


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("a.ATest.Sums -- adds", "a.ATest.adds"),
        ("a.ATest.Sums. And more. -- small -- adds", "a.ATest.adds"),
        ("a.ATest.adds", "a.ATest.Sums -- adds"),
        ("a.ATest.Sums > adds", "a.ATest.adds"),
        ("a.ATest.adds()", "a.ATest.adds"),
        ("b.ATest.adds", "a.ATest.adds"),
    ],
)
def test_a_renamed_test_is_told(new: str, old: str) -> None:
    assert pairs([new], [old]) == {new: old}
    assert pairs([new], [old], after=[old]) == {}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("a.ATest.Sums -- adds", "a.BTest.adds"),
        ("a.ATest.Sums -- adds", "a.BTest.Sums -- adds"),
        ("a.ATest.adds", "a.ATest.subtracts"),
        ("b.BTest.adds", "a.ATest.adds"),
        ("a.ATest.adds", "a.ATest.adds"),
    ],
)
def test_another_test_is_no_renamed_one(new: str, old: str) -> None:
    assert pairs([new], [old]) == {}


def test_renames_among_many_are_found_in_time() -> None:
    names = [f"a.b.c.ATest{n % 50}.test {n}" for n in range(20_000)]
    new = [name.replace(".test", ".Container -- test") for name in names]
    began = time.monotonic()
    assert len(pairs(new, names)) == len(names)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("form", ["own", "shipped"])
@pytest.mark.parametrize("ran", [True, False])
def test_a_class_among_the_results_is_run_whatever_the_command(
    tmp_path: Path, form: str, ran: bool
) -> None:
    path = "src/integrationTest/kotlin/AdderIntegration.kt"
    text = "class AdderIntegration {\n    @Test\n    fun two() = check(2)\n}\n"
    sample = small(tmp_path, tested={**TESTED, path: text}, form=form)
    if ran:
        sample.change(
            "tests/expected_tests.json", lambda v: v["n2p_tests"].append("AdderIntegration.two")
        )
    assert ("expected/never-run" in {f.rule for f in findings(tmp_path)}) is not ran
