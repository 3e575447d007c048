"""Generated datasets of the shape and size of a real one.

Thirteen files and about 1.06 MB a task, nearly all of it `expected_tests.json`: several thousand
test ids, which the tasks of one repository share. Eight repositories, twelve bases. The same number
gives the same bytes, and validation finds nothing.
"""

import difflib
import hashlib
import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kbench_build.runtime
from kbench_build.rules.shipped import SHIPPED

PROJECT = Path(__file__).parent.parent
LABEL = "dev.kbench.benchmark"

_RUNTIME = Path(str(kbench_build.runtime.__file__)).parent
_MARK = "generated"
_MADE_BY = "1"
_REPOSITORIES = (
    ("amber", "ledger", ("jdk17", "jdk11")),
    ("birch", "scheduler", ("jdk17",)),
    ("cedar", "markup", ("jdk17", "jdk21")),
    ("delta", "router", ("jdk17",)),
    ("ember", "queue", ("jdk17", "jdk8")),
    ("fjord", "geometry", ("jdk17",)),
    ("grove", "config", ("jdk17", "jdk21")),
    ("heron", "parser", ("jdk17",)),
)
_POOL = 5_200
_FEWEST, _USUAL, _MOST = 400, 1_700, 4_700
_ONLY_NEW_EVERY = 7

_AREAS = ("core", "storage", "transport", "codec", "planner", "session", "metrics", "runtime")
_KINDS = ("Service", "Repository", "Resolver", "Encoder", "Visitor", "Pipeline", "Cursor", "Buffer")
_VERBS = ("rejects", "keeps", "merges", "writes", "reorders", "restores", "resolves", "counts")
_THINGS = (
    "an empty document",
    "entries with the same key",
    "a «quoted» name",
    "nested containers",
    "a negative balance",
    "windows that overlap",
    "a trailing separator",
    "costs in $ and €",
)
_TIMES = (
    "when the connection was closed before the first page was read",
    "after a restart without a snapshot, and the journal holds nothing newer",
    "while another writer holds the lock on the same partition",
    "for every order in which the listeners were registered",
    "given a schema that is older than the reader's own by one version",
)

_TASK_TOML = """schema_version = "1.4"

[task]
name = "{namespace}/{task}"
description = "{owner}/{repo}: change {number}."

[metadata]
difficulty = "medium"
category = "bug-fix"

[metadata.source]
repository_owner = "{owner}"
repository_name = "{repo}"
repository_url = "https://example.org/{owner}/{repo}"
license = "Apache-2.0"
code_change_type = "pull_request"
code_change_id = "{number}"
code_change_url = "https://example.org/{owner}/{repo}/pull/{number}"
issue_urls = ["https://example.org/{owner}/{repo}/issues/{number}"]
base_commit = "{base}"

[environment]
build_timeout_sec = 1800.0
cpus = 4
memory_mb = 10240

[agent]
timeout_sec = 1800.0
network_mode = "allowlist"
allowed_hosts = ["repo.example.org", "plugins.example.org", "*.example.net"]

[verifier]
timeout_sec = 900.0
network_mode = "no-network"
"""
_DOCKERFILE = """FROM {namespace}/{repo}:{tag}
COPY check_git_changes.sh seal_git_history.sh prepare.sh /home/
RUN bash /home/prepare.sh
RUN bash /home/seal_git_history.sh /home/{repo} {base} none
WORKDIR /home/{repo}
"""
_PREPARE = """#!/bin/bash
set -euo pipefail
cd /home/{repo}
git reset --hard
git checkout --detach {base}
bash /home/check_git_changes.sh /home/{repo} {base}
./gradlew --offline clean test --continue >/tmp/warm-up.log 2>&1 || true
bash /home/check_git_changes.sh /home/{repo} {base}
"""
_TEST_SH = """#!/bin/bash
set -uo pipefail
echo 0 >/logs/verifier/reward.txt
cd /home/{repo} || exit 1
git apply --whitespace=nowarn /tests/test.patch || exit 1
find . -path '*/build/test-results/*' -name 'TEST*.xml' -delete
./gradlew --offline clean test --continue
bash /tests/kotlin_logs_collector.sh /home/{repo} /logs/verifier/reports
python3 /tests/junit_compare.py /logs/verifier/reports /tests/expected_tests.json
"""
_BASE_DOCKERFILE = """FROM debian:bookworm-slim@sha256:{pin}
RUN apt-get update && apt-get install --yes git openjdk-17-jdk-headless python3
WORKDIR /home/{repo}
"""


