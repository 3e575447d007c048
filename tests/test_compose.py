"""A compose file is read as Compose reads it; a hostile one costs bounded time and memory."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build.rules.compose import ComposeFile, read_compose
from kbench_build.rules.yaml_nodes import LONGEST


def images(text: str) -> dict[str, str]:
    found = read_compose(text.encode())
    assert not found.problems
    return {service.name: service.image for service in found.services}


def refused(data: bytes | str) -> list[tuple[int, str]]:
    found = read_compose(data.encode() if isinstance(data, str) else data)
    assert not found.services
    return [(problem.line, problem.message) for problem in found.problems]


# What Compose v5 makes of each text was seen with `docker compose config`.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"services": {"main": {"image": "ns/x"}}}', {"main": "ns/x"}),
        ("services:\n  main:\n    image: >-\n      ns/x\n", {"main": "ns/x"}),
        ("services:\n  main:\n    'image' : 'ns/x' # why\n", {"main": "ns/x"}),
        ("services: {}\n", {}),
        ("name: x\n", {}),
        # Only what a service is given counts.
        ("x-a: {image: q}\nservices: {main: {build: .}}\n", {"main": ""}),
        ("services:\n  main:\n    build: .\n    labels:\n      image: q\n", {"main": ""}),
        ("services:\n  main:\n    image: a\n    command: |\n      image: q\n", {"main": "a"}),
        # Merges, and anchors that are given anew.
        ("x-a: &a {image: p}\nservices:\n  main:\n    <<: *a\n", {"main": "p"}),
        ("x-a: &a {image: p}\nservices:\n  main:\n    <<: *a\n    image: z\n", {"main": "z"}),
        (
            "x-a: &a {image: p}\nx-b: &b {image: q}\nservices:\n  main:\n    <<: [*a, *b]\n",
            {"main": "p"},
        ),
        ("x-a: &a {image: p}\nx-b: &a {image: q}\nservices: {m: {<<: *a}}\n", {"m": "q"}),
        ("x-a: &a\n  services: {main: {image: x}}\n<<: *a\n", {"main": "x"}),
        # Documents after the first.
        (
            "services: {a: {image: x}}\n---\nservices:\n  a: {image: y}\n  b: {image: z}\n",
            {"a": "y", "b": "z"},
        ),
        ("services: {a: {image: x}}\n---\nservices: {a: !reset null}\n", {}),
        ("services:\n  a:\n    image: !reset null\n    build: .\n", {"a": ""}),
        # What nothing sets.
        ("services: {a: {image: '${IMAGE:-ns/y}'}}\n", {"a": "ns/y"}),
        ("services: {a: {image: '${IMAGE}'}}\n", {"a": "${IMAGE}"}),
        ("\ufeffservices: {a: {image: x}}\n", {"a": "x"}),
        ("services:\n  on: {image: x}\n", {"on": "x"}),
    ],
)
def test_services_are_those_that_compose_sees(text: str, expected: dict[str, str]) -> None:
    assert images(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 0, "empty"),
        ("# nothing\n", 0, "empty"),
        ("- a\n", 1, "no mapping"),
        ("services:\n\tmain:\n", 2, "cannot start any token"),
        ("services:\n  main:\n", 2, "'main' is no mapping"),
        ("services:\n", 1, "'services' is no mapping"),
        ("services:\n  - image: x\n", 2, "'services' is no mapping"),
        ("main:\n  image: x\n", 2, "'main' isn't below 'services'"),
        ("services:\n  a: {image: x}\n  a: {image: y}\n", 3, "'a' is there already"),
        ("services:\n  a:\n    image: x\n    image: y\n", 4, "'image' is there already"),
        ("x-a: {b: 1, b: 2}\nservices: {}\n", 1, "'b' is there already"),
        ("services:\n  main:\n    <<: *a\n", 3, "the anchor 'a' isn't there"),
        ("services:\n  main: &m\n    <<: *m\n", 3, "the anchor 'm' holds itself"),
    ],
)
def test_what_compose_refuses_is_named_with_its_line(text: str, line: int, says: str) -> None:
    ((found, message),) = refused(text)
    assert found == line
    assert says in message


def bomb(width: int, levels: int) -> str:
    letters = [chr(code) for code in range(97, 97 + levels)]
    rows = [
        f"x-{now}: &{now} [{', '.join([f'*{before}'] * width)}]\n"
        for before, now in pairwise(letters)
    ]
    return f"x-a: &a [{', '.join('x' * width)}]\n" + "".join(rows) + "services: {}\n"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "aliases of aliases": (bomb(9, 20).encode(), "unfolds to more than 100,000 values"),
    "one large thing again and again": (
        b"x-a: &a [" + b"x," * 300 + b"]\nx-b: [" + b"*a," * 400 + b"]\n",
        "unfolds to more than 100,000 values",
    ),
    "too long": (b"a: b\n" * (LONGEST // 5 + 1), "longer than 128 KiB"),
    "lists in lists": (b"[" * (LONGEST - 1), "nest"),
    "lists in lists, closed": (b"[" * 60_000 + b"]" * 60_000, "nest"),
    "mappings in mappings": (b"{a: " * 30_000, "nest"),
    "blocks in blocks": (b"- " * 60_000, "nest"),
    "lists in lists, not too many": (b"[" * 200 + b"]" * 200, "nested more than 100 deep"),
    "keys without an end": (b"[" * 90 + b"a," * 60_000, "expected node content"),
    "no text": (b"a: \x01\n", "control characters"),
    "no UTF-8": (b"services: {a: {image: \xff}}\n", "UTF-8"),
    "a program": (b"services: !!python/object/apply:os.system [touch /tmp/x]\n", "no mapping"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_soon(case: str) -> None:
    data, says = HOSTILE[case]
    started = time.process_time()
    ((_, message),) = refused(data)
    assert says in message
    assert time.process_time() - started < 3


def test_many_services_that_merge_one_another_take_no_time() -> None:
    rows = "".join(f"  s{n}: &s{n}\n    <<: *s{n - 1}\n" for n in range(1, 300))
    started = time.process_time()
    found = read_compose(f"services:\n  s0: &s0 {{image: deep}}\n{rows}".encode())
    assert {service.image for service in found.services} == {"deep"}
    assert time.process_time() - started < 3


def test_nothing_is_made_of_a_tag(tmp_path: Path) -> None:
    mark = tmp_path / "made"
    call = f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{mark}]]"
    read_compose(f"services:\n  a:\n    image: {call}\n".encode())
    assert not mark.exists()


@settings(max_examples=300)
@given(st.text(alphabet="&*a:<- \n[]{}!'\"|>#?,%x", max_size=60))
def test_any_text_ends_in_an_answer(text: str) -> None:
    assert isinstance(read_compose(text.encode()), ComposeFile)
