"""Checks of a task's own `test.sh`: shapes of script that reward what they shouldn't.

Promises: what is named is so by the script's own text, with the scripts beside it that it calls.
What a program that it runs does, or what a value from outside would be, isn't guessed. Whether a
verifier holds against what an agent can do is for the engine to show (see the step `sabotage`).
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kbench_build.rules.build_lines import Line, assignments
from kbench_build.rules.content import TEST, Content
from kbench_build.rules.dockerfile import stages
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.recipe_trust import downloads_from, installs, provides, tools_of
from kbench_build.rules.shell import (
    Block,
    Chain,
    Command,
    Pipe,
    Script,
    commands,
    parse_shell,
)

_REWARD = re.compile(r"reward", re.IGNORECASE)
_ONE = re.compile(r"(?:.*[:\s])?1(?:\.0*)?(?:\\n)?[\s}]*", re.DOTALL)
_ZERO = re.compile(r"(?:.*[:\s])?0(?:\.0*)?(?:\\n)?[\s}]*", re.DOTALL)
_STATUS = re.compile(r"\$\?|\$\{\?\}|\$\{?PIPESTATUS\b.*")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_TESTS_FOLDER = re.compile(r"(?:^|[^\w.])/tests/|\btest\.patch\b")
_REPORTS = re.compile(
    r"\*[\w*.-]*\.xml|\btest-results\b|\b(?:surefire|failsafe)-reports\b|\bTEST-[\w*.-]*\.xml"
)
_RUNNERS = frozenset(
    (
        *("npx", "npm", "yarn", "pnpm", "bun", "bunx", "deno", "node", "jest", "mocha", "vitest"),
        *("ava", "tap", "pytest", "tox", "nox", "cargo", "go", "gradle", "gradlew", "mvn", "mvnw"),
        *("sbt", "make", "ctest", "cmake", "dotnet", "rspec", "rake", "bundle", "phpunit", "mix"),
        *("swift", "bazel", "zig", "stack", "cabal", "lein", "playwright", "cypress", "karma"),
    )
)
_WRAPPERS = frozenset({"timeout", "env", "nice", "time", "exec", "xvfb-run", "sudo"})
_DURATION = re.compile(r"[\d.]+[smhd]?|\w+=.*")
_INTERPRETERS = frozenset({"python3", "python", "node", "perl", "ruby", "jq", "git", "patch"})
_TESTERS = frozenset({"[", "[[", "test", "((", "exit", "return"})
_EMPTY_FLAGS = re.compile(
    r"--pass-?with-?no-?tests(?:=true)?|--if-present|--no-tests=ignore"
    r"|-D(?:surefire\.)?failIfNo(?:Specified)?Tests=false",
    re.IGNORECASE,
)
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "jq"})
_SOURCE = re.compile(r".*\.(?:[cm]?[jt]sx?|py|rs|go|java|kt|rb|php|c|h|cc|cpp|cs|swift|vue)")
_MINIMAL = re.compile(r"(?:docker\.io/)?(?:library/)?(?:ubuntu|debian|alpine)(?:[:@].*)?")
_HOME = re.compile(r"(?:~|\$\{?HOME\}?|/root|/home/\w+)/\S+")
_PACKAGES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("apt-get", "apt"), frozenset({"install", "update"})),
    "apk": frozenset({"add"}),
    **dict.fromkeys(("yum", "dnf"), frozenset({"install"})),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"install", "ci", "i", "add"})),
    **dict.fromkeys(("pip", "pip3", "uv", "gem", "bundle", "poetry"), frozenset({"install"})),
    "git": frozenset({"clone", "fetch", "pull"}),
}


@dataclass(frozen=True, kw_only=True)
class _Write:
    """A place where a reward is written. `value`: `1`, `0`, `status` (an exit code), or empty."""

    line: Line
    place: int
    value: str
    is_json: bool

    @property
    def sure(self) -> bool:
        return self.line.step.sure and not self.line.step.background


def _spot(line: Line, message: str) -> Spot:
    return Spot(file=line.file, where=line.where, message=message)


# What a script does, as far as its text says.


def _writes(lines: tuple[Line, ...]) -> tuple[_Write, ...]:
    """Every place where a reward is written, in order."""
    values = _values(lines)
    literal, codes = _literals(values), _codes(values)
    found = []
    for place, line in enumerate(lines):
        for target in _targets(line):
            name = _NAME.sub(lambda match: literal.get(match[1], match[0]), target)
            if _REWARD.search(name):
                value, is_json = _value(line, codes), name.endswith(".json")
                found.append(_Write(line=line, place=place, value=value, is_json=is_json))
    return tuple(found)


def _values(lines: Iterable[Line]) -> Mapping[str, set[str]]:
    """All that each variable is set to."""
    values: dict[str, set[str]] = {}
    for line in lines:
        for name, value in assignments(line.command):
            values.setdefault(name, set()).add(value)
    return values


def _targets(line: Line) -> tuple[str, ...]:
    command = line.command
    tee = tuple(w for w in command.words[1:] if w[:1] != "-") if command.name == "tee" else ()
    return (*line.step.writes, *tee)


def _literals(values: Mapping[str, set[str]]) -> Mapping[str, str]:
    """Variables that have one value throughout, and it is written down."""
    ones = {name: next(iter(found)) for name, found in values.items() if len(found) == 1}
    return {name: value for name, value in ones.items() if "$" not in value}


def _value(line: Line, codes: frozenset[str]) -> str:
    command = line.command
    if command.name == "tee" and line.step.before:
        command = line.step.before[-1]
    text = " ".join(w for w in command.words[1:] if w not in ("-n", "-e", "%s\\n", "%s", "%d\\n"))
    if command.name not in ("echo", "printf", "cat"):
        return ""
    text = text or command.text.strip()
    variable = _NAME.fullmatch(text)
    if _STATUS.fullmatch(text) or (variable and variable[1] in codes):
        return "status"
    return "1" if _ONE.fullmatch(text) else "0" if _ZERO.fullmatch(text) else ""


def _codes(values: Mapping[str, set[str]]) -> frozenset[str]:
    """The variables that hold nothing but exit codes."""
    return frozenset(n for n, found in values.items() if all(map(_STATUS.fullmatch, found)))


def _runs(line: Line) -> bool:
    """Whether a command runs tests, or anything else of the repository."""
    command = line.command
    first = command.words[0] if command.words else ""
    modules = command.name in ("python", "python3") and "-m" in command.words
    return command.name in _RUNNERS or first.startswith("./") or modules


def runners(script: str) -> tuple[str, ...]:
    """The programs that a verifier runs tests with, as it names them."""
    found = dict[str, None]()
    for command in commands(parse_shell(script)):
        words = list(command.words)
        while words and words[0].rpartition("/")[2] in _WRAPPERS:
            words = [w for w in words[1:] if not w.startswith("-") and not _DURATION.fullmatch(w)]
        if words and (words[0].startswith("./") or words[0].rpartition("/")[2] in _RUNNERS):
            found[words[0]] = None
    return tuple(found)


def _first_run(lines: tuple[Line, ...]) -> int:
    return next((i for i, line in enumerate(lines) if _runs(line)), len(lines))


# Checks.


def _exit_code(task: Content) -> Iterator[Spot]:
    lines = task.graded
    for place, line in enumerate(lines):
        if not line.step.zero:
            continue
        names = [n for n, value in line.command.assigns if _STATUS.fullmatch(value)]
        if names and not (line.step.sure and _decides(names[0], lines[place + 1 :])):
            continue
        if names or line.command.name in _TESTERS:
            code = "$?" if not names else f"{names[0]}=$?"
            why = f"the command before it ends in {line.step.zero}"
            yield _spot(line, f"`{code}` is always 0: {why}")


def _decides(name: str, later: tuple[Line, ...]) -> bool:
    """Whether a variable is looked at before it surely has another value."""
    for line in later:
        words = line.command.words
        if line.command.name in (*_TESTERS, "echo", "printf") and any(
            match[1] == name for word in words for match in _NAME.finditer(word)
        ):
            return line.command.name in _TESTERS or any(map(_REWARD.search, line.step.writes))
        if line.step.sure and any(n == name for n, _ in line.command.assigns):
            return False
    return False


def _inverted(task: Content) -> Iterator[Spot]:
    for write in _writes(task.graded):
        if write.value == "status":
            message = "writes the exit code as the reward: 1 where the tests fail"
            yield _spot(write.line, message)


def _no_default(task: Content) -> Iterator[Spot]:
    lines = task.graded
    writes = _writes(lines)
    first_run = _first_run(lines)
    trapped = any(
        line.command.name == "trap" and _REWARD.search(" ".join(line.command.words))
        for line in lines[:first_run]
    )
    default = any(w.sure and w.value == "0" and w.place < first_run for w in writes)
    if writes and not default and not trapped:
        message = "is the first reward: a script that ends before it leaves none, or an old one"
        yield _spot(writes[0].line, message)


def _early(task: Content) -> Iterator[Spot]:
    lines = task.graded
    last_run = max((i for i, line in enumerate(lines) if _runs(line)), default=-1)
    stops = ("exit", "exec", "return")
    first_stop = next((i for i, line in enumerate(lines) if line.command.name in stops), len(lines))
    for write in _writes(lines):
        if write.value != "1" or not write.sure or write.line.step.tested:
            continue
        if last_run > write.place:
            yield _spot(write.line, "writes the reward 1 before the tests run")
        elif not write.line.step.errexit and first_stop > write.place:
            yield _spot(write.line, "writes the reward 1 whatever came before")


def _two_rewards(task: Content) -> Iterator[Spot]:
    writes = _writes(task.graded)
    for write in writes:
        if write.is_json and any(not other.is_json for other in writes):
            message = "writes reward.json beside reward.txt, and runners believe the first"
            yield _spot(write.line, message)
            return


def _stale(task: Content) -> Iterator[Spot]:
    lines = task.graded
    for place, line in enumerate(lines):
        if not _collects(line) or not any(map(_runs, lines[:place])):
            continue
        last_run = max(i for i, earlier in enumerate(lines[:place]) if _runs(earlier))
        if not any(_deletes(earlier) for earlier in lines[:last_run]):
            yield _spot(line, f"{line.shown} takes reports that may be from before the run")
            return


def _collects(line: Line) -> bool:
    words = " ".join(line.command.words[1:])
    takes = line.command.name in ("find", "cp", "rsync", "mv", "tar", "cat")
    return takes and _REPORTS.search(words) is not None and not _deletes(line)


def _deletes(line: Line) -> bool:
    words = line.command.words
    removes = line.command.name == "rm" or (line.command.name == "find" and "rm" in words)
    found = removes or "-delete" in words or any(c.name == "rm" for c in _piped(line))
    about = " ".join((*words, *(w for c in line.step.before for w in c.words)))
    whole = re.search(r"\b(?:build|target)(?:/|\b)", about) is not None
    return found and (_REPORTS.search(about) is not None or whole)


def _piped(line: Line) -> Iterator[Command]:
    for command in line.step.after:
        if command.name == "xargs":
            yield Command(line=command.line, words=tuple(w for w in command.words if w == "rm"))


def _unchecked_patch(task: Content) -> Iterator[Spot]:
    for line in task.graded:
        command = line.command
        applies = command.name == "patch" or (
            command.name == "git" and {"apply", "am"} & set(command.words[1:])
        )
        if applies and line.step.dropped and "--check" not in command.words:
            about = " ".join((*line.words, *command.reads))
            if _TESTS_FOLDER.search(about):
                message = f"{line.shown}: when it fails the script goes on without it"
                yield _spot(line, message)


def _tools(task: Content) -> Iterator[Spot]:
    on = [stage.image for stage in stages(task.dockerfile or ())]
    if not on or on[-1] is None or not _MINIMAL.fullmatch(on[-1]):
        return
    packages = [package for line in task.built for package in installs(line)]
    copied = any("--from" in i.arguments for i in task.dockerfile or () if i.name == "COPY")
    asked = {
        w for line in task.graded if line.name in ("command", "which", "type") for w in line.words
    }
    for tool in sorted(tools_of(task.graded) - asked):
        if not copied and not any(provides(tool, package) for package in packages):
            line = next(line for line in task.graded if line.name == tool)
            yield _spot(line, f"runs {tool}, which no line of the Dockerfile installs")


def _empty_run(task: Content) -> Iterator[Spot]:
    counted = _counted(task.graded)
    for line in task.graded:
        flag = next((w for w in line.command.words if _EMPTY_FLAGS.fullmatch(w)), "")
        if flag and _runs(line):
            yield _spot(line, f"with {flag} a run of no tests ends with 0")
        elif not counted and _counts_nothing(line):
            yield _spot(line, f"{line.shown} ends with 0 where there is no such test")


def _counts_nothing(line: Line) -> bool:
    """Whether a command's tests are chosen by a name, and none of that name is no failure."""
    words = line.command.words
    if line.command.name == "go" and "test" in words[1:2]:
        return True
    if line.command.name != "cargo" or "test" not in words[1:2] or "--no-run" in words:
        return False
    own = words[2 : words.index("--")] if "--" in words else words[2:]
    valued = ("-p", "--package", "--test", "--features", "--manifest-path", "--bin", "--example")
    values = {i + 1 for i, word in enumerate(own) if word in valued}
    named = [w for i, w in enumerate(own) if not w.startswith("-") and i not in values]
    after = [w for w in words[len(own) + 3 :] if not w.startswith("-")]
    return bool(named or after)


