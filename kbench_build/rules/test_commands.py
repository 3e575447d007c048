"""What a Gradle or Maven command runs: which test classes of which source sets it can't reach.

Promises: only what is certain from the command and the path; anything else (another program, a
task whose meaning the build decides, a variable) is "can't tell". Leaves to others whether the
results show the tests all the same.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath

_PATH = re.compile(r"(?:(?P<module>.+)/)?src/(?P<set>\w+)/(?:kotlin|java|groovy)/(?P<inside>.+)")
# What the tests of a source set read.
_ASSET = re.compile(r"(?:(?P<module>.+)/)?src/(?P<set>\w+)/(?P<inside>.+)")
_CALL = re.compile(r"(?:^|[\s;&|(])(?:\S{0,100}/)?(gradlew?|mvnw?)\s([^\n;&|<>]*)")
# Comments on lines of their own, and redirections.
_ASIDE = re.compile(r"^[ \t]*#.*$|(?<=\s)\d*(?:>>?|<)&?[ \t]*[^\s;&|<>]+", re.MULTILINE)
_TEST_TASK = re.compile(r"test|[a-z]\w*Test")
_UNIT_TASK = re.compile(r"test\w*UnitTest")
_SIDE_TASKS = frozenset(
    {"clean", "cleanTest", "assemble", "classes", "testClasses", "cleanAllTests"}
)
# Source sets that have a task of their own, so that `test` alone doesn't run them.
_OWN_SETS = re.compile(
    r"(?:jvm|desktop|js|wasmJs|wasm|native|linux\w*|macos\w*|ios\w*|mingw\w*|android|integration"
    r"|androidInstrumented|functional|fun|e2e|acceptance|smoke|performance)Test"
)
_ON_DEVICES = frozenset({"androidTest", "androidInstrumentedTest"})
_GRADLE_VALUES = frozenset({"-x", "--exclude-task", "-I", "--init-script", "-g", "--console"}) | {
    "--gradle-user-home",
    "--max-workers",
    "--warning-mode",
    "--priority",
}
_MAVEN_VALUES = frozenset({"-s", "--settings", "-gs", "-P", "--activate-profiles", "-T", "-l"})
_MAVEN_UNIT = frozenset({"test", "surefire:test", "clean", "compile", "test-compile", "package"})


@dataclass(frozen=True, kw_only=True)
class TestCommand:
    """One call of a build: its tasks or goals, modules (None: all), and filters of classes."""

    tool: str
    tasks: tuple[str, ...]
    modules: tuple[str, ...] | None = None
    filters: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The command in short, for people."""
        return " ".join((self.tool, *self.tasks, *self.filters))


@lru_cache(maxsize=8)
def commands_in_script(script: bytes) -> tuple[TestCommand, ...] | None:
    """The builds that a shell script calls; None where one can't be read for certain.

    Remembered, since many tasks have the same script.
    """
    text = script.decode("utf-8", "replace").replace("\\\n", " ")
    text = _ASIDE.sub(" ", text)
    calls = []
    for match in _CALL.finditer(text):
        try:
            calls.append([match[1], *shlex.split(match[2], comments=True)])
        except ValueError:
            return None
    return commands(calls)


def commands(calls: Iterable[Sequence[str]]) -> tuple[TestCommand, ...] | None:
    """Commands from their words; None where one can't be read for certain."""
    found = [_command(words) for words in calls]
    sure = tuple(command for command in found if command)
    return sure if sure and len(sure) == len(found) else None


def _command(words: Sequence[str]) -> TestCommand | None:
    tool = PurePosixPath(words[0]).name if words else ""
    if any("$" in word or "`" in word for word in words):
        return None
    if tool in ("gradle", "gradlew"):
        return _gradle(words[1:])
    return _maven(words[1:]) if tool in ("mvn", "mvnw") else None


def _gradle(words: Sequence[str]) -> TestCommand | None:
    tasks: list[str] = []
    filters: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--tests" or word in _GRADLE_VALUES:
            value = next(left, "")
            filters += [value] if word == "--tests" else []
        elif word.startswith("--tests="):
            filters.append(word.removeprefix("--tests="))
        elif word.startswith(("-p", "--project-dir", "-b", "-c", "-a", "--include-build", "@")):
            return None
        elif not word.startswith("-"):
            tasks.append(word)
    tests = tuple(t for t in tasks if t.rpartition(":")[2] not in _SIDE_TASKS)
    names = [task.rpartition(":")[2] for task in tests]
    if not tests or not all(_TEST_TASK.fullmatch(n) or _UNIT_TASK.fullmatch(n) for n in names):
        return None
    return TestCommand(tool="gradle", tasks=tests, filters=tuple(filters))


