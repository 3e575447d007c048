"""Findings as a SARIF 2.1.0 log, for what reads the results of checks (code scanning, editors).

Promises: a JSON value that fits the standard's schema, whatever the findings say; no more results
than GitHub takes in; a fingerprint that stays when lines move. Writing it is left to others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kbench_build import digest
from kbench_build.model import Finding
from kbench_build.rules.findings import Check
from kbench_build.rules.places import Placed

# GitHub refuses a log with more results in a run.
MOST_RESULTS = 25_000
# Where rules are described: this page, at the anchor of the rule.
PAGE = "docs/checks.md"
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "%SRCROOT%"
# GitHub looks at this name alone; it would else hash the text of the line.
_FINGERPRINT = "primaryLocationLineHash"
_MOVING = re.compile(r"\b(line|lines|column) \d+")

Json = dict[str, Any]


def sarif_log(
    checks: Iterable[Check[Any]],
    placed: Sequence[Placed],
    *,
    version: str,
    notes: Sequence[str] = (),
    docs: str = "",
) -> Json:
    """The log of one run. `notes` say what wasn't checked.

    `docs` is the address of the folder that `docs/checks.md` is published in; rules link there.
    """
    listed = placed[:MOST_RESULTS]
    rules = _rules(checks, listed, docs)
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    results = [
        _result(item, index[item.finding.rule], print_)
        for item, print_ in zip(listed, _fingerprints(listed), strict=True)
    ]
    driver = {"name": "kbench-build", "version": version, "rules": rules}
    notes = (*notes, *_left_out(len(placed) - len(listed)))
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "kbench-validate/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The repository's root."}}},
        "invocations": [{"executionSuccessful": True, **_notifications(notes)}],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def anchor(rule: str) -> str:
    """The anchor of a rule's heading on the page, made as GitHub does: `layoutlink`."""
    return re.sub(r"[^a-z0-9_ -]", "", rule.lower()).replace(" ", "-")


def _rules(checks: Iterable[Check[Any]], placed: Iterable[Placed], docs: str) -> list[Json]:
    """What the log says of each rule; of one without a check, what its first finding does."""
    known = {
        check.id: _rule(check.id, check.severity, check.why, check.mend, docs) for check in checks
    }
    for item in placed:
        finding = item.finding
        if finding.rule not in known:
            known[finding.rule] = _rule(finding.rule, finding.severity, "", finding.mend, docs)
    return [known[rule] for rule in sorted(known)]


def _rule(rule: str, severity: str, why: str, mend: str, docs: str) -> Json:
    page = f"{PAGE}#{anchor(rule)}"
    address = {"helpUri": f"{docs.rstrip('/')}/{page}"} if docs else {}
    return {
        "id": rule,
        "shortDescription": {"text": why or mend},
        "defaultConfiguration": {"level": severity},
        "help": {"text": f"{mend} See {page}.", "markdown": f"{mend} See `{page}`."},
        "properties": {"tags": [rule.partition("/")[0]]},
        **address,
    }


def _result(item: Placed, index: int, fingerprint: str) -> Json:
    finding = item.finding
    answered = {"kind": "external", "status": "accepted", "justification": item.reason}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": _message(finding)},
        "locations": [_location(item)],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        "suppressions": [answered] if item.reason else [],
    }


def _message(finding: Finding) -> str:
    spot = f"{finding.where}: " if finding.where else ""
    return f"{spot}{finding.message}\n{finding.mend}"


def _location(item: Placed) -> Json:
    finding = item.finding
    file: Json = {"uri": uri(finding.file), "uriBaseId": _ROOT}
    column = {"startColumn": item.column} if item.column else {}
    # What shows findings beside lines wants one, for a whole file too.
    region = {"startLine": item.line or 1, **column}
    location: Json = {"physicalLocation": {"artifactLocation": file, "region": region}}
    if finding.where and not _MOVING.match(finding.where):
        location["logicalLocations"] = [{"fullyQualifiedName": finding.where}]
    return location


def uri(path: str) -> str:
    """A relative path as a URI, odd bytes and colons (which would make a scheme) escaped."""
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")


def _fingerprints(placed: Iterable[Placed]) -> Iterable[str]:
    """One a finding: the same while only lines move; those that say the same are counted."""
    counted: Counter[str] = Counter()
    for item in placed:
        finding = item.finding
        said = [_MOVING.sub(r"\1", text) for text in (finding.where, finding.message)]
        key = digest.of_json([finding.rule, finding.file, *said])[:32]
        counted[key] += 1
        yield f"{key}:{counted[key]}"


def _left_out(number: int) -> Sequence[str]:
    said = f"{number} more findings aren't listed: a log holds at most {MOST_RESULTS}"
    return (said,) if number > 0 else ()


def _notifications(notes: Iterable[str]) -> Mapping[str, list[Json]]:
    said = [{"level": "note", "message": {"text": note}} for note in notes]
    return {"toolExecutionNotifications": said} if said else {}