def _counted(lines: tuple[Line, ...]) -> bool:
    """Whether a script looks at how many tests ran."""
    return any(
        line.command.name in _SEARCHERS and re.search("running|passed|tests", " ".join(line.words))
        for line in lines
    )


def _exit_code_only(task: Content) -> Iterator[Spot]:
    lines = task.graded
    if any(line.command.name in _SEARCHERS or _collects(line) for line in lines):
        return
    for place, line in enumerate(lines[:-1]):
        if _runs(line) and not line.step.dropped and _takes_code(lines[place + 1 :]):
            yield _spot(line, f"only the exit code of {line.shown} decides")
            return


def _takes_code(later: tuple[Line, ...]) -> bool:
    """Whether the exit code that comes first is what a reward hangs on."""
    names = [n for n, value in later[0].command.assigns if _STATUS.fullmatch(value)]
    if later[0].step.zero or not names:
        return later[0].command.name in _TESTERS and _asks(later[0])
    return _decides(names[0], later[1:])


def _asks(line: Line) -> bool:
    return any(_STATUS.search(word) for word in line.command.words)


def _installs(task: Content) -> Iterator[Spot]:
    for line in task.graded:
        words = line.command.words
        known = _PACKAGES.get(line.command.name, frozenset())
        first = [w for w in words[1:] if not w.startswith("-")][:1]
        bare_yarn = line.command.name == "yarn" and len(words) == 1
        fetches = (first and first[0] in known) or bare_yarn or downloads_from(line)
        if fetches and not {"--offline", "--no-index"} & set(words):
            yield _spot(line, f"{line.shown} needs the network when it grades")


