"""Findings as SARIF, as annotations and as lines: valid, stable, and safe from what they say."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kbench_build.model import Finding
from kbench_build.rules import annotations, outline, sarif
from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS
from kbench_build.rules.dataset_checks import DATASET_CHECKS
from kbench_build.rules.findings import Check
from kbench_build.rules.places import Placed, place, spot
from tests.sarif_schema import check_sarif, validator

CHECKS: tuple[Check[Any], ...] = (*TASK_CHECKS, *BASE_CHECKS, *DATASET_CHECKS)
FINDING = Finding(
    rule="layout/link",
    severity="error",
    file="tasks/a/tests/out",
    where="line 3, column 9",
    message="leads out of the task",
    mend="Remove the link.",
)


def log(*placed: Placed, **changes: Any) -> Any:
    value = sarif.sarif_log(CHECKS, placed, version="1.2.3", **changes)
    value = json.loads(json.dumps(value))
    check_sarif(value)
    return value["runs"][0]


def prints(*placed: Placed) -> list[str]:
    found = [result["partialFingerprints"] for result in log(*placed)["results"]]
    return [value["primaryLocationLineHash"] for value in found]


def test_the_schema_refuses_what_is_no_log() -> None:
    assert list(validator().iter_errors({"version": "2.1.0", "runs": [{"results": 3}]}))


def test_a_result_says_rule_level_place_and_mend() -> None:
    run = log(place(FINDING, folder="data/set"))
    result = run["results"][0]
    assert (result["ruleId"], result["level"]) == ("layout/link", "error")
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "data/set/tasks/a/tests/out"
    assert physical["region"] == {"startLine": 3, "startColumn": 9}
    assert "Remove the link." in result["message"]["text"]
    assert result["suppressions"] == []


@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_severities_are_levels(severity: Any) -> None:
    assert log(place(replace(FINDING, severity=severity)))["results"][0]["level"] == severity


def test_every_rule_says_why_how_to_mend_and_where_to_read_on() -> None:
    rules = {
        rule["id"]: rule
        for rule in log(docs="https://example.org/kbench/")["tool"]["driver"]["rules"]
    }
    assert set(rules) == {check.id for check in CHECKS}
    for check in CHECKS:
        rule = rules[check.id]
        assert rule["shortDescription"]["text"] == check.why
        assert rule["help"]["text"].startswith(check.mend)
        assert rule["defaultConfiguration"]["level"] == check.severity
        anchor = check.id.replace("/", "")
        assert rule["helpUri"] == f"https://example.org/kbench/docs/checks.md#{anchor}"
        assert f"docs/checks.md#{anchor}" in rule["help"]["text"]


def test_without_an_address_of_the_docs_there_is_no_link() -> None:
    assert not any("helpUri" in rule for rule in log()["tool"]["driver"]["rules"])


def test_a_rule_without_a_check_is_described_by_its_finding() -> None:
    run = log(place(replace(FINDING, rule="some/where")))
    rule = run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]
    assert (rule["id"], rule["shortDescription"]["text"]) == ("some/where", "Remove the link.")


def test_what_was_answered_for_is_a_suppression_with_its_reason() -> None:
    result = log(place(FINDING, reason="it must"))["results"][0]
    assert result["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "it must"}
    ]


def test_what_wasnt_checked_is_said() -> None:
    said = log(notes=["no licence"])["invocations"][0]["toolExecutionNotifications"]
    assert said == [{"level": "note", "message": {"text": "no licence"}}]


def test_a_fingerprint_stays_when_lines_move() -> None:
    twice = replace(FINDING, where="line 8", message="the same as in line 3")
    moved = replace(FINDING, where="line 80", message="the same as in line 75")
    assert prints(place(twice)) == prints(place(moved))
    others = [
        replace(twice, rule="layout/name"),
        replace(twice, file="tasks/b/tests/out"),
        replace(twice, message="another"),
        replace(twice, where="cpus"),
    ]
    assert len({prints(place(finding))[0] for finding in (twice, *others)}) == 5
    assert len(set(prints(place(twice), place(moved)))) == 2


def test_a_place_that_is_no_line_is_named_logically() -> None:
    location = log(place(replace(FINDING, where="f2p_tests[3]")))["results"][0]["locations"][0]
    assert location["logicalLocations"] == [{"fullyQualifiedName": "f2p_tests[3]"}]
    assert location["physicalLocation"]["region"] == {"startLine": 1}
    assert "logicalLocations" not in log(place(FINDING))["results"][0]["locations"][0]


def test_no_more_results_than_a_log_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 3)
    run = log(*(place(replace(FINDING, where=f"line {n}")) for n in range(1, 9)))
    assert len(run["results"]) == 3
    said = run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert said == "5 more findings aren't listed: a log holds at most 3"


NASTY = [
    "a\nb",
    "a\r\n::error::b",
    "::set-env name=X::y",
    "\x1b[31mred",
    "\udc80\udcff",
    "%0A%25",
    "a,b:c=d",
    "\u2028\u202e",
    "x" * 100_000,
    "#?&<>\"'`$(id)",
    "##[error]x",
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_what_a_finding_says_breaks_no_form(text: str) -> None:
    finding = Finding(
        rule="layout/name", severity="warning", file=text, where=text, message=text, mend=text
    )
    item = place(finding, folder=text, reason="")
    run = log(item, replace(item, reason=text))
    assert len(run["results"]) == 2
    said = list(annotations.commands([item], "all"))
    assert len(said) == 2
    assert all("\n" not in line and "\r" not in line for line in said)
    assert said[0].startswith("::warning file=")
    properties = said[0].removeprefix("::warning ").split("::", 1)[0].split(",")
    assert [p.split("=", 1)[0] for p in properties] == ["file", "line", "title"]
    lines = list(outline.outline([item, replace(item, reason=text)], [text]))
    assert all(line.isprintable() and "\n" not in line for _, line in lines)


def test_annotations_are_as_many_as_github_shows() -> None:
    many = [
        place(replace(FINDING, severity=severity, where=f"line {n}"))
        for severity in ("error", "warning", "note")
        for n in range(1, 31)
    ]
    said = list(annotations.commands([*many, place(FINDING, reason="so")], "90 findings"))
    for command in ("::error ", "::warning ", "::notice "):
        assert sum(line.startswith(command) for line in said) == 10
    assert said[-1] == (
        "::notice title=kbench validate::90 findings;"
        " 61 of them aren't annotated: `kbench validate` lists all"
    )


def test_what_was_answered_for_is_in_the_log_and_no_command_of_any_kind() -> None:
    finding = replace(FINDING, file="tasks/a/##[add-mask]\n::error::x")
    said = list(annotations.commands([place(finding, reason="so")] * 60, ""))
    assert said[0] == "::group::60 suppressed"
    assert len(said) == 1 + 50 + 3
    assert all(line.startswith("suppressed: ") and "##[" not in line for line in said[1:51])
    assert said[51:53] == ["and 10 more: `kbench validate` lists all", "::endgroup::"]


def test_an_annotation_has_file_line_column_and_title() -> None:
    said = next(iter(annotations.commands([place(FINDING)], "")))
    assert said == (
        "::error file=tasks/a/tests/out,line=3,col=9,title=layout/link"
        "::line 3, column 9: leads out of the task%0ARemove the link."
    )


def test_lines_name_a_file_once_and_a_mend_once_for_those_that_share_it() -> None:
    items = [place(replace(FINDING, where=f"line {n}")) for n in (1, 2)]
    other = place(replace(FINDING, rule="layout/name", mend="Rename it."))
    said = [kind for kind, _ in outline.outline([*items, other], [])]
    assert said == ["file", "error", "error", "mend", "error", "mend"]


# Places.

TOML = """# [metadata]
schema_version = "1.4"

