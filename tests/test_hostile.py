"""Hostile data everywhere: bounded time and memory, something said, never a crash.

What one reader refuses stands in that reader's own tests; here are the sizes and shapes that hit
them all: files without end, archives that swell, texts made to be slow, and noise.
"""

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build import toml
from kbench_build.errors import KbenchError
from kbench_build.model.jobs import JobResult, Upload
from kbench_build.rim.engines import tars
from kbench_build.rules.base_inputs import parse_inputs
from kbench_build.rules.build_context import buildkit_lines, ignores, label_stages, sources
from kbench_build.rules.catalogue import check_task, not_checked
from kbench_build.rules.content import Around, understand, with_schemas
from kbench_build.rules.dockerfile import copies, images, parse_dockerfile, stages
from kbench_build.rules.findings import MOST_CHARACTERS, MOST_SPOTS
from kbench_build.rules.harden_task_toml import hardened_toml
from kbench_build.rules.lock import parse_lock
from kbench_build.rules.manifest import parse_manifest
from kbench_build.rules.outcomes import verdict
from kbench_build.rules.parsing import parse_json, parse_toml
from kbench_build.rules.patches import parse_patch
from kbench_build.rules.records import FormatError
from kbench_build.runtime.junit_compare import MAX_REPORT_BYTES, read_report
from kbench_build.steps import validate
from tests.graph_kit import ROOT, doit, make_dataset, write
from tests.samples import TASK
from tests.test_validate_fuzz import NOISE, sound

MIB = 1 << 20


def confined(script: str, *arguments: str, megabytes: int, seconds: float) -> str:
    """What a program prints that may take so much memory and time and no more."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes * MIB, megabytes * MIB))

    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        preexec_fn=confine,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# --- Files that are too large, that never end, or that never begin ---

LOOK = """
import sys
from pathlib import Path
from kbench_build.errors import KbenchError
from kbench_build.plan import Plan

for root in sys.argv[1:]:
    print(f"== {root.rpartition('/')[2]}")
    try:
        plan = Plan(Path(root))
        for recipe in plan.recipes.values():
            pass
        for subject in plan.steps["validate"].subjects():
            report = plan.steps["validate"].run(subject)
            for finding in report.data["findings"]:
                print(finding["file"], finding["message"])
    except KbenchError as error:
        print(error)
"""
PLACES = (
    "kbench.toml",
    "bases/manifest",
    "bases/tool/inputs.toml",
    "bases/tool/Dockerfile.1",
    "tasks/acme__tool-1/task.toml",
    "tasks/acme__tool-1/instruction.md",
    "tasks/acme__tool-1/environment/Dockerfile",
    "tasks/acme__tool-1/environment/setup.sh",
    "tasks/acme__tool-1/solution/fix.patch",
    "tasks/acme__tool-1/tests/test.sh",
    "tasks/acme__tool-1/tests/test.patch",
    "tasks/acme__tool-1/tests/expected_tests.json",
    "tasks/acme__tool-1/tests/verify.json",
)


def large(path: Path) -> None:
    """100 MB that begin as sound TOML does."""
    path.write_bytes(b"a = 1\n")
    os.truncate(path, 100 * MIB)


WAYS: Mapping[str, Callable[[Path], object]] = {
    "100 MB": large,
    "a link to a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a pipe that nobody writes to": os.mkfifo,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_cannot_be_read_whole_is_named_in_every_place(tmp_path: Path, way: str) -> None:
    roots = []
    for number, place in enumerate(PLACES):
        root = make_dataset(tmp_path / str(number), bases={"1": "FROM scratch\n"}, tasks=2)
        (root / place).parent.mkdir(exist_ok=True)
        (root / place).unlink(missing_ok=True)
        WAYS[way](root / place)
        roots.append(str(root))
    said = confined(LOOK, *roots, megabytes=400, seconds=60).split("== ")[1:]
    for place, text in zip(PLACES, said, strict=True):
        assert Path(place).name in text or "no regular file" in text, (place, text)


# --- Texts that are made to be slow, one fragment again and again ---

FRAGMENTS = (
    b"a", b" ", b"\n", b"\\\n", b'"', b"'", b"`", b"$(", b"${", b"((", b"{", b"[", b"<<A\n",
    b"RUN cat <<A\n", b"&&", b"a&&", b"|", b"a|", b"#\n", b"a=", b"a.", b"a=1\n", b"a={b.b=",
    b"FROM a AS b\n", b"COPY a b\n", b"COPY [", b"RUN a \\\n", b"ARG a=$a\n", b"if a; then\n",
    b"case a in b) ", b"a() { ", b"git clone https://e.org/a/b\n", b"curl a | sh\n",
    b"diff --git a/a b/a\n", b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n",
    b"--- a/a\n", b"@@ -1 +1 @@\n", b"@@ -1,99999999 +1,99999999 @@\n", b"+    @Test fun `a b`()\n",
    b"GIT binary patch\nliteral 10\n", b"\xff", b"\x00", b"\r", b"#1 ", b"[a](b) ", b"```\n",
    b"https://e.org/a/b/pull/1 ", b"../", b"**/", b"*a", b"<a>", b"deadbeef", b'{"a":', b'["a",',
    b"<testcase name='a'>", b"<!--", b"&amp;", b"repo tag file\n", b"[[input]]\n",
)  # fmt: skip
SIZE = 30_000
CPU_SEC = 5.0


def read_all(data: bytes) -> None:
    """Every reader of text that is no part of a task's checks."""
    text = data.decode("utf-8", "replace")
    instructions = parse_dockerfile(text)
    images(instructions)
    copies(instructions)
    buildkit_lines(text, instructions)
    sources(instructions)
    label_stages(text, [stage.line for stage in stages(instructions)], "k", "v")
    parse_manifest(text)
    parse_inputs(text, "repo")
    parse_toml("x", data)
    parse_json("x", data)
    parse_patch(data)
    read_report(data)
    ignores(text.splitlines()[:50], "a/b/c")
    ignores([text[:2000]], "/".join(["a" * 40] * 20))
    with suppress(toml.TOMLDecodeError):
        toml.loads(text)
    with suppress(FormatError):
        parse_lock(data)
    verdict(JobResult(status="exited", exit_code=0), {"report.json": data}, shipped=True)
    verdict(JobResult(status="exited", exit_code=0), {"reward.json": data}, shipped=False)


