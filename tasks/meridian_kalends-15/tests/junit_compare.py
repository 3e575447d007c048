"""Reads JUnit XML reports, compares them with `expected_tests.json`, and words `report.json`.

Promises: ids are whole and exact (`classname.name`), every case is counted, the worst status of a
repeated id wins, and a broken report is a named error that keeps its complete cases. A document
type or an entity is never read. Leaves to others: finding the reports, and writing anything.

It ships inside every task and is imported by the host too, so that a container and a re-score
can't disagree. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import codecs
import encodings.cp1252
import encodings.iso8859_1
import encodings.utf_16_be
import encodings.utf_16_le
import encodings.utf_32_be
import encodings.utf_32_le
import json
import re
from typing import Any, Iterable, Mapping, NamedTuple
from xml.parsers import expat

VERSION = 1
CATEGORIES = ("f2p_tests", "s2p_tests", "n2p_tests", "p2p_tests")
MAX_REPORT_BYTES = 64 * 1024 * 1024
MAX_CASES = 500_000
MAX_DEPTH = 100

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
_SEVERITY = {PASSED: 0, SKIPPED: 1, FAILED: 2}
_SUITES = ("testsuite", "testsuites")
_VERDICTS = {
    "failure": FAILED,
    "error": FAILED,
    "rerunFailure": FAILED,
    "rerunError": FAILED,
    "skipped": SKIPPED,
    "disabled": SKIPPED,
}
_STATUS_ATTRIBUTE = {
    "failed": FAILED,
    "failure": FAILED,
    "error": FAILED,
    "skipped": SKIPPED,
    "disabled": SKIPPED,
    "notrun": SKIPPED,
    "ignored": SKIPPED,
}
_FLAKY = ("flakyFailure", "flakyError")

# Imported above, so that no codec is looked up on disk once the tests have run.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, encodings.utf_32_le.getregentry().name),
    (codecs.BOM_UTF32_BE, encodings.utf_32_be.getregentry().name),
    (codecs.BOM_UTF16_LE, encodings.utf_16_le.getregentry().name),
    (codecs.BOM_UTF16_BE, encodings.utf_16_be.getregentry().name),
)
_DECLARED = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "utf-8",
    "ascii": "utf-8",
    "iso-8859-1": encodings.iso8859_1.getregentry().name,
    "latin-1": encodings.iso8859_1.getregentry().name,
    "windows-1252": encodings.cp1252.getregentry().name,
    "cp1252": encodings.cp1252.getregentry().name,
}
_ENCODING = re.compile(rb"""\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_DECLARATION = re.compile(r"\A\s*<\?xml\s[^>]{0,200}\?>")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """One test case of one report."""

    id: str
    status: str
    flaky: bool


class Reading(NamedTuple):
    """What one report holds: its complete cases, and what is wrong with it (or None)."""

    cases: tuple[Case, ...]
    error: str | None


class Tally(NamedTuple):
    """All reports together: the worst status of each id, how often ids repeat, flaky ids."""

    statuses: dict[str, str]
    counts: dict[str, int]
    flaky: list[str]


class Verdict(NamedTuple):
    """Whether all expected tests passed; which were in no report; which didn't pass."""

    resolved: bool
    missing: list[str]
    failed: list[str]


class DataError(ValueError):
    """The task's own data can't be used: the message says what and where."""


class _RefusedError(Exception):
    """The report holds something that is not read."""


def decode(data: bytes) -> tuple[str, str | None]:
    """The report's text, and what is wrong with its bytes (or None). Raises `_RefusedError`."""
    encoding, body = _encoding_of(data)
    try:
        text, error = body.decode(encoding), None
    except UnicodeDecodeError as bad:
        text = body.decode(encoding, "replace")
        error = f"byte {bad.start} is not {encoding}; replaced"
    clean, replaced = _NOT_XML.subn("\ufffd", text)
    if replaced and error is None:
        error = f"{replaced} characters that XML does not allow; replaced"
    return clean, error


def _encoding_of(data: bytes) -> tuple[str, bytes]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding, data[len(mark) :]
    if data[:2] == b"<\0":
        return "utf-16-le", data
    if data[:2] == b"\0<":
        return "utf-16-be", data
    declared = _ENCODING.match(data[:512])
    name = declared.group(1).decode("ascii").lower() if declared else "utf-8"
    if name not in _DECLARED:
        raise _RefusedError(f"encoding {name} is not read here")
    return _DECLARED[name], data


