"""Drafts tests/verify.json from what was recognised in a task of the older shape.

Promises: what the gold patch changes is never protected. Leaves hidden and protected files, which
come from the upstream repository, to `verifier_data`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbench_build.rules.verifier_data import BUILD_FILES
from kbench_build.runtime.verify_checkout import Globs

# Whatever the build tool: JUnit is steered by these from wherever they are on the class path.
_ALWAYS = ("**/junit-platform.properties", "**/META-INF/services/org.junit.*")
_MORE_BUILD_FILES = ("**/gradle/*.versions.toml", "mvnw")
_JVM_TOOLS = frozenset({"gradlew", "gradle", "mvnw", "mvn", "amper"})
_TEST_SET = re.compile(r"src/[^/]*[tT]est[^/]*(?=/)")
_TEST_FOLDER = re.compile(r"(?:[^/]+/)*?(?:tests?|__tests__|spec)(?=/)", re.IGNORECASE)
_OF_ITS_TIME = 0.9


def drafted(
    *,
    workdir: str,
    base: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    verifier_sec: float,
    reports: Sequence[str],
    hidden: Iterable[str],
    fix: Iterable[str],
) -> dict[str, Any]:
    """verify.json's value, without what comes from upstream.

    `verifier_sec` is the verifier's whole time, `hidden` and `fix` the paths of the two patches.
    """
    return {
        "version": 1,
        "workdir": workdir,
        "base_commit": base,
        "command": list(command),
        "environment": dict(environment),
        "timeout_sec": max(1, int(verifier_sec * _OF_ITS_TIME)),
        "reports": list(reports),
        "hidden": {},
        "protected": {"globs": list(protected_globs(command, hidden, fix)), "files": {}},
    }


def protected_globs(
    command: Sequence[str], hidden: Iterable[str], fix: Iterable[str]
) -> tuple[str, ...]:
    """What the verifier is to put back: the tests and what steers the build, the fix's files aside.

    `hidden` are the paths of the hidden patch: their test sets are protected as a whole.
    """
    globs = dict.fromkeys([*_tests(hidden), *_build(command), *_ALWAYS])
    chosen = Globs(list(globs))
    return (*globs, *(f"!{path}" for path in sorted(set(fix)) if chosen.matches(path)))


def _build(command: Sequence[str]) -> Iterator[str]:
    programs = [word.removeprefix("./") for word in command[:2]]
    if any(program.rpartition("/")[2] in _JVM_TOOLS for program in programs):
        yield "**/src/test/**"
        yield from (*BUILD_FILES, *_MORE_BUILD_FILES)
    elif command[:1] and (command[0].startswith("./") or command[0] in ("bash", "sh", "python3")):
        script = programs[0] if command[0].startswith("./") else "".join(programs[1:2])
        if script and not script.startswith(("-", "/")):
            yield script


def _tests(hidden: Iterable[str]) -> Iterator[str]:
    for path in sorted(hidden):
        if found := _TEST_SET.search(path):
            yield f"**/{found[0]}/**"
        elif found := _TEST_FOLDER.match(path):
            yield f"{found[0]}/**"
