"""What validation must find, one entry a defect; and what only looks like one and must pass."""

import json
import os
from collections.abc import Callable
from typing import Any

from tests.samples import BASE, SOURCE, SPEC, Sample, patches

Break = Callable[[Sample], None]


def toml(old: str, new: str) -> Break:
    return lambda s: s.edit("task.toml", old, new)


def edit(path: str, old: str, new: str) -> Break:
    return lambda s: s.edit(path, old, new)


def write(path: str, content: str | bytes) -> Break:
    return lambda s: s.write(path, content)


def remove(path: str) -> Break:
    return lambda s: s.remove(path)


def expect(change: Callable[[dict[str, Any]], object]) -> Break:
    return lambda s: s.change("tests/expected_tests.json", change)


def verify(change: Callable[[dict[str, Any]], object]) -> Break:
    return lambda s: s.change("tests/verify.json", change)


def link(path: str, target: str) -> Break:
    return lambda s: (s.task / path).symlink_to(target)


def both(*breaks: Break) -> Break:
    def apply(sample: Sample) -> None:
        for break_it in breaks:
            break_it(sample)

    return apply


def reverse_fix(sample: Sample) -> None:
    """What a reversed fix in the build context looks like: added lines are removed ones."""
    lines = patches()[0].splitlines(keepends=True)
    swapped = [
        (b"-" if line[:1] == b"+" else b"+") + line[1:]
        if line[:1] in (b"+", b"-") and line[:3] not in (b"+++", b"---")
        else line
        for line in lines
    ]
    sample.write("environment/bug.patch", b"".join(swapped))
    sample.edit("environment/Dockerfile", "WORKDIR", "COPY bug.patch /tmp/\nWORKDIR")


# Where a reader of TOML stands when it gives up on one endless value.
AT_THE_END = "line 1, column 5005"
HEAD = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
BINARY_STUB = "diff --git a/x.png b/x.png\nBinary files a/x.png and b/x.png differ\n"

MOVED = (
    "diff --git a/src/test/A.kt b/src/test/B.kt\nsimilarity index 100%\n"
    "rename from src/test/A.kt\nrename to src/test/B.kt\n"
)


def move_a_test(sample: Sample) -> None:
    """A hidden patch that only moves a file, and the data that says so."""
    blob = "100644 " + "1" * 40
    hidden = {
        "src/test/A.kt": {"base": blob, "after": None},
        "src/test/B.kt": {"base": None, "after": blob},
    }
    sample.write("tests/test.patch", MOVED)
    sample.change("tests/verify.json", lambda v: v.update(hidden=hidden))


def quarantine(
    *ids: str, reason: str = "Two threads race for one port.", asked: bool = True
) -> Break:
    """Put these tests in quarantine; `asked`: verify.json says so."""
    entry = {"reason": reason, "since": "2026-11-29", "ratio": "2/3"}
    content = json.dumps({"tests": [{"id": i, **entry} for i in ids]})
    put = write("tests/quarantine.json", content)
    return both(put, verify(lambda v: v.update(quarantine=True))) if asked else put