def worst(one: str, other: str) -> str:
    """The worse of two statuses: failed, then skipped, then passed."""
    return one if _SEVERITY[one] >= _SEVERITY[other] else other


class _Reader:
    """Collects the complete cases of one report while expat reads it."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.error: str | None = None
        self._path: list[str] = []
        self._open: Case | None = None

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition(":")[2]
        parent = self._path[-1] if self._path else None
        if parent is None and name not in _SUITES:
            raise _RefusedError(f"the root element is {name[:80]}, not testsuite or testsuites")
        if len(self._path) >= MAX_DEPTH:
            raise _RefusedError(f"elements are nested more than {MAX_DEPTH} deep")
        if name == "testcase" and parent in _SUITES:
            self._open = self._begin(attributes)
        elif parent == "testcase" and self._open is not None:
            self._open = _judged(self._open, name)
        self._path.append(name)

    def end(self, tag: str) -> None:
        self._path.pop()
        is_case = tag.rpartition(":")[2] == "testcase"
        if is_case and self._open is not None and self._path and self._path[-1] in _SUITES:
            self._keep(self._open)
            self._open = None

    def _begin(self, attributes: Mapping[str, str]) -> Case | None:
        name = attributes.get("name")
        if not name:
            self.error = self.error or "a testcase has no name; not counted"
            return None
        owner = attributes.get("classname")
        stated = attributes.get("status", attributes.get("result", "")).lower()
        status = _STATUS_ATTRIBUTE.get(stated, PASSED)
        return Case(f"{owner}.{name}" if owner else name, status, False)

    def _keep(self, case: Case) -> None:
        if len(self.cases) >= MAX_CASES:
            raise _RefusedError(f"more than {MAX_CASES} cases")
        self.cases.append(case)

    def doctype(self, *_: object) -> None:
        raise _RefusedError("it declares a document type (DOCTYPE), which is refused")

    def entity(self, *_: object) -> None:
        raise _RefusedError("it uses an entity, which is refused")


def _judged(case: Case, child: str) -> Case:
    status = worst(case.status, _VERDICTS.get(child, PASSED))
    return case._replace(status=status, flaky=case.flaky or child in _FLAKY)


def read_report(data: bytes) -> Reading:
    """The complete cases of one report's bytes, and its error if it has one. Never raises."""
    if len(data) > MAX_REPORT_BYTES:
        return Reading((), f"larger than {MAX_REPORT_BYTES} bytes")
    reader = _Reader()
    try:
        text, error = decode(data)
        _parse(_DECLARATION.sub(_line_ends, text, count=1), reader)
    except _RefusedError as refused:
        error = str(refused)
    except expat.ExpatError as broken:
        error = f"line {broken.lineno}, column {broken.offset}: {expat.ErrorString(broken.code)}"
    return Reading(tuple(reader.cases), error or reader.error)


def _line_ends(declaration: re.Match[str]) -> str:
    """What takes the XML declaration's place: its text is decoded already, its lines count."""
    return "\n" * declaration.group().count("\n")


def _parse(text: str, reader: _Reader) -> None:
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.EntityDeclHandler = reader.entity
    parser.SkippedEntityHandler = reader.entity
    parser.Parse(text.encode("utf-8"), True)


def tally(readings: Iterable[Reading]) -> Tally:
    """All reports together, ids in order of appearance."""
    statuses: dict[str, str] = {}
    counts: dict[str, int] = {}
    flaky: set[str] = set()
    for reading in readings:
        for case in reading.cases:
            statuses[case.id] = worst(case.status, statuses.get(case.id, PASSED))
            counts[case.id] = counts.get(case.id, 0) + 1
            if case.flaky:
                flaky.add(case.id)
    return Tally(statuses, {i: n for i, n in counts.items() if n > 1}, sorted(flaky))