def check(files: Mapping[str, bytes]) -> None:
    """Every check of a task with these files."""
    around = Around(namespace="kotlin-bench", bases=(), shipped=validate.shipped())
    task = understand(TASK, around=around, files={}, data=files, unread=())
    task = with_schemas(task, misfits=validate.misfits(task), unknown=validate.unknown(task))
    found = check_task(task)
    not_checked(task)
    assert all(len(f.message) <= MOST_CHARACTERS * 6 for f in found)


@cache
def own() -> Mapping[str, bytes]:
    """A task with its own verifier, which checks look at most closely."""
    return {path: data for path, data in sound().items() if path != "tests/verify.json"}


def within(seconds: float, do: Callable[[], object], what: object) -> None:
    """`do`, and that it took no more of the processor than so much."""
    began = time.process_time()
    do()
    taken = time.process_time() - began
    assert taken < seconds, f"{what} took {taken:.1f} s"


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_text_is_slow_to_read(fragment: bytes) -> None:
    data = fragment * (SIZE // len(fragment))
    within(CPU_SEC, lambda: read_all(data), fragment)


@pytest.mark.parametrize("line", ["RUN cat <<A\n", "RUN cat <<A <<B\n", "FROM a AS b\n", "ARG a\n"])
def test_a_dockerfile_of_a_mebibyte_is_read_at_once(line: str) -> None:
    text = line * (MIB // len(line))
    within(CPU_SEC * 2, lambda: stages(parse_dockerfile(text)), line)


@settings(max_examples=60)
@given(st.sampled_from(FRAGMENTS), st.sampled_from(sorted(sound())), st.booleans(), st.booleans())
def test_no_text_is_slow_to_check(fragment: bytes, path: str, whole: bool, plain: bool) -> None:
    files = sound() if plain else own()
    data = (b"" if whole else files.get(path, b"")) + fragment * (SIZE // len(fragment))
    within(CPU_SEC, lambda: check({**files, path: data}), (fragment, path))


# --- Noise through every reader ---


@settings(max_examples=150)
@given(st.lists(st.sampled_from(FRAGMENTS) | NOISE | st.binary(max_size=20), max_size=12))
def test_no_bytes_make_a_reader_raise(pieces: list[bytes]) -> None:
    read_all(b"".join(pieces))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
REPORTS = st.fixed_dictionaries(
    {"tests": st.dictionaries(st.text(max_size=3), JSON)},
    optional={"outcome": JSON, "reward": JSON, "errors": JSON, "flaky": JSON},
)


@settings(max_examples=150)
@given(REPORTS, JSON | st.just(10**400))
def test_no_report_or_reward_makes_a_verdict_raise(report: Any, reward: Any) -> None:
    files = {"report.json": json.dumps(report).encode(), "reward.json": json.dumps(reward).encode()}
    for shipped in (True, False):
        verdict(JobResult(status="exited", exit_code=0), files, shipped=shipped)


# --- Documents that are deep, long, or many ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a." * 500_000 + "a = 1", "more than 64 parts"),
        ("a = " + "[" * 500_000, "Nested too deeply"),
        ("a = " + "[" * 200 + "]" * 200, "Nested too deeply"),
        ("a = " + "1" * 5_000, "integer"),
    ],
)
def test_toml_is_refused_in_one_way_however_it_is_wrong(text: str, said: str) -> None:
    def read() -> None:
        with pytest.raises(toml.TOMLDecodeError, match=said):
            toml.loads(text)

    within(CPU_SEC, read, text[:20])
    flaws = parse_inputs(text, "repo")[1]
    assert [f.rule for f in flaws] == ["bases/inputs"]


@pytest.mark.parametrize("text", ["a." * 500_000 + "a = 1", "[metadata]\n" + "#\n" * 500_000])
def test_a_task_toml_that_would_take_minutes_is_not_hardened(text: str) -> None:
    def refuse() -> None:
        assert hardened_toml(text, name="a/b", base="a" * 40).refusals

    within(CPU_SEC, refuse, text[:20])


@pytest.mark.parametrize(
    "text", ["[a.b.c]\nd = [[1], [2]]\n", 'url = "https://a.example.org/x"\n', "a.b = {c = 1}"]
)
def test_usual_toml_is_read(text: str) -> None:
    assert toml.loads(text)


def test_ten_thousand_bad_lines_give_few_findings() -> None:
    bases, findings = parse_manifest("one two\n" * 10_000)
    assert bases == ()
    assert len(findings) == MOST_SPOTS + 1
    assert "has more of the kind" in findings[-1].message
    _, findings = parse_inputs("[[input]]\n" * 10_000, "repo")
    assert len(findings) == MOST_SPOTS + 1


def test_a_hundred_thousand_bases_are_read_at_once() -> None:
    text = "".join(f"repo t{n} Dockerfile\n" for n in range(100_000))
    within(CPU_SEC, lambda: parse_manifest(text), "manifest")
    assert len(parse_manifest(text)[0]) == 100_000


def test_names_with_newlines_are_said_on_one_line(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "small", tasks=1)
    write(root / "tasks/two\nlines/instruction.md", "x\n")
    write(root / "tasks/acme__tool-1/tests/a\nerror: b", "x\n")
    write(root / "bases/manifest", "tool a\x0bb Dockerfile\n")
    done = doit(root, "validate", code=1)
    assert "Traceback" not in done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith(("error: b", "lines"))]
    assert "two\\nlines" in done.stdout