# (rule, form, how to break it, the file and place where it fires)
DEFECTS: list[tuple[str, str, Break, str, str]] = [
    (
        "quarantine/unknown-id",
        "shipped",
        quarantine("AdderTest.zero", "AdderTest.gone"),
        "tests/quarantine.json",
        "tests[1]",
    ),
    (
        "quarantine/repeated",
        "shipped",
        quarantine("AdderTest.zero", "AdderTest.zero"),
        "tests/quarantine.json",
        "tests[1]",
    ),
    (
        "quarantine/reason",
        "shipped",
        quarantine("AdderTest.zero", reason=" TODO. "),
        "tests/quarantine.json",
        "tests[0].reason",
    ),
    (
        "quarantine/everything",
        "shipped",
        quarantine("AdderTest.two"),
        "tests/quarantine.json",
        "",
    ),
    (
        "quarantine/emptied",
        "shipped",
        both(
            quarantine("AdderTest.two"), expect(lambda v: v["n2p_tests"].append("AdderTest.three"))
        ),
        "tests/quarantine.json",
        "",
    ),
    (
        "quarantine/not-read",
        "shipped",
        quarantine("AdderTest.zero", asked=False),
        "tests/quarantine.json",
        "",
    ),
    (
        "quarantine/not-read",
        "shipped",
        verify(lambda v: v.update(quarantine=True)),
        "tests/verify.json",
        "quarantine",
    ),
    (
        "quarantine/no-effect",
        "own",
        quarantine("AdderTest.zero", asked=False),
        "tests/quarantine.json",
        "",
    ),
    ("layout/required", "shipped", remove("instruction.md"), "instruction.md", ""),
    ("layout/required", "shipped", remove("task.toml"), "task.toml", ""),
    (
        "layout/required",
        "shipped",
        remove("tests/expected_tests.json"),
        "tests/expected_tests.json",
        "",
    ),
    ("layout/required", "own", remove("solution/fix.patch"), "solution/fix.patch", ""),
    ("layout/required", "plain", remove("tests/test.sh"), "tests/test.sh", ""),
    ("layout/required", "plain", remove("environment/Dockerfile"), "environment/Dockerfile", ""),
    ("layout/unreadable", "plain", write("task.toml", b"#" * (2 << 20)), "task.toml", ""),
    ("layout/instruction", "plain", write("instruction.md", " \n"), "instruction.md", ""),
    (
        "layout/instruction",
        "plain",
        write("instruction.md", b"a\nb\xff"),
        "instruction.md",
        "line 2",
    ),
    ("layout/name", "plain", write("tests/a\nb", ""), "tests/a\\nb", ""),
    ("layout/name", "plain", write("tests/a\\b", ""), "tests/a\\b", ""),
    (
        "layout/name",
        "plain",
        write("/".join(["tests", "a" * 200, "b" * 200, "c" * 200]), ""),
        f"tests/{'a' * 200}/{'b' * 13}…",
        "",
    ),
    ("layout/link", "plain", link("tests/out", "../../../elsewhere"), "tests/out", ""),
    ("layout/link", "plain", link("tests/absolute", "/etc/passwd"), "tests/absolute", ""),
    ("layout/link", "plain", link("tests/nowhere", "missing"), "tests/nowhere", ""),
    ("layout/link", "plain", link("tests/loop", "loop"), "tests/loop", ""),
    ("layout/link", "plain", lambda s: os.mkfifo(s.task / "tests/pipe"), "tests/pipe", ""),
    (
        "layout/case",
        "plain",
        both(write("tests/a.js", ""), write("tests/A.js", "")),
        "tests/a.js",
        "",
    ),
    ("layout/leftover", "plain", write("solution/fix.patch.bak", ""), "solution/fix.patch.bak", ""),
    ("layout/leftover", "plain", write("solution/other.zip", ""), "solution/other.zip", ""),
    (
        "layout/leftover",
        "plain",
        write("environment/package-lock.json", "{}"),
        "environment/package-lock.json",
        "",
    ),
    (
        "layout/leftover",
        "shipped",
        write("environment/Dockerfile.jdk17", "FROM x\n"),
        "environment/Dockerfile.jdk17",
        "",
    ),
    ("layout/leftover", "shipped", write("tests/old_compare.py", ""), "tests/old_compare.py", ""),
    ("layout/leftover", "plain", write("notes.txt", ""), "notes.txt", ""),
    ("layout/leftover", "plain", write("drafts/instruction.md", ""), "drafts/instruction.md", ""),
    (
        "layout/compose",
        "plain",
        write("environment/docker-compose.yaml", "services:\n  main:\n"),
        "environment/docker-compose.yaml",
        "line 2",
    ),
    (
        "layout/compose-image",
        "plain",
        write(
            "environment/docker-compose.yml",
            "x-base: &base\n  image: kotlin-bench/gone:dev\nservices:\n  main:\n    <<: *base\n",
        ),
        "environment/docker-compose.yml",
        "line 2",
    ),
    (
        "layout/script-line-ends",
        "plain",
        write("solution/solve.sh", "cd /app\nls\r\npatch < fix.patch\n"),
        "solution/solve.sh",
        "line 2",
    ),
    ("layout/line-ends", "plain", write("instruction.md", "a\r\nb\n"), "instruction.md", ""),
    (
        "document/syntax",
        "plain",
        write("task.toml", 'version = "1.0"\n[verifier\n'),
        "task.toml",
        "line 2, column 10",
    ),
    (
        "document/syntax",
        "plain",
        write("task.toml", b'version = "1.0"\na = "\xff"\n'),
        "task.toml",
        "line 2, column 6",
    ),
    ("document/syntax", "plain", write("task.toml", "a = " + "[" * 5000), "task.toml", AT_THE_END),
    ("document/syntax", "plain", write("task.toml", "a = " + "9" * 5000), "task.toml", AT_THE_END),
    (
        "document/syntax",
        "shipped",
        write("tests/expected_tests.json", '{"f2p_tests": [\n"a",\n]}'),
        "tests/expected_tests.json",
        "line 2, column 4",
    ),
    ("document/syntax", "shipped", write("tests/verify.json", "[]"), "tests/verify.json", ""),
    ("document/schema", "shipped", toml("cpus = 2", 'cpus = "2"'), "task.toml", "environment.cpus"),
    ("document/schema", "shipped", toml("cpus = 2", "cpus = nan"), "task.toml", "environment.cpus"),
    (
        "document/schema",
        "shipped",
        toml('"no-network"', '"none"'),
        "task.toml",
        "verifier.network_mode",
    ),
    (
        "network/hosts",
        "shipped",
        toml('"repo.example.org"', '"https://repo.example.org/m2"'),
        "task.toml",
        "agent.allowed_hosts[0]",
    ),
    (
        "document/schema",
        "shipped",
        expect(lambda v: v["f2p_tests"].append(3)),
        "tests/expected_tests.json",
        "f2p_tests[1]",
    ),
    (
        "document/schema",
        "shipped",
        expect(lambda v: v["run_result"].pop("passed_tests")),
        "tests/expected_tests.json",
        "run_result",
    ),
    (
        "document/schema",
        "shipped",
        verify(lambda v: v["reports"].append("../../tmp/*.xml")),
        "tests/verify.json",
        "reports[1]",
    ),
    ("document/schema", "shipped", verify(lambda v: v.update(timeout=3)), "tests/verify.json", ""),
    (
        "document/repeated-key",
        "shipped",
        edit("tests/expected_tests.json", '"s2p_tests": []', '"f2p_tests": [], "s2p_tests": []'),
        "tests/expected_tests.json",
        "f2p_tests",
    ),
    (
        "document/repeated-key",
        "shipped",
        edit("tests/verify.json", '"version": 1', '"timeout_sec": 1, "version": 1'),
        "tests/verify.json",
        "timeout_sec",
    ),
    (
        "document/unknown-key",
        "shipped",
        toml("cpus = 2", "cpu = 2"),
        "task.toml",
        "environment.cpu",
    ),
    (
        "document/unknown-key",
        "shipped",
        expect(lambda v: v.update(f2p=[])),
        "tests/expected_tests.json",
        "f2p",
    ),
    ("task/version", "plain", toml('"1.0"', '"7.3"'), "task.toml", "schema_version"),
    ("task/older-keys", "plain", toml("gpus = 0", "allow_internet = true"), "task.toml", ""),
    (
        "task/name",
        "shipped",
        toml("kotlin-bench/acme_adder-7", "kotlin-bench/adder"),
        "task.toml",
        "task.name",
    ),
    (
        "provenance/missing",
        "shipped",
        toml('license = "Apache-2.0"\n', ""),
        "task.toml",
        "metadata.source.license",
    ),
    (
        "provenance/incomplete",
        "own",
        toml(f'base_commit = "{BASE}"\n', ""),
        "task.toml",
        "metadata.source.base_commit",
    ),
    (
        "provenance/base-commit",
        "own",
        toml(BASE, "v1.2"),
        "task.toml",
        "metadata.source.base_commit",
    ),
    (
        "provenance/licence",
        "shipped",
        toml('"Apache-2.0"', '"Apache License, 2"'),
        "task.toml",
        "metadata.source.license",
    ),
    (
        "provenance/licence",
        "shipped",
        toml('"Apache-2.0"', '"NOASSERTION"'),
        "task.toml",
        "metadata.source.license",
    ),
    (
        "provenance/urls",
        "shipped",
        toml("acme/adder/pull", "acme/other/pull"),
        "task.toml",
        "metadata.source.code_change_url",
    ),
    (
        "provenance/urls",
        "shipped",
        toml('repository_name = "adder"', 'repository_name = "subtractor"'),
        "task.toml",
        "metadata.source.repository_url",
    ),
    (
        "network/hosts",
        "shipped",
        toml('"allowlist"', '"no-network"'),
        "task.toml",
        "agent.allowed_hosts",
    ),
    (
        "network/hosts",
        "own",
        toml('network_mode = "allowlist"', ""),
        "task.toml",
        "agent.allowed_hosts",
    ),
    (
        "task/verifier-mode",
        "shipped",
        toml(
            'network_mode = "no-network"', 'environment_mode = "shared"\nenvironment = {cpus = 1}'
        ),
        "task.toml",
        "verifier.environment_mode",
    ),
    (
        "network/hosts",
        "shipped",
        toml('"*.example.net"', '"a.*.example.net"'),
        "task.toml",
        "agent.allowed_hosts[1]",
    ),
    (
        "network/settings",
        "shipped",
        toml("cpus = 2", 'cpus = 2\nallow_internet = true\nnetwork_mode = "no-network"'),
        "task.toml",
        "environment.allow_internet",
    ),
    (
        "network/settings",
        "shipped",
        toml('["repo.example.org", "*.example.net"]', "[]"),
        "task.toml",
        "agent.allowed_hosts",
    ),
    (
        "network/public-agent",
        "own",
        toml(
            'network_mode = "allowlist"\nallowed_hosts = ["repo.example.org", "*.example.net"]', ""
        ),
        "task.toml",
        "agent.network_mode",
    ),
    (
        "recipe/from",
        "shipped",
        edit("environment/Dockerfile", "adder:jdk17", "adder:jdk21"),
        "environment/Dockerfile",
        "line 4",
    ),
    (
        "recipe/from",
        "shipped",
        edit("environment/Dockerfile", "adder:history", "adder:${TAG}"),
        "environment/Dockerfile",
        "line 1",
    ),
    (
        "recipe/from",
        "plain",
        write("environment/Dockerfile", "# nothing\n"),
        "environment/Dockerfile",
        "",
    ),
    (
        "recipe/copy",
        "shipped",
        edit("environment/Dockerfile", "prepare.sh check", "prepares.sh check"),
        "environment/Dockerfile",
        "line 6",
    ),
    (
        "recipe/copy",
        "plain",
        write("environment/Dockerfile", "FROM a:1\nCOPY ../solution /x\n"),
        "environment/Dockerfile",
        "line 2",
    ),
    (
        "recipe/base-commit",
        "shipped",
        both(
            edit("environment/Dockerfile", BASE, "b" * 40),
            edit("environment/prepare.sh", BASE, "b" * 40),
        ),
        "task.toml",
        "metadata.source.base_commit",
    ),
    (
        "recipe/base-commit",
        "own",
        both(
            edit("environment/Dockerfile", BASE, "main"),
            edit("environment/prepare.sh", BASE, "main"),
        ),
        "environment/Dockerfile",
        "",
    ),
    ("leak/reversed-fix", "plain", reverse_fix, "environment/bug.patch", ""),
    (
        "patch/malformed",
        "shipped",
        write(
            "tests/test.patch", patches()[1].replace(b"+    @Test fun two", b"    @Test fun two")
        ),
        "tests/test.patch",
        "line 5",
    ),
    (
        "patch/malformed",
        "shipped",
        write("solution/fix.patch", patches()[0].rstrip(b"\n")),
        "solution/fix.patch",
        "line 11",
    ),
    (
        "patch/malformed",
        "own",
        write("solution/fix.patch", patches()[0] + BINARY_STUB.encode()),
        "solution/fix.patch",
        "line 13",
    ),
    (
        "patch/incomplete",
        "plain",
        write("solution/fix.patch", patches()[0] + BINARY_STUB.encode()),
        "solution/fix.patch",
        "line 13",
    ),
    ("patch/empty", "own", write("solution/fix.patch", "no patch\n"), "solution/fix.patch", ""),
    (
        "patch/path",
        "own",
        write("solution/fix.patch", HEAD.format("../../etc/passwd")),
        "solution/fix.patch",
        "line 1",
    ),
    (
        "patch/path",
        "own",
        write("solution/fix.patch", HEAD.format(".git/hooks/pre-commit")),
        "solution/fix.patch",
        "line 1",
    ),
    (
        "patch/path",
        "own",
        write("solution/fix.patch", "--- /tmp/x\n+++ /tmp/x\n@@ -1 +1 @@\n-a\n+b\n"),
        "solution/fix.patch",
        "line 1",
    ),
    (
        "patch/twice",
        "own",
        write("solution/fix.patch", HEAD.format("src/A.kt") * 2),
        "solution/fix.patch",
        "line 7",
    ),
    (
        "patch/overlap",
        "own",
        write("solution/fix.patch", patches()[0] + patches()[1]),
        "tests/test.patch",
        "line 1",
    ),
    (
        "patch/mixed",
        "own",
        write("solution/fix.patch", patches()[0] + HEAD.format("CHANGELOG.md").encode()),
        "solution/fix.patch",
        "line 12",
    ),
    (
        "patch/mixed",
        "own",
        write("tests/test.patch", HEAD.format("src/main/kotlin/Other.kt")),
        "tests/test.patch",
        "line 1",
    ),
    (
        "expected/duplicate",
        "shipped",
        expect(lambda v: v["p2p_tests"].append("AdderTest.zero")),
        "tests/expected_tests.json",
        "p2p_tests[1]",
    ),
    (
        "expected/duplicate",
        "own",
        expect(lambda v: v["run_result"]["passed_tests"].append("AdderTest.zero")),
        "tests/expected_tests.json",
        "run_result.passed_tests[1]",
    ),
    (
        "expected/overlap",
        "shipped",
        expect(lambda v: v["s2p_tests"].append("AdderTest.two")),
        "tests/expected_tests.json",
        "s2p_tests[0]",
    ),
    (
        "expected/overlap",
        "shipped",
        expect(lambda v: v["run_result"]["failed_tests"].append("AdderTest.zero")),
        "tests/expected_tests.json",
        "run_result.failed_tests[0]",
    ),
    (
        "expected/before",
        "shipped",
        expect(lambda v: v["p2p_tests"].append("AdderTest.three")),
        "tests/expected_tests.json",
        "p2p_tests[1]",
    ),
    (
        "expected/before",
        "shipped",
        expect(
            lambda v: v["test_patch_result"].update(
                failed_tests=[], passed_tests=["AdderTest.two", "AdderTest.zero"]
            )
        ),
        "tests/expected_tests.json",
        "f2p_tests[0]",
    ),
    (
        "expected/not-new",
        "shipped",
        expect(
            lambda v: v.update(
                f2p_tests=["AdderTest.two"], p2p_tests=[], n2p_tests=["AdderTest.zero"]
            )
        ),
        "tests/expected_tests.json",
        "n2p_tests[0]",
    ),
    (
        "expected/passes-before",
        "own",
        expect(lambda v: v.update(p2p_tests=[], n2p_tests=["AdderTest.zero"])),
        "tests/expected_tests.json",
        "n2p_tests[0]",
    ),
    (
        "expected/nothing",
        "own",
        expect(lambda v: v.update(f2p_tests=[])),
        "tests/expected_tests.json",
        "",
    ),
    (
        "expected/incomplete",
        "shipped",
        expect(lambda v: v.pop("run_result")),
        "tests/expected_tests.json",
        "run_result",
    ),
    (
        "expected/impossible",
        "shipped",
        expect(lambda v: v["p2p_tests"].append("A.a\x07")),
        "tests/expected_tests.json",
        "p2p_tests[1]",
    ),
    (
        "expected/changing-id",
        "own",
        expect(lambda v: v["n2p_tests"].append("A.reads Foo@1b2c3d4e")),
        "tests/expected_tests.json",
        "n2p_tests[0]",
    ),
    (
        "expected/changing-id",
        "own",
        expect(lambda v: v["p2p_tests"].append("A.calls Foo$$Lambda$12/0x00007f12")),
        "tests/expected_tests.json",
        "p2p_tests[1]",
    ),
    (  # As JSON may write it too.
        "expected/changing-id",
        "own",
        both(
            expect(lambda v: v["s2p_tests"].append("A.reads Foo@1b2c3d4e")),
            edit("tests/expected_tests.json", "@", "\\u0040"),
        ),
        "tests/expected_tests.json",
        "s2p_tests[0]",
    ),
    (
        "expected/dropped",
        "own",
        both(
            write("tests/compare.py", "if '[' in name:\n    continue\n"),
            expect(lambda v: v["n2p_tests"].append("A.adds(int)[1]")),
        ),
        "tests/expected_tests.json",
        "n2p_tests[0]",
    ),
    (
        "expected/dropped",
        "own",
        both(
            write("tests/compare.py", "name = case.get('name').strip()\n"),
            expect(lambda v: v["n2p_tests"].append("A.adds ")),
        ),
        "tests/expected_tests.json",
        "n2p_tests[0]",
    ),
    ("verifier/shipped", "shipped", write("tests/test.sh", "exit 0\n"), "tests/test.sh", ""),
    ("verifier/shipped", "shipped", remove("tests/junit_compare.py"), "tests/junit_compare.py", ""),
    (
        "verifier/base-commit",
        "shipped",
        verify(lambda v: v.update(base_commit="c" * 40)),
        "tests/verify.json",
        "base_commit",
    ),
    (
        "verifier/hidden",
        "shipped",
        verify(lambda v: v.update(hidden={})),
        "tests/verify.json",
        "hidden",
    ),
    (
        "verifier/hidden",
        "shipped",
        verify(lambda v: v["hidden"].update({"src/test/X.kt": {"base": None, "after": None}})),
        "tests/verify.json",
        "hidden",
    ),
    (
        "verifier/blobs",
        "shipped",
        verify(lambda v: v["hidden"][SPEC].update(after="100644 " + "d" * 40)),
        "tests/verify.json",
        f"hidden['{SPEC}']",
    ),
    (
        "verifier/blobs",
        "shipped",
        verify(lambda v: v["hidden"][SPEC].update(base=None)),
        "tests/verify.json",
        f"hidden['{SPEC}']",
    ),
    (
        "verifier/blobs",
        "shipped",
        both(
            move_a_test,
            verify(lambda v: v["hidden"]["src/test/B.kt"].update(base="100644 " + "1" * 40)),
        ),
        "tests/verify.json",
        "hidden['src/test/B.kt']",
    ),
    (
        "verifier/fix-undone",
        "shipped",
        verify(lambda v: v["protected"]["globs"].append("**/src/main/**")),
        "solution/fix.patch",
        "line 1",
    ),
    (
        "verifier/timeout",
        "shipped",
        verify(lambda v: v.update(timeout_sec=900)),
        "tests/verify.json",
        "timeout_sec",
    ),
    (
        "verifier/workdir",
        "shipped",
        verify(lambda v: v.update(workdir="/home/other")),
        "tests/verify.json",
        "workdir",
    ),
]