@dataclass(frozen=True, kw_only=True)
class _Repository:
    """One upstream: its name, its bases' tags, and its tests' ids, each as JSON writes it."""

    owner: str
    name: str
    tags: Sequence[str]
    tests: Sequence[bytes]


def namespace_of(tasks: int) -> str:
    """The image namespace of the generated dataset with so many tasks."""
    return f"kbench-speed-{tasks}"


def make_dataset(root: Path, tasks: int, *, shipped: bool = False) -> None:
    """Generate the dataset, unless it is there. `root` is its own folder and nothing else's.

    Its tasks have a verifier of their own, or with `shipped` the one that comes with this system.
    """
    mark = root / _MARK
    wanted = f"{_MADE_BY} {tasks} {shipped}\n"
    if mark.is_file() and mark.read_text() == wanted:
        _write_dodo(root)
        return
    if root.exists():
        shutil.rmtree(root)
    repositories = [
        _Repository(owner=owner, name=name, tags=tags, tests=_ids(name))
        for owner, name, tags in _REPOSITORIES
    ]
    _write_frame(root, repositories, tasks)
    for index in range(tasks):
        repository = repositories[index % len(repositories)]
        _write_task(root, repository, index, namespace_of(tasks), shipped=shipped)
    mark.write_text(wanted)


def _write_frame(root: Path, repositories: Sequence[_Repository], tasks: int) -> None:
    """Everything that belongs to no task."""
    namespace = namespace_of(tasks)
    _write_dodo(root)
    settings = (
        f'[dataset]\nname = "generated-{tasks}"\nversion = "1.0.0"\nnamespace = "{namespace}"\n'
        '[release]\nrequire = ["validate"]\n'
    )
    _write(root / "kbench.toml", settings.encode())
    lines = [f"{r.name} {tag} Dockerfile.{tag}\n" for r in repositories for tag in r.tags]
    _write(root / "bases" / "manifest", "".join(lines).encode())
    for repository in repositories:
        for tag in repository.tags:
            pin = hashlib.sha256(f"{repository.name}:{tag}".encode()).hexdigest()
            text = _BASE_DOCKERFILE.format(pin=pin, repo=repository.name)
            _write(root / "bases" / repository.name / f"Dockerfile.{tag}", text.encode())


def _write_dodo(root: Path) -> None:
    _write(root / "dodo.py", (PROJECT / "dodo.py").read_bytes())


def _write_task(
    root: Path, repository: _Repository, index: int, namespace: str, *, shipped: bool
) -> None:
    number = 100 + index
    task = f"{repository.owner}_{repository.name}-{number}"
    words = {
        "namespace": namespace,
        "task": task,
        "owner": repository.owner,
        "repo": repository.name,
        "tag": repository.tags[index % len(repository.tags)],
        "number": str(number),
        "base": hashlib.sha1(task.encode()).hexdigest(),
    }
    contents = {
        "task.toml": _TASK_TOML,
        "environment/Dockerfile": _DOCKERFILE,
        "environment/prepare.sh": _PREPARE,
        "tests/test.sh": _TEST_SH,
    }
    files = {path: text.format(**words).encode() for path, text in contents.items()}
    files |= dict(_shared_files())
    files["instruction.md"] = _instruction(task)
    tests = f"src/test/kotlin/Part{number}Test.kt"
    files["solution/fix.patch"] = _patch(f"src/main/kotlin/Part{number}.kt", task)
    files["tests/test.patch"] = _patch(tests, task)
    if shipped:
        files |= {place: (_RUNTIME / name).read_bytes() for place, name in SHIPPED.items()}
        files["tests/verify.json"] = _verify(words, tests, task)
    files["tests/expected_tests.json"] = _expected(repository.tests, index)
    for path, content in files.items():
        _write(root / "tasks" / task / path, content)


def _shared_files() -> Iterator[tuple[str, bytes]]:
    for place in (
        "environment/check_git_changes.sh",
        "environment/seal_git_history.sh",
        "solution/solve.sh",
        "tests/junit_compare.py",
        "tests/kotlin_logs_collector.sh",
    ):
        yield place, (_RUNTIME / place.rpartition("/")[2]).read_bytes()