# --- Archives and reports that swell ---


def test_an_archive_in_a_compressed_form_is_not_unpacked() -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        info = tarfile.TarInfo("top/zeros")
        info.size = 64 * MIB
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    bomb = gzip.compress(inner.getvalue())
    assert len(bomb) < MIB
    with pytest.raises(KbenchError, match="can't be read"):
        tars.unpack(bomb)
    with pytest.raises(tarfile.ReadError):
        tars.merge([Upload(into="/", archive=bomb)])


READ = """
import sys
from kbench_build.runtime import junit_compare
from kbench_build.runtime.verify_checkout import read_file
found = read_file(sys.argv[1], junit_compare.MAX_REPORT_BYTES + 1)
reading = junit_compare.read_report(found[1])
print(len(reading.cases), reading.error)
"""


@pytest.mark.parametrize("head", [b"<testsuite>", b"<testsuite><testcase name='"])
def test_a_report_of_500_mb_is_refused_within_bounds(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "TEST-a.xml"
    path.write_bytes(head)
    os.truncate(path, 500 * MIB)
    said = confined(READ, str(path), megabytes=300, seconds=60)
    assert said.startswith("0 ")
    assert f"{MAX_REPORT_BYTES:,}".replace(",", "") in said.replace(",", "")


def test_entities_expand_to_nothing() -> None:
    levels = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(30))
    bomb = f'<!DOCTYPE t [<!ENTITY e0 "x">{levels}]><testsuite name="&e30;"/>'
    within(CPU_SEC, lambda: read_report(bomb.encode()), "an entity bomb")
    assert "DOCTYPE" in (read_report(bomb.encode()).error or "")


def test_a_result_that_is_too_long_is_no_result() -> None:
    ended = JobResult(status="exited", exit_code=0)
    long = b"[" * (64 * MIB + 1)
    assert "more than" in verdict(ended, {"report.json": long}, shipped=True).why
    assert "more than" in verdict(ended, {"reward.txt": b" " * (2 * MIB)}, shipped=False).why


def test_nothing_of_a_patch_leaves_the_checkout() -> None:
    hunk = "@@ -0,0 +1 @@\n+a\n"
    for path in ("../../etc/passwd", "/etc/passwd", "a/../../b", ".git/hooks/pre-commit"):
        data = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        files = {**sound(), "solution/fix.patch": (data + hunk).encode()}
        around = Around(namespace="kotlin-bench", bases=(), shipped=validate.shipped())
        task = understand(TASK, around=around, files={}, data=files, unread=())
        assert "error" in {f.severity for f in check_task(task) if f.file.endswith("fix.patch")}


def test_the_whole_takes_little_memory_with_ten_thousand_files(tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        root = make_dataset(Path(folder) / "small", tasks=1)
        for number in range(10_000):
            (root / f"tasks/acme__tool-1/tests/{number}\u202e").symlink_to("/etc/passwd")
        said = confined(LOOK, str(root), megabytes=400, seconds=60).splitlines()
        assert len(said) < 10 * MOST_SPOTS
