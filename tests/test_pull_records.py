"""Pull request data from files: both forms that GitHub's tools write, and broken lines."""

import json
from typing import Any

import pytest

from kbench_build.rules.forge_lines import Problem
from kbench_build.rules.merges import Pull
from kbench_build.rules.pull_records import read_records

API: dict[str, Any] = {
    "number": 12,
    "title": "Keep the last line",
    "body": "Fixes #3",
    "user": {"login": "ada"},
    "labels": [{"name": "bug"}, {"name": "good first issue"}],
    "created_at": "2024-01-02T03:04:05Z",
    "merged_at": "2024-01-03T00:00:00Z",
    "html_url": "https://github.com/acme/text/pull/12",
    "merge_commit_sha": "c" * 40,
    "commits": 3,
}
GH: dict[str, Any] = {
    "number": 12,
    "title": "Keep the last line",
    "body": "Fixes #3",
    "author": {"login": "ada"},
    "labels": [{"name": "bug"}, {"name": "good first issue"}],
    "createdAt": "2024-01-02T03:04:05Z",
    "mergedAt": "2024-01-03T00:00:00Z",
    "url": "https://github.com/acme/text/pull/12",
    "mergeCommit": {"oid": "c" * 40},
    "commits": [{"oid": "1"}, {"oid": "2"}, {"oid": "3"}],
}


@pytest.mark.parametrize("record", [API, GH])
def test_both_forms_are_read(record: dict[str, Any]) -> None:
    found = read_records([json.dumps(record).encode()])
    assert found.pulls == (
        Pull(
            number=12,
            title="Keep the last line",
            body="Fixes #3",
            author="ada",
            labels=("bug", "good first issue"),
            created=1704164645,
            merged=1704240000,
            url="https://github.com/acme/text/pull/12",
            merge_commit="c" * 40,
            commits=3,
        ),
    )


def test_what_wasnt_merged_is_counted() -> None:
    lines = [json.dumps(API | {"merged_at": None, "number": n}).encode() for n in (1, 2)]
    found = read_records(lines)
    assert (found.pulls, found.unmerged) == ((), 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "number: must be"),
        (b'{"number": true}', "number: must be"),
        (b'{"number": -1}', "number: must be"),
        (b'{"number": "12"}', "number: must be"),
        (b"\xff", "is no JSON"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_read(line: bytes, message: str) -> None:
    found = read_records([b"\n", line, json.dumps(API).encode()])
    assert [p.number for p in found.pulls] == [12]
    ((problem),) = found.problems
    assert problem.line == 2
    assert message in problem.message
    assert isinstance(problem, Problem)


def test_odd_fields_are_empty() -> None:
    odd = {"number": 3, "mergedAt": "2024-01-03", "title": 7, "labels": "bug", "author": "ada"}
    (pull,) = read_records([json.dumps(odd).encode()]).pulls
    assert (pull.title, pull.labels, pull.author, pull.commits) == ("", (), "ada", 0)
    assert pull.merged == 1704240000


def test_the_last_of_a_number_counts() -> None:
    lines = [json.dumps(API | {"title": title}).encode() for title in ("old", "new")]
    assert [p.title for p in read_records(lines).pulls] == ["new"]