def _instruction(task: str) -> bytes:
    chance = random.Random(task)
    sentences = (
        f"{chance.choice(_KINDS)} {chance.choice(_VERBS)} {chance.choice(_THINGS)} "
        f"{chance.choice(_TIMES)}.\n"
        for _ in range(chance.randint(6, 30))
    )
    return f"# {task}\n\n{''.join(sentences)}".encode()


def _verify(words: Mapping[str, str], tests: str, task: str) -> bytes:
    """The data of the shipped verifier."""
    before, after = (f"100644 {_blob(lines)}" for lines in _sides(tests, task))
    value = {
        "version": 1,
        "workdir": f"/home/{words['repo']}",
        "base_commit": words["base"],
        "command": ["./gradlew", "--offline", "clean", "test", "--continue"],
        "environment": {"PATH": "/usr/bin:/bin"},
        "timeout_sec": 600,
        "reports": ["**/build/test-results/test/TEST-*.xml"],
        "hidden": {tests: {"base": before, "after": after}},
        "protected": {"globs": ["**/src/test/**", "build.gradle"], "files": {}},
    }
    return json.dumps(value).encode()


def _sides(path: str, task: str) -> tuple[Sequence[str], Sequence[str]]:
    """The lines of a file before and after a task's change."""
    chance = random.Random(f"{path} {task}")
    before = [f"    val part{n} = build({chance.randint(0, 9999)})\n" for n in range(120)]
    after = list(before)
    for line in chance.sample(range(0, 120, 8), 6):
        after[line : line + 1] = [f"    val fixed{line} = check({line}, {chance.random()})\n"] * 2
    return before, after


def _patch(path: str, task: str) -> bytes:
    """A patch of one file as git writes it, with the true ids of its blobs."""
    before, after = _sides(path, task)
    ids = f"{_blob(before)}..{_blob(after)} 100644"
    head = f"diff --git a/{path} b/{path}\nindex {ids}\n"
    return (head + "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))).encode()


def _blob(lines: Sequence[str]) -> str:
    content = "".join(lines).encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _ids(repository: str) -> Sequence[bytes]:
    """The ids of a repository's tests, `classname.name`, each as a JSON string; sorted."""
    chance = random.Random(repository)
    found: set[str] = set()
    while len(found) < _POOL:
        area, kind = chance.choice(_AREAS), chance.choice(_KINDS)
        name = f"{chance.choice(_VERBS)} {chance.choice(_THINGS)} {chance.choice(_TIMES)}"
        nested = chance.random() < 0.5
        container = f"With the listener {chance.randint(1, 60)} -- " if nested else ""
        package = f"org.example.{repository}.{area}.internal"
        found.add(f"{package}.{area.title()}{kind}Test.{container}{name}")
    return [json.dumps(name, ensure_ascii=False).encode() for name in sorted(found)]


def _expected(pool: Sequence[bytes], index: int) -> bytes:
    """`expected_tests.json` over a stretch of the repository's tests.

    Every seventh task has no failing tests, only new ones.
    """
    chance = random.Random(index)
    count = round(chance.triangular(_FEWEST, _MOST, _USUAL))
    begin = chance.randrange(len(pool) - count)
    tests = pool[begin : begin + count]
    only_new = index % _ONLY_NEW_EVERY == 0
    turned = count * (50 if only_new else 99) // 100 - 1
    kept, fixed = tests[:turned], tests[turned:][: 1_100 if only_new else 12]
    failed, new = ([], fixed) if only_new else (fixed, [])
    # The same tests as those that passed before, in another order.
    half = len(kept) // 2
    turned_round = [*kept[half:], *kept[:half]]
    lists = {"f2p_tests": failed, "p2p_tests": turned_round, "s2p_tests": [], "n2p_tests": new}
    before = {"passed_tests": kept, "failed_tests": [], "skipped_tests": []}
    parts = [_list(name, ids, 2) for name, ids in lists.items()]
    parts.append(_result("test_patch_result", {**before, "failed_tests": failed}))
    parts.append(_result("run_result", before))
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


def _result(name: str, lists: dict[str, Sequence[bytes]]) -> bytes:
    inner = b",\n".join(_list(status, ids, 4) for status, ids in lists.items())
    return b'  "%s": {\n%s\n  }' % (name.encode(), inner)


def _list(name: str, ids: Sequence[bytes], indent: int) -> bytes:
    space = b" " * indent
    head = b'%s"%s": [' % (space, name.encode())
    if not ids:
        return head + b"]"
    line = b"\n" + space + b"  "
    return head + line + (b"," + line).join(ids) + b"\n" + space + b"]"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