def expected_ids(data: bytes, quarantined: Iterable[str] = ()) -> frozenset[str]:
    """All ids that must pass, from the bytes of `expected_tests.json`. Raises DataError.

    `quarantined` ids are left out; one that the fix makes pass must remain.
    """
    value = _object(data, "expected_tests.json")
    apart = frozenset(quarantined)
    lists = {name: _strings(value.get(name, []), name) for name in CATEGORIES}
    kept = {name: frozenset(ids) - apart for name, ids in lists.items()}
    if not any(kept[name] for name in CATEGORIES if name != "p2p_tests"):
        rest = " outside the quarantine" if apart else ""
        raise DataError(f"expected_tests.json names no test{rest} that the fix makes pass")
    return frozenset().union(*kept.values())


def quarantined_ids(data: bytes) -> frozenset[str]:
    """The ids that decide nothing, from the bytes of `quarantine.json`. Raises DataError."""
    tests = _object(data, "quarantine.json").get("tests")
    if not isinstance(tests, list) or not all(isinstance(t, dict) for t in tests):
        raise DataError("quarantine.json: tests is not a list of objects")
    ids = [test.get("id") for test in tests]
    if not all(isinstance(i, str) for i in ids):
        raise DataError("quarantine.json: a test has no id")
    return frozenset(ids)


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as bad:
        raise DataError(f"{name} is not JSON: {bad}") from bad
    if not isinstance(value, dict):
        raise DataError(f"{name} is not an object")
    return value


def _strings(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(i, str) for i in value):
        raise DataError(f"expected_tests.json: {name} is not a list of strings")
    return value


def judge(expected: Iterable[str], statuses: Mapping[str, str]) -> Verdict:
    """Compares the ids that must pass with what the reports say."""
    ids = sorted(expected)
    missing = [i for i in ids if i not in statuses]
    failed = [i for i in ids if i in statuses and statuses[i] != PASSED]
    return Verdict(bool(ids) and not missing and not failed, missing, failed)


def problem(kind: str, message: str) -> dict[str, str]:
    """One entry of `errors` in report.json."""
    return {"kind": kind, "message": message}


def empty_report(outcome: str, errors: list[dict[str, str]]) -> dict[str, Any]:
    """A report.json for a run that got no further: reward 0."""
    return {
        "version": VERSION,
        "reward": 0,
        "outcome": outcome,
        "errors": errors,
        "command": None,
        "reports": [],
        "tests": {},
        "counts": {},
        "flaky": [],
        "missing": [],
        "failed": [],
        "quarantined": [],
    }


def compare(
    expected: Iterable[str],
    readings: Mapping[str, Reading],
    *,
    timed_out: bool = False,
    changed: Iterable[str] = (),
    quarantined: Iterable[str] = (),
) -> dict[str, Any]:
    """report.json (without `command`) from the reports, keyed by their paths in the checkout.

    `changed` are hidden or protected files that were no longer what they must be after the run,
    `quarantined` ids that were left out of `expected`.
    """
    errors = [problem("tests-changed", f"{f}: changed while the tests ran") for f in changed]
    errors += [problem("report", f"{f}: {r.error}") for f, r in readings.items() if r.error]
    if not readings:
        errors.append(problem("no-reports", "the test command left no report"))
    total = tally(readings.values())
    verdict = judge(expected, total.statuses)
    reward = int(verdict.resolved and not timed_out and not any(changed))
    outcome = "timeout" if timed_out else "resolved" if reward else "unresolved"
    return {
        **empty_report(outcome, errors),
        "reward": reward,
        "reports": [
            {"file": f, "tests": len(r.cases), "error": r.error} for f, r in readings.items()
        ],
        "tests": total.statuses,
        "counts": total.counts,
        "flaky": total.flaky,
        "missing": verdict.missing,
        "failed": verdict.failed,
        "quarantined": sorted(quarantined),
    }


def rescore(report: Mapping[str, Any], expected: Iterable[str]) -> int:
    """The reward again, from a report.json and the ids that must pass, without running anything."""
    if report["outcome"] not in ("resolved", "unresolved"):
        return 0
    if any(e["kind"] == "tests-changed" for e in report["errors"]):
        return 0
    return int(judge(expected, report["tests"]).resolved)


def dumps(report: Mapping[str, Any]) -> bytes:
    """report.json's bytes: ASCII, so that any id can be written and read back."""
    return (json.dumps(report, ensure_ascii=True, indent=1) + "\n").encode("ascii")