def _maven(words: Sequence[str]) -> TestCommand | None:
    goals: list[str] = []
    filters: list[str] = []
    modules: list[str] = []
    left = iter(words)
    for word in left:
        if word in _MAVEN_VALUES:
            next(left, "")
        elif word in ("-pl", "--projects"):
            modules += next(left, "").split(",")
        elif word.startswith("-Dtest="):
            filters += word.removeprefix("-Dtest=").split(",")
        elif word.startswith(
            ("-f", "--file", "-rf", "-amd", "--also-make-dependents", "-Dit.test")
        ):
            return None
        elif not word.startswith("-"):
            goals.append(word)
    doubtful = any(m.startswith(("!", "-", "+", "?")) or ":" in m for m in modules)
    if doubtful or any(f.startswith("!") or "%" in f for f in filters) or not goals:
        return None
    return TestCommand(
        tool="mvn",
        tasks=tuple(goals),
        modules=tuple(m.strip("/") for m in modules) or None,
        filters=tuple(f.partition("#")[0] for f in filters),
    )


def can_not_reach(found: Sequence[TestCommand], path: str) -> str:
    """Why none of the commands can run the test class of a path; empty where one may.

    For what tests read it says why none runs the tests of its source set.
    """
    place = _PATH.fullmatch(path) or _ASSET.fullmatch(path)
    if place is None or (place.re is _ASSET and not _OWN_SETS.fullmatch(place["set"])):
        return ""
    reasons = [next(_reasons(command, place), "") for command in found]
    return reasons[0] if reasons and all(reasons) else ""


def _reasons(command: TestCommand, place: re.Match[str]) -> Iterator[str]:
    source_set = place["set"]
    if command.tool == "mvn":
        yield from _maven_reasons(command, place)
    elif not any(_may_run(task, place["module"] or "", source_set) for task in command.tasks):
        module = f" of {place['module']}" if place["module"] else ""
        yield f"`{command.shown}` doesn't run the tests in src/{source_set}{module}"
    if command.filters and not any(_matches(f, place["inside"]) for f in command.filters):
        yield f"no filter of `{command.shown}` matches it"


def _may_run(task: str, module: str, source_set: str) -> bool:
    """Whether a Gradle task may run the tests of a module's source set."""
    owner, _, name = task.rpartition(":")
    if owner.strip(":") and owner.strip(":").replace(":", "/") != module:
        return False
    if task.startswith(":") and not owner and module:
        return False
    if name == "test" or _UNIT_TASK.fullmatch(name):
        return not _OWN_SETS.fullmatch(source_set) and source_set not in _ON_DEVICES
    both_own = _OWN_SETS.fullmatch(source_set) and _OWN_SETS.fullmatch(name)
    return name == source_set or not (both_own or source_set == "test")


def _maven_reasons(command: TestCommand, place: re.Match[str]) -> Iterator[str]:
    if command.modules is not None and (place["module"] or ".") not in command.modules:
        yield f"`{command.shown}` runs other modules than {place['module'] or 'the root'}"
    stem = PurePosixPath(place["inside"]).stem
    is_integration = place["set"] == "it" or re.fullmatch(r"IT\w*|\w*(?:IT|ITCase)", stem)
    if is_integration and not command.filters and set(command.tasks) <= _MAVEN_UNIT:
        yield f"`{command.shown}` runs no integration tests"


def _matches(pattern: str, inside: str) -> bool:
    """Whether a filter of classes may match the class of a path below its source folder."""
    name = PurePosixPath(inside).with_suffix("").as_posix().replace("/", ".")
    wanted = pattern.replace("/", ".").removesuffix(".java").removesuffix(".class")
    stem = name.rpartition(".")[2]
    # What follows the class in a filter is a method.
    return stem in wanted or any(fnmatchcase(n, wanted) for n in (name, f"{name}.x", stem))
