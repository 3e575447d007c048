"""No content of a task makes validation raise: sound files, cut, spliced and filled with noise."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build.rules.catalogue import check_task, not_checked
from kbench_build.rules.content import Around, understand, with_schemas
from kbench_build.steps import validate
from tests.samples import TASK, Sample

PATHS = (
    "task.toml",
    "instruction.md",
    "environment/Dockerfile",
    "environment/prepare.sh",
    "solution/fix.patch",
    "solution/solve.sh",
    "tests/test.patch",
    "tests/test.sh",
    "tests/expected_tests.json",
    "tests/verify.json",
)
NOISE = st.sampled_from(
    [
        b"\xff",
        b"\x00",
        b"[" * 2000,
        b"{",
        b'"',
        b"\n",
        b"\r\n",
        b"= nan\n",
        b"[[task]]\n",
        b"null",
        b"[]",
        b"{}",
        b"1e999",
        b"\\ud800",
        b'"\\ud800"',
        b"../",
        b"FROM $\n",
        b"COPY [\n",
        b"<<A",
    ]
) | st.binary(max_size=8)


@cache
def sound() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        sample = Sample(Path(folder))
        return {path: (sample.task / path).read_bytes() for path in PATHS}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_content_makes_it_raise(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        sample = Sample(Path(folder))
        for path in data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
            content = sound()[path]
            at = data.draw(st.integers(0, len(content)))
            cut = data.draw(st.integers(0, 40))
            sample.write(path, content[:at] + data.draw(NOISE) + content[at + cut :])
        validate.findings_of(sample.validate())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "source",
                    "base_commit",
                    "license",
                    "environment",
                    "agent",
                    "hidden",
                    "verifier",
                    "allowed_hosts",
                    "network_mode",
                    "protected",
                    "globs",
                    "timeout_sec",
                    "f2p_tests",
                    "p2p_tests",
                    "run_result",
                    "passed_tests",
                    "task",
                    "name",
                    "steps",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=9) | st.sampled_from(["metadata"]), VALUES), st.data())
def test_no_value_makes_it_raise(value: dict[str, object], data: st.DataObject) -> None:
    """Documents of any shape, through every check, whatever their schemas say of them."""
    around = Around(namespace="kotlin-bench", bases=(), shipped=validate.shipped())
    task = understand(TASK, around=around, files={}, data=dict(sound()), unread=())
    field = data.draw(st.sampled_from(["config", "expected_json", "verify"]))
    shaped = value | {
        key: data.draw(VALUES) for key in ("metadata", "agent", "verifier", "task", "hidden")
    }
    change: Any = {field: shaped}
    task = replace(task, **change)
    task = with_schemas(task, misfits=validate.misfits(task), unknown=validate.unknown(task))
    check_task(task)
    not_checked(task)
