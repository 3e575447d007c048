"""One task as its files show it: what was read, parsed as far as it parses, and its form.

Promises: never raises, whatever the bytes; what can't be parsed is None and has an entry in
`syntax`. Reading the files, with the limits given here, is left to the rim.

A task has one of three forms. *shipped*: graded by the verifier that this project ships (its data
is `tests/verify.json`). *own*: expected tests or a hidden patch, graded by a `test.sh` of its own.
*plain*: any other Harbor task, where the exit code or the reward of its `test.sh` is all there is.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from kbench_build.model import Base, FolderEntry
from kbench_build.rules.build_context import sources
from kbench_build.rules.build_lines import Line, build_lines, script_lines
from kbench_build.rules.dockerfile import Instruction, parse_dockerfile
from kbench_build.rules.expected_tests import Expected, expected_of
from kbench_build.rules.names import (
    NONE,
    SOURCE,
    Names,
    Used,
    kept_words,
    names_of,
    used_in,
    words_of,
)
from kbench_build.rules.origin import Origin, origin_of
from kbench_build.rules.parsing import Flaw, parse_json, parse_toml
from kbench_build.rules.patches import Patch, parse_patch
from kbench_build.rules.shell import Script, parse_shell

Form = Literal["shipped", "own", "plain"]

TASK = "task.toml"
INSTRUCTION = "instruction.md"
DOCKERFILE = "environment/Dockerfile"
FIX = "solution/fix.patch"
SOLVE = "solution/solve.sh"
TEST_PATCH = "tests/test.patch"
TEST = "tests/test.sh"
EXPECTED = "tests/expected_tests.json"
VERIFY = "tests/verify.json"
QUARANTINE = "tests/quarantine.json"

MIB = 1 << 20
_LIMITS: Mapping[str, int] = {
    TASK: MIB,
    INSTRUCTION: 4 * MIB,
    DOCKERFILE: MIB,
    FIX: 64 * MIB,
    TEST_PATCH: 64 * MIB,
    EXPECTED: 64 * MIB,
    VERIFY: 16 * MIB,
    QUARANTINE: MIB,
}
_SCRIPT_LIMIT = MIB
_PATCH_LIMIT = 64 * MIB
# Of a plain task's own test files, those of usual size are read, up to so many bytes in all.
_TEST_LIMIT = MIB // 4
_TESTS_LIMIT = 4 * MIB
_READ = re.compile(
    r"(?:environment|solution|tests)/[^/]+\.(?:sh|py)|environment/[^/]+\.patch"
    r"|environment/docker-compose\.ya?ml|environment/[^/]*[Dd]ockerfile[^/]*"
)


def limit(path: str) -> int | None:
    """The most bytes that are read of a task's file; None when its content isn't looked at."""
    if path in _LIMITS:
        return _LIMITS[path]
    if _READ.fullmatch(path):
        return _PATCH_LIMIT if path.endswith(".patch") else _SCRIPT_LIMIT
    return None


def test_files(files: Mapping[str, FolderEntry]) -> tuple[FolderEntry, ...]:
    """The files that a plain task's hidden tests are, as far as they are worth reading."""
    found: list[FolderEntry] = []
    total = 0
    for path, entry in files.items():
        size = entry.size
        is_test = entry.kind == "file" and path.startswith("tests/") and SOURCE.fullmatch(path)
        if is_test and size <= _TEST_LIMIT and total + size <= _TESTS_LIMIT:
            found.append(entry)
            total += size
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Around:
    """What surrounds a task in its dataset: the image namespace, the bases, the shipped files.

    `shipped` maps the path of each file that is the same in every task to its content, `recipes`
    the path of each base's Dockerfile to its text.
    """

    namespace: str
    bases: tuple[Base, ...]
    shipped: Mapping[str, bytes]
    recipes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Content:
    """One task. `data` holds what was read, `unread` why a file that should have been wasn't.

    `syntax` are files that don't parse, `misfits` values that don't fit their schema, `unknown`
    keys that no schema names. `at_base` are names that the upstream repository holds at the base,
    of those that were asked for; None where no repository was at hand. `later` are ids in the
    instruction, as written there, of commits that the base doesn't reach.
    """

    id: str
    around: Around
    files: Mapping[str, FolderEntry]
    data: Mapping[str, bytes]
    unread: tuple[Flaw, ...]
    form: Form
    config: Mapping[str, Any] | None
    expected_json: Mapping[str, Any] | None
    verify: Mapping[str, Any] | None
    quarantine: Mapping[str, Any] | None
    syntax: tuple[Flaw, ...]
    misfits: tuple[Flaw, ...] = ()
    unknown: tuple[Flaw, ...] = ()
    at_base: frozenset[bytes] | None = None
    later: frozenset[str] = frozenset()

    @cached_property
    def expected(self) -> Expected | None:
        """The expected tests, None where there are none that fit their schema."""
        if self.expected_json is None or self.has_misfits(EXPECTED):
            return None
        return expected_of(self.expected_json)

    @cached_property
    def origin(self) -> Origin:
        """Where the task comes from."""
        return origin_of(self.id, self.config)

    @cached_property
    def fix(self) -> Patch | None:
        """The gold patch, None where it wasn't read."""
        return self.patch(FIX)

    @cached_property
    def test(self) -> Patch | None:
        """The hidden patch, None where it wasn't read."""
        return self.patch(TEST_PATCH)

    @cached_property
    def fix_names(self) -> Names:
        """The names that the gold patch declares and knows."""
        return names_of(self.fix, self.data[FIX]) if self.fix else NONE

    @cached_property
    def hidden_lines(self) -> tuple[bytes, ...]:
        """The lines of the hidden tests: what the hidden patch adds, or a plain task's own files.

        Empty where none are known.
        """
        if self.test is not None:
            return tuple(line for file in self.test.files for line in file.added)
        tests = (data for path, data in self.data.items() if path in self._test_paths)
        return tuple(line for data in tests for line in data.split(b"\n"))

    @cached_property
    def hidden_words(self) -> frozenset[bytes]:
        """All that looks like a name in the hidden tests, in lines that they keep too."""
        kept = kept_words(self.data[TEST_PATCH]) if self.test else frozenset()
        return words_of(b"\n".join(self.hidden_lines)) | kept

    @cached_property
    def hidden_names(self) -> Used:
        """What the code of the hidden tests does with names."""
        kept = kept_words(self.data[TEST_PATCH]) if self.test else frozenset()
        return used_in(self.hidden_lines, known=kept)

    @cached_property
    def instruction_words(self) -> frozenset[bytes]:
        """All that looks like a name in the instruction."""
        return words_of(self.data.get(INSTRUCTION, b""))

    @property
    def _test_paths(self) -> frozenset[str]:
        plain = self.form == "plain"
        return frozenset(entry.path for entry in test_files(self.files)) if plain else frozenset()

    @cached_property
    def dockerfile(self) -> tuple[Instruction, ...] | None:
        """The instructions of the task's Dockerfile, None where it wasn't read."""
        data = self.data.get(DOCKERFILE)
        return None if data is None else parse_dockerfile(data.decode("utf-8", "replace"))

    @cached_property
    def copied(self) -> tuple[str, ...]:
        """The paths and patterns of the build context that the Dockerfile copies."""
        return sources(self.dockerfile or ())

    @cached_property
    def built(self) -> tuple[Line, ...]:
        """The commands that its image's build runs, those of scripts beside the Dockerfile too.

        Scripts that ship with this project are left out: they are the same everywhere.
        """
        return build_lines(DOCKERFILE, self.dockerfile or (), self._scripts("environment/"))

    @cached_property
    def graded(self) -> tuple[Line, ...]:
        """The commands of `tests/test.sh` and of the scripts beside it that it calls."""
        text = self.data.get(TEST, b"").decode("utf-8", "replace")
        return _lines_of(text, tuple(self._scripts("tests/").items()))

    @cached_property
    def test_script(self) -> Script:
        """The statements of `tests/test.sh`."""
        return parse_shell(self.data.get(TEST, b"").decode("utf-8", "replace"))

    def _scripts(self, folder: str) -> Mapping[str, tuple[str, str]]:
        return {
            path.rpartition("/")[2]: (path, data.decode("utf-8", "replace"))
            for path, data in self.data.items()
            if path.startswith(folder) and path.endswith(".sh")
            if self.around.shipped.get(path) != data
        }

    @property
    def documents(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """(path, name of its schema, value) of each document that parses."""
        values = (
            (TASK, "task", self.config),
            (EXPECTED, "expected_tests", self.expected_json),
            (VERIFY, "verify", self.verify),
            (QUARANTINE, "quarantine", self.quarantine),
        )
        for path, schema, value in values:
            if value is not None:
                yield path, schema, value

    def patch(self, path: str) -> Patch | None:
        """A file of the task, read as a patch."""
        data = self.data.get(path)
        return None if data is None else parse_patch(data)

    def below(self, folder: str) -> tuple[str, ...]:
        """The paths below a folder of the task, relative to it, sorted."""
        head = f"{folder}/"
        return tuple(sorted(p[len(head) :] for p in self.files if p.startswith(head)))

    def has_misfits(self, path: str) -> bool:
        """Whether a file's values don't fit its schema, so that its parts can't be relied on."""
        return any(flaw.file == path for flaw in self.misfits)


@lru_cache(maxsize=8)
def _lines_of(text: str, beside: tuple[tuple[str, tuple[str, str]], ...]) -> tuple[Line, ...]:
    """The commands of a `test.sh` and the scripts beside it, which many tasks have in common."""
    return script_lines(TEST, text, dict(beside))


def form_of(files: Mapping[str, FolderEntry], data: Mapping[str, bytes], around: Around) -> Form:
    """Which form a task has, from its files."""
    if VERIFY in files or _same(TEST, data, around):
        return "shipped"
    return "own" if EXPECTED in files or TEST_PATCH in files else "plain"


def _same(path: str, data: Mapping[str, bytes], around: Around) -> bool:
    return path in around.shipped and data.get(path) == around.shipped[path]


def understand(
    task: str,
    *,
    around: Around,
    files: Mapping[str, FolderEntry],
    data: Mapping[str, bytes],
    unread: tuple[Flaw, ...],
) -> Content:
    """Put together what was read of a task, parsed as far as it parses."""
    syntax: list[Flaw] = []
    return Content(
        id=task,
        around=around,
        files=files,
        data=data,
        unread=unread,
        form=form_of(files, data, around),
        config=_parsed(TASK, data, syntax, parse_toml),
        expected_json=_parsed(EXPECTED, data, syntax, parse_json),
        verify=_parsed(VERIFY, data, syntax, parse_json),
        quarantine=_parsed(QUARANTINE, data, syntax, parse_json),
        syntax=tuple(syntax),
    )


def with_schemas(
    content: Content, *, misfits: tuple[Flaw, ...], unknown: tuple[Flaw, ...]
) -> Content:
    """The same task, with what its schemas say of its documents."""
    return replace(content, misfits=misfits, unknown=unknown)


def _parsed(
    path: str,
    data: Mapping[str, bytes],
    syntax: list[Flaw],
    parse: Callable[[str, bytes], Mapping[str, Any] | Flaw],
) -> Mapping[str, Any] | None:
    if path not in data:
        return None
    value = parse(path, data[path])
    if isinstance(value, Flaw):
        syntax.append(value)
        return None
    return value
