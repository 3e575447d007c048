"""The lock: records ↔ JSON with paths in the errors, and a golden one that must never change."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench_build import digest
from kbench_build.model import Base, FileEntry
from kbench_build.rules.changes import Changes
from kbench_build.rules.lock import (
    Lock,
    evidence_of,
    files_of_base,
    inconsistencies,
    lock_bytes,
    parse_head,
    parse_lock,
    unmet_policy,
)
from kbench_build.rules.records import FormatError, from_json, to_json
from tests.release_kit import ADDER, make_kit, read_lock, report

GOLDEN = Path(__file__).parent / "data" / "release" / "lock.json"
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    share: float
    flag: bool
    inners: tuple[Inner, ...]
    by_name: Mapping[str, Inner | None]
    anything: Any = None


WHOLE: Mapping[str, Any] = {
    "name": "n",
    "share": 0.5,
    "flag": True,
    "inners": [{"size": 1, "kind": "b"}],
    "by_name": {"x": {"size": 2, "kind": "a"}, "y": None},
    "anything": [1, {"a": None}],
}


def test_a_record_round_trips() -> None:
    assert to_json(from_json(Outer, WHOLE)) == WHOLE


def test_defaults_may_be_missing() -> None:
    value = {k: v for k, v in WHOLE.items() if k != "anything"}
    assert from_json(Outer, value).anything is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 7}, "name: must be a string, not 7"),
        ({"flag": 1}, "flag: must be true or false, not 1"),
        ({"share": True}, "share: must be a number, not True"),
        ({"inners": {}}, "inners: must be a list, not {}"),
        ({"inners": [{}]}, "inners[0].size: is missing"),
        (
            {"inners": [{"size": 1}, {"size": 1.0}]},
            "inners[1].size: must be a whole number, not 1.0",
        ),
        ({"inners": [{"size": 1, "kind": "c"}]}, "inners[0].kind: must be one of a, b, not 'c'"),
        ({"by_name": {"x": 3}}, "by_name.x: must be an object, not 3"),
        ({"other": 1}, "other: is no key here; known are"),
    ],
)
def test_an_error_names_the_path_to_the_bad_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        from_json(Outer, {**WHOLE, **change})
    assert str(caught.value).startswith(message)


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
keys = st.sampled_from(sorted(WHOLE))
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@given(st.dictionaries(keys, values))
def test_no_value_breaks_the_reader(value: Any) -> None:
    with suppress(FormatError):
        assert to_json(from_json(Outer, {**WHOLE, **value})) == {**WHOLE, **value}


def test_a_real_lock_round_trips_to_the_same_bytes(tmp_path: Path) -> None:
    data = (make_kit(tmp_path / "set").released() / "lock.json").read_bytes()
    assert lock_bytes(parse_lock(data)) == data
    assert data == digest.canonical_json(json.loads(data))


def test_the_golden_lock_reads_and_writes_as_ever() -> None:
    # scripts/regenerate_golden_release.py makes the file anew when the format changes on purpose.
    data = GOLDEN.read_bytes()
    lock = parse_lock(data)
    assert lock_bytes(lock) == data
    assert not inconsistencies(lock)
    assert not unmet_policy(lock)


def test_the_same_files_still_give_the_golden_digests(tmp_path: Path) -> None:
    made, golden = read_lock(make_kit(tmp_path / "set").released()), parse_lock(GOLDEN.read_bytes())
    assert made.content == golden.content
    assert [(t.id, t.digest, t.harbor) for t in made.tasks] == [
        (t.id, t.digest, t.harbor) for t in golden.tasks
    ]
    assert [(b.name, b.digest) for b in made.bases] == [(b.name, b.digest) for b in golden.bases]


def test_a_head_is_read_without_the_rest() -> None:
    head = parse_head(b'{"name": "n", "version": "1.0.0", "content": "c", "more": [1]}')
    assert (head.name, head.version, head.content) == ("n", "1.0.0", "c")
    with pytest.raises(FormatError, match="version: must be a string"):
        parse_head(b'{"name": "n", "content": "c"}')


def test_a_lock_that_is_sound_has_nothing_to_say(tmp_path: Path) -> None:
    lock = read_lock(make_kit(tmp_path / "set").released())
    assert not inconsistencies(lock)
    wrong = replace(lock.bases[0], digest="0" * 64)
    assert inconsistencies(replace(lock, bases=(wrong, *lock.bases[1:]))) == [
        ("bases[0].digest", "isn't the digest of the files of base adder:jdk17")
    ]


def test_a_base_leaves_out_the_dockerfiles_of_its_siblings() -> None:
    bases = [
        Base(repo="a", tag="one", dockerfile="bases/a/Dockerfile.one", line=1),
        Base(repo="a", tag="two", dockerfile="bases/a/Dockerfile.two", line=2),
        Base(repo="b", tag="one", dockerfile="bases/b/Dockerfile.one", line=3),
    ]
    names = ["a/Dockerfile.one", "a/Dockerfile.two", "a/x", "b/Dockerfile.one", "ab/x"]
    files = [FileEntry(mode="100644", path=f"bases/{n}", digest="d", size=0) for n in names]
    found = [f.path for f in files_of_base(files, bases[0], bases)]
    assert found == ["Dockerfile.one", "x"]


def test_long_parts_of_a_report_become_digests() -> None:
    long = {f"test {n}": "passed" for n in range(1000)}
    evidence = evidence_of(report("selfcheck", ADDER, data={"short": [1, 2], "tests": long}))
    assert evidence.data["short"] == [1, 2]
    assert evidence.data["tests"] == {"blake3": digest.of_json(long), "entries": 1000}


def test_text_that_no_file_can_hold_is_spelled_out() -> None:
    evidence = evidence_of(
        report("selfcheck", ADDER, summary="\ud800", data={"a": {"\udfff": "\ud800"}})
    )
    assert evidence.summary == "\\ud800"
    assert digest.canonical_json(to_json(evidence))


@pytest.mark.parametrize(("name", "kind"), [("lock", Lock), ("changes", Changes)])
def test_schema_and_records_agree(name: str, kind: type) -> None:
    schema = json.loads((ROOT / f"schemas/{name}.schema.json").read_bytes())
    compare(kind, schema, schema)


def compare(kind: Any, node: Any, schema: Any) -> None:
    """Every record has exactly the keys that the schema has for it."""
    node = resolved(node, schema)
    if not is_dataclass(kind):
        for inner in get_args(kind):
            below = node.get("items") or node.get("additionalProperties") or node
            if is_dataclass(inner) or get_args(inner):
                compare(inner, below, schema)
        return
    assert isinstance(kind, type)
    assert {f.name for f in fields(kind)} == node["properties"].keys(), kind
    assert set(node["required"]) == node["properties"].keys(), kind
    for key, hint in get_type_hints(kind).items():
        compare(hint, node["properties"][key], schema)


def resolved(node: Any, schema: Any) -> Any:
    if not isinstance(node, dict):
        return {}
    if "anyOf" in node:
        return resolved(node["anyOf"][0], schema)
    name = node.get("$ref", "").rpartition("/")[2]
    return schema["$defs"][name] if name else node