# What comes close to a defect and is none: (what it is, form, change)
SOUND: list[tuple[str, str, Break]] = [
    ("a test in quarantine", "shipped", quarantine("AdderTest.zero")),
    (
        "a quarantine that a task's own verifier reads",
        "own",
        both(
            quarantine("AdderTest.zero", asked=False),
            write(
                "tests/test.sh",
                "PATH=/bin\ngit apply /tests/test.patch || exit 1\n"
                "python3 x /tests/quarantine.json\n",
            ),
        ),
    ),
    ("a link inside the task", "shipped", link("README.md", "instruction.md")),
    (
        "an image in place of a Dockerfile",
        "plain",
        both(remove("environment/Dockerfile"), toml("gpus = 0", 'docker_image = "node:20"')),
    ),
    (
        "a compose file in place of a Dockerfile",
        "plain",
        both(
            remove("environment/Dockerfile"),
            write("environment/docker-compose.yaml", "services: {}\n"),
        ),
    ),
    (
        "a compose file that builds the image it names",
        "plain",
        write(
            "environment/docker-compose.yaml",
            "services:\n  main: {build: ., image: 'kotlin-bench/mine:1'}\n"
            "  side: {image: 'kotlin-bench/mine:1'}\n",
        ),
    ),
    (
        "an image that no service of a compose file is given",
        "plain",
        write(
            "environment/docker-compose.yaml",
            "services:\n  main:\n    build: .\n    labels:\n      image: kotlin-bench/gone:1\n",
        ),
    ),
    (
        "a context copied whole",
        "plain",
        both(
            write("environment/data/a.json", "{}"),
            write("environment/Dockerfile", "FROM scratch\nCOPY . /app\n"),
        ),
    ),
    (
        "a folder of the context copied",
        "plain",
        both(
            write("environment/data/a.json", "{}"),
            write("environment/Dockerfile", 'FROM scratch\nCOPY --chown=1 ["data", "/app"]\n'),
        ),
    ),
    (
        "files copied by a pattern",
        "plain",
        both(
            write("environment/a.json", "{}"),
            write("environment/Dockerfile", "FROM scratch\nADD *.json /app/\n"),
        ),
    ),
    (
        "a URL and a here-document",
        "plain",
        write(
            "environment/Dockerfile",
            "FROM scratch\nADD --checksum=sha256:aa https://example.org/x.tar /x\n"
            "COPY <<END /etc/x\nCOPY missing /y\nEND\n",
        ),
    ),
    (
        "an argument with a default",
        "plain",
        write("environment/Dockerfile", "ARG TAG=22.4@sha256:aa\nFROM node:${TAG}\n"),
    ),
    (
        "a stage named like nothing built",
        "shipped",
        edit("environment/Dockerfile", "FROM kotlin-bench/adder:jdk17", "FROM sealed\nUSER root"),
    ),
    (
        "a solution file that solve.sh names",
        "plain",
        both(
            write("solution/data.zip", ""), write("solution/solve.sh", "unzip /solution/data.zip\n")
        ),
    ),
    (
        "solution files taken by a pattern",
        "plain",
        both(write("solution/data.zip", ""), write("solution/solve.sh", "cp -r /solution/* .\n")),
    ),
    ("any file among a plain task's tests", "plain", write("tests/fixtures/old.orig", "")),
    ("Windows line ends throughout", "plain", write("instruction.md", "a\r\nb\r\n")),
    (
        "names with spaces, quotes and letters of all kinds",
        "plain",
        write('tests/Übung "a\'b" 試.js', ""),
    ),
    (
        "a key of one's own under metadata",
        "shipped",
        toml('difficulty = "easy"', 'difficulty = "easy"\nreviewed = 2024-02-03\nmine = {a = 1}'),
    ),
    ("whole numbers for seconds", "shipped", toml("900.0", "900")),
    (
        "a licence expression",
        "shipped",
        toml('"Apache-2.0"', '"(MIT OR Apache-2.0) AND LicenseRef-docs"'),
    ),
    (
        "an address and a range among the hosts",
        "shipped",
        toml('"repo.example.org"', '"192.0.2.1", "2001:db8::/32", "repo.example.org"'),
    ),
    (
        "an id with spaces, quotes, newlines",
        "shipped",
        expect(
            lambda v: (
                v["f2p_tests"].append('A.a "b" $--\n試'),
                v["test_patch_result"]["failed_tests"].append('A.a "b" $--\n試'),
            )
        ),
    ),
    (
        "a parameterised id, an address and an e-mail address",
        "shipped",
        expect(
            lambda v: v["n2p_tests"].extend(
                ["A.a(int)[1]", "A.to 0x00ff", "A.me@feed.example", "A.b "]
            )
        ),
    ),
    (
        "an id that ends like a key",
        "shipped",
        expect(
            lambda v: (
                v["f2p_tests"].append("A.all_tests"),
                v["test_patch_result"]["failed_tests"].append("A.all_tests"),
            )
        ),
    ),
    (
        "no test compiles before the fix",
        "shipped",
        expect(
            lambda v: (
                v.update(f2p_tests=[], n2p_tests=["AdderTest.two"]),
                v["test_patch_result"].update(passed_tests=[], failed_tests=[]),
            )
        ),
    ),
    (
        "one module doesn't compile before the fix",
        "shipped",
        expect(
            lambda v: (
                v["p2p_tests"].append("OtherTest.a"),
                v["run_result"]["passed_tests"].append("OtherTest.a"),
            )
        ),
    ),
    (
        "a skipped test that comes to pass",
        "shipped",
        expect(
            lambda v: (
                v["s2p_tests"].append("AdderTest.later"),
                v["test_patch_result"]["skipped_tests"].append("AdderTest.later"),
            )
        ),
    ),
    (
        "short blob ids in the patch",
        "shipped",
        write(
            "tests/test.patch",
            b"\n".join(
                line[:14] + b".." + line[48:55] + line[88:] if line.startswith(b"index ") else line
                for line in patches()[1].split(b"\n")
            ),
        ),
    ),
    ("a hidden file that is moved", "shipped", move_a_test),
    (
        "a protected glob with an exception",
        "shipped",
        verify(lambda v: v["protected"]["globs"].extend(["**/src/**", f"!{SOURCE}"])),
    ),
]