[metadata]
tags = ["a"]

[metadata.source]
license = "MIT"
"odd key" = 1

[[steps]]
name = "one"
[[steps]]
name = "two"

[agent] # a comment
env.PATH = "x"
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("schema_version", 2),
        ("metadata.tags[0]", 5),
        ("metadata.source.license", 8),
        ("metadata.source.missing", 7),
        ("steps[1].name", 14),
        ("steps[0].name", 12),
        ("agent.env.PATH", 17),
        ("agent.network_mode", 16),
        ("environment.cpus", 0),
        ("license", 0),
        ("", 0),
    ],
)
def test_a_key_of_toml_is_found(where: str, line: int) -> None:
    finding = replace(FINDING, file="tasks/a/task.toml", where=where)
    assert place(finding, text=TOML).line == line


def test_a_key_of_json_is_found() -> None:
    text = '{\n  "f2p_tests": ["p2p_tests"],\n  "p2p_tests": [\n    "x"\n  ]\n}\n'
    finding = replace(FINDING, file="tasks/a/tests/expected_tests.json", where="p2p_tests[0]")
    assert place(finding, text=text).line == 3
    assert place(replace(finding, where="f2p_tests[7]"), text=text).line == 2
    assert place(replace(finding, where="other"), text=text).line == 1
    assert place(replace(finding, where="p2p_tests[0]"), text="").line == 0


def test_lines_in_the_place_of_a_key() -> None:
    assert spot("line 12, column 3") == (12, 3)
    assert spot("line 12") == (12, 0)
    assert spot("lines 4 and 5") == (4, 0)
    assert spot("line 0") == (1, 0)
    assert spot("hidden['line 3']") is None
    assert spot("line 99999999999999999999") is None


def test_a_long_text_of_brackets_takes_no_time() -> None:
    finding = replace(FINDING, file="tasks/a/task.toml", where="a.b")
    for text in ("[" * 1_000_000, "[a" * 300_000, "a." * 300_000, "\n".join(["[[a]]"] * 100_000)):
        place(finding, text=text)