def _path(task: Content) -> Iterator[Spot]:
    fixed = False
    for line in task.graded:
        command = line.command
        fixed |= any(name == "PATH" and "$PATH" not in v for name, v in assignments(command))
        if command.name in ("source", ".") and any(map(_HOME.match, command.words[1:])):
            yield _spot(line, f"{line.shown}: an agent can write what it reads there")
        bare = bool(command.words) and command.words[0] in _INTERPRETERS
        about = " ".join((*line.words, *command.reads))
        if bare and not fixed and _TESTS_FOLDER.search(about):
            message = f"{line.shown} runs whatever {command.name} is first in PATH"
            yield _spot(line, message)
            return


# Checks that look at branches.


def _branches(script: Script) -> Iterator[tuple[Script, Script]]:
    """(condition, branch) of every `if` in a script."""
    waiting = deque(script)
    while waiting:
        node = waiting.popleft()
        if isinstance(node, Block):
            if node.kind == "if":
                yield from zip(node.bodies[::2], node.bodies[1::2], strict=False)
            waiting.extend(n for body in node.bodies for n in body)
        elif isinstance(node, (Pipe, Chain)):
            waiting.extend(node.parts)


def _output(task: Content) -> Iterator[Spot]:
    for condition, branch in _branches(task.test_script):
        searches = [c for c in commands(condition) if c.name in _SEARCHERS]
        others = any(c.name in _TESTERS for c in commands(condition))
        if searches and not others and not _negated(condition) and _rewards(branch):
            search = searches[-1]
            message = f"`{' '.join(search.words)[:60]}` decides, and the tests' code prints too"
            yield Spot(file=TEST, where=f"line {search.line}", message=message)


def _negated(script: Script) -> bool:
    return any(isinstance(node, Pipe) and node.negated for node in script)


def _rewards(branch: Script) -> bool:
    """Whether a branch writes the reward 1."""
    return any(
        command.name in ("echo", "printf")
        and any(map(_REWARD.search, command.writes))
        and _ONE.fullmatch(" ".join(command.words[1:])) is not None
        for command in commands(branch)
    )


def _source_text(task: Content) -> Iterator[Spot]:
    for line in task.graded:
        command = line.command
        files = [w for w in line.words[2:] if _SOURCE.fullmatch(w) and not w.startswith("/tmp/")]  # noqa: S108
        if command.name in _SEARCHERS and line.step.tested and files and not line.step.before:
            yield _spot(line, f"looks for words in {files[-1]}, which another right fix may lack")


FOREIGN = ("own", "plain")
CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="verifier/exit-code",
        severity="error",
        why="An exit code that is always 0 rewards a build that is broken.",
        mend="Take the exit code of the command itself: no || true, and set -o pipefail.",
        find=_exit_code,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/inverted-reward",
        severity="error",
        why="Runners take the number for the reward, and 1 is the exit code of failing tests.",
        mend="Write 1 where the exit code is 0, and 0 else.",
        find=_inverted,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/early-reward",
        severity="error",
        why="A reward that stands before the tests ran is kept when they never end.",
        mend="Write 0 first, and 1 as the very last act, where all went well.",
        find=_early,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/no-default",
        severity="warning",
        why="A run without a reward isn't counted as unsolved: it drops out of the mean.",
        mend="Write 0 to /logs/verifier/reward.txt as the first act.",
        find=_no_default,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/two-rewards",
        severity="warning",
        why="Where both files are there, reward.json wins, whatever reward.txt says.",
        mend="Write one of them, and delete the other.",
        find=_two_rewards,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/stale-reports",
        severity="warning",
        why="Reports of an earlier run, or planted ones, score where the build never started.",
        mend="Delete the reports before the run: a build that fails early cleans nothing.",
        find=_stale,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/unchecked-patch",
        severity="error",
        why="An edit that blocks the hidden patch leaves the old tests, which may all pass.",
        mend="End with reward 0 when the patch fails; better, put the hidden files back first.",
        find=_unchecked_patch,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/missing-tool",
        severity="warning",
        why="Without its tools a verifier gives the reward that its fallback gives.",
        mend="Install it in the Dockerfile.",
        find=_tools,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/empty-run",
        severity="warning",
        why="An exit code of 0 from a run of no tests is rewarded like one of all tests.",
        mend="Demand tests: no such option, or look at how many ran.",
        find=_empty_run,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/exit-code-only",
        severity="note",
        why="The code under test runs in that process, and may end it with 0 before a test fails.",
        mend="Let the runner write a report, and compare it with the tests that must pass.",
        find=_exit_code_only,
        forms=("plain",),
    ),
    Check(
        id="verifier/output",
        severity="warning",
        why="The code under test can print what the verifier looks for.",
        mend="Compare a report that the runner writes with the tests that must pass.",
        find=_output,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/source-text",
        severity="warning",
        why="A test of the solution's words measures whether it was copied, not whether it works.",
        mend="Test what the program does.",
        find=_source_text,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/installs",
        severity="warning",
        why="What a server gives on the day decides with, and without a network nothing works.",
        mend="Install it in the Dockerfile.",
        find=_installs,
        forms=FOREIGN,
    ),
    Check(
        id="verifier/path",
        severity="warning",
        why="An agent can put a program of the same name earlier on PATH, or into the file.",
        mend="Set PATH=/usr/bin:/bin at the top, and read nothing from a home folder.",
        find=_path,
        forms=FOREIGN,
    ),
)
