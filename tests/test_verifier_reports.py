"""Reading JUnit XML, comparing it with what is expected, and wording report.json."""

import ast
import codecs
import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbench_build import runtime
from kbench_build.runtime import junit_compare
from kbench_build.runtime.junit_compare import Reading, read_report

RUNTIME = Path(runtime.__file__).parent


def suite(*cases: str, head: str = '<?xml version="1.0" encoding="UTF-8"?>\n') -> bytes:
    return f"{head}<testsuite name='s'>{''.join(cases)}</testsuite>\n".encode()


def case(name: str, inside: str = "", owner: str = "a.B") -> str:
    return f"<testcase classname={quoteattr(owner)} name={quoteattr(name)}>{inside}</testcase>"


def seen(data: bytes) -> dict[str, str]:
    reading = read_report(data)
    assert reading.error is None
    return {c.id: c.status for c in reading.cases}


def test_each_status_is_told_apart() -> None:
    data = suite(
        case("passes"),
        case("fails", "<failure message='x'>trace</failure>"),
        case("breaks", "<error/>"),
        case("is skipped", "<skipped/>"),
        case("fails and is skipped", "<skipped/><failure/>"),
        case("prints", "<system-out>&lt;failure/&gt;</system-out>"),
    )
    assert seen(data) == {
        "a.B.passes": "passed",
        "a.B.fails": "failed",
        "a.B.breaks": "failed",
        "a.B.is skipped": "skipped",
        "a.B.fails and is skipped": "failed",
        "a.B.prints": "passed",
    }


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("spaces and 'quotes' \"both\"", "a.B"),
        ("dollar $ -- dashes", "a.B$Inner"),
        ("caf\u00e9 \u2603 \U0001f600", "a.\u00dcber"),
        ("parameterised [1] x=2, y={a=b}", "a.B"),
        ("with @3f2a1b hash", "a.B"),
        ("ends in ()", "a.B"),
        (" leading and trailing ", "a.B"),
        ("two  spaces", "a.B"),
    ],
)
def test_ids_are_whole_and_exact(name: str, owner: str) -> None:
    assert seen(suite(case(name, owner=owner))) == {f"{owner}.{name}": "passed"}


def test_a_newline_in_an_id_is_kept() -> None:
    data = suite('<testcase classname="a.B" name="one&#10;two&#9;three"/>')
    assert seen(data) == {"a.B.one\ntwo\tthree": "passed"}


def test_a_case_without_a_class_is_its_name() -> None:
    assert seen(suite('<testcase name="alone"/>', '<testcase classname="" name="too"/>')) == {
        "alone": "passed",
        "too": "passed",
    }


def test_a_case_without_a_name_is_a_named_error() -> None:
    reading = read_report(suite('<testcase classname="a.B"/>', case("other")))
    assert [c.id for c in reading.cases] == ["a.B.other"]
    assert "no name" in (reading.error or "")


def test_suites_may_be_nested_in_suites() -> None:
    data = b"<testsuites><testsuite><testsuite>%b</testsuite>%b</testsuite></testsuites>"
    assert set(seen(data % (case("in").encode(), case("out").encode()))) == {"a.B.in", "a.B.out"}


def test_a_case_inside_other_elements_does_not_count() -> None:
    data = suite(f"<system-out>{case('fake')}</system-out>", case("real"))
    assert set(seen(data)) == {"a.B.real"}


def test_verdicts_deep_inside_a_case_do_not_count() -> None:
    data = suite(case("x", "<properties><failure/></properties>"))
    assert seen(data) == {"a.B.x": "passed"}


def test_namespaces_change_nothing() -> None:
    data = (
        b"<t:testsuite xmlns:t='urn:t'><t:testcase classname='a' name='b'><t:failure/></t:testcase>"
    )
    assert seen(data + b"</t:testsuite>") == {"a.b": "failed"}


def test_reruns_that_fail_count_as_failed_and_flaky_passes_are_named() -> None:
    data = suite(
        case("never", "<failure/><rerunFailure/>"),
        case("oddly", "<rerunError/>"),
        case("later", "<flakyFailure/><flakyError/>"),
    )
    assert seen(data) == {"a.B.never": "failed", "a.B.oddly": "failed", "a.B.later": "passed"}
    assert junit_compare.tally([read_report(data)]).flaky == ["a.B.later"]


def test_a_status_attribute_counts() -> None:
    data = suite(
        '<testcase classname="g" name="off" status="notrun"/>',
        '<testcase classname="g" name="bad" status="Failed"/>',
        '<testcase classname="g" name="ok" status="run" result="completed"/>',
    )
    assert seen(data) == {"g.off": "skipped", "g.bad": "failed", "g.ok": "passed"}


WAYS: dict[str, bytes] = {
    "plain": suite(case("caf\u00e9")),
    "no final newline": suite(case("caf\u00e9")).rstrip(b"\n"),
    "prolog on the root's line": suite(case("caf\u00e9"), head='<?xml version="1.0"?>'),
    "no prolog": suite(case("caf\u00e9"), head=""),
    "blank lines first": b"\n\n  " + suite(case("caf\u00e9")),
    "XML 1.1": suite(case("caf\u00e9"), head='<?xml version="1.1"?>'),
    "UTF-8 with a mark": codecs.BOM_UTF8 + suite(case("caf\u00e9")),
    "a mark, then a blank line": codecs.BOM_UTF8 + b"\n" + suite(case("caf\u00e9")),
    "UTF-16 with a mark": suite(case("caf\u00e9")).decode().encode("utf-16"),
    "UTF-16 big-endian": codecs.BOM_UTF16_BE
    + suite(case("caf\u00e9")).decode().encode("utf-16-be"),
    "UTF-16 without a mark": suite(case("caf\u00e9")).decode().encode("utf-16-le"),
    "UTF-16 big-endian without a mark": suite(case("caf\u00e9")).decode().encode("utf-16-be"),
    "UTF-32": suite(case("caf\u00e9")).decode().encode("utf-32"),
    "Latin-1": suite(case("caf\u00e9"), head='<?xml version="1.0" encoding="ISO-8859-1"?>')
    .decode()
    .encode("latin-1"),
    "Windows-1252": suite(case("caf\u00e9"), head="<?xml version='1.0' encoding='windows-1252'?>")
    .decode()
    .encode("cp1252"),
    "Windows line ends": suite(case("caf\u00e9")).replace(b"\n", b"\r\n"),
    "a comment and a style sheet": suite(
        "<!-- x -->",
        case("caf\u00e9"),
        head="<?xml version='1.0'?><?xml-stylesheet href='x'?><!-- -->",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_report_may_be_written_in_many_ways(way: str) -> None:
    assert seen(WAYS[way]) == {"a.B.caf\u00e9": "passed"}


BROKEN: dict[str, tuple[bytes, str]] = {
    "truncated": (suite(case("good"), case("lost"))[:-30], "line 2"),
    "cut inside a tag": (suite(case("good")).replace(b"</testsuite>\n", b"<testca"), "line 2"),
    "a crossed tag": (suite(case("good"), "</testcase>"), "mismatched"),
    "two documents": (suite(case("good")) + suite(case("more")), "line"),
    "an undefined entity": (suite(case("good"), "&nbsp;"), "undefined entity"),
    "a bad byte": (
        suite(case("good"), "<system-out>\ufffd</system-out>").replace("\ufffd".encode(), b"\xff"),
        "byte",
    ),
    "a control character": (suite(case("good"), "<system-out>\x1b[0m</system-out>"), "characters"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_broken_report_is_named_and_keeps_its_complete_cases(way: str) -> None:
    data, reason = BROKEN[way]
    reading = read_report(data)
    assert [c.id for c in reading.cases] == ["a.B.good"]
    assert reason in (reading.error or "")


def test_a_case_that_was_cut_short_does_not_count() -> None:
    data = suite(case("good"), case("bad", "<failure/>"))
    for end in range(data.index(b"</testcase>") + 11, data.rindex(b"</testcase>") + 10):
        assert [c.id for c in read_report(data[:end]).cases] == ["a.B.good"]


def test_what_follows_a_bad_byte_is_still_read() -> None:
    data = suite(case("bad\ufffd"), case("good")).replace("\ufffd".encode(), b"\xe9")
    reading = read_report(data)
    assert [c.id for c in reading.cases] == ["a.B.bad\ufffd", "a.B.good"]
    assert "byte" in (reading.error or "")


REFUSED: dict[str, tuple[bytes, str]] = {
    "a document type": (b"<!DOCTYPE testsuite><testsuite/>", "DOCTYPE"),
    "an entity bomb": (
        b'<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
        b'<testsuite><testcase classname="a" name="&b;"/></testsuite>',
        "DOCTYPE",
    ),
    "an external entity": (
        b'<!DOCTYPE t SYSTEM "file:///etc/passwd"><testsuite>&t;</testsuite>',
        "DOCTYPE",
    ),
    "a UTF-16 document type": (
        "<!DOCTYPE testsuite><testsuite/>".encode("utf-16"),
        "DOCTYPE",
    ),
    "an unknown encoding": (b'<?xml version="1.0" encoding="EBCDIC"?><testsuite/>', "encoding"),
    "a page": (b"<html><body/></html>", "html"),
    "nothing": (b"", "no element"),
    "no XML": (b"PK\3\4", "line 1"),
    "endless depth": (b"<testsuite>" * 500, "deep"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_a_hostile_or_foreign_file_is_refused_by_name(way: str) -> None:
    data, reason = REFUSED[way]
    reading = read_report(data)
    assert reading.cases == ()
    assert reason in (reading.error or "")


def test_a_huge_report_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_compare, "MAX_REPORT_BYTES", 100)
    assert "100 bytes" in (read_report(suite(case("x" * 100))).error or "")


def test_cases_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_compare, "MAX_CASES", 3)
    reading = read_report(suite(*(case(str(n)) for n in range(5))))
    assert len(reading.cases) == 3
    assert "more than 3" in (reading.error or "")


def test_the_worst_status_of_a_repeated_id_wins_and_repeats_are_counted() -> None:
    one = read_report(suite(case("x"), case("y", "<skipped/>"), case("z")))
    two = read_report(suite(case("x", "<failure/>"), case("y")))
    for order in ([one, two], [two, one]):
        total = junit_compare.tally(order)
        assert total.statuses == {"a.B.x": "failed", "a.B.y": "skipped", "a.B.z": "passed"}
        assert total.counts == {"a.B.x": 2, "a.B.y": 2}


# --- expected_tests.json, the judgement, report.json --------------------------------------------


def expected(**lists: Any) -> bytes:
    return json.dumps({"f2p_tests": ["a.B.x"], "p2p_tests": [], **lists}).encode()


def test_all_four_categories_must_pass() -> None:
    data = expected(p2p_tests=["p"], s2p_tests=["s"], n2p_tests=["n"])
    assert junit_compare.expected_ids(data) == {"a.B.x", "p", "s", "n"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (expected(f2p_tests="x"), "f2p_tests"),
        (expected(n2p_tests=[1]), "n2p_tests"),
        (expected(p2p_tests=None), "p2p_tests"),
        (expected(f2p_tests=[], p2p_tests=["p"]), "no test that the fix makes pass"),
        (b"{}", "no test that the fix makes pass"),
    ],
)
def test_useless_expectations_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(junit_compare.DataError, match=reason):
        junit_compare.expected_ids(data)


def readings(*cases: str) -> dict[str, Reading]:
    return {"TEST-a.xml": read_report(suite(*cases))}


def test_only_a_pass_of_everything_resolves() -> None:
    both = ["a.B.x", "a.B.y"]
    good = junit_compare.compare(both, readings(case("x"), case("y"), case("extra", "<error/>")))
    assert (good["reward"], good["outcome"]) == (1, "resolved")
    missing = junit_compare.compare(both, readings(case("x")))
    assert (missing["reward"], missing["missing"], missing["failed"]) == (0, ["a.B.y"], [])
    skipped = junit_compare.compare(both, readings(case("x"), case("y", "<skipped/>")))
    assert (skipped["reward"], skipped["missing"], skipped["failed"]) == (0, [], ["a.B.y"])


def test_nothing_expected_never_resolves() -> None:
    assert junit_compare.compare([], readings(case("x")))["reward"] == 0


def test_no_report_never_resolves() -> None:
    report = junit_compare.compare(["a"], {})
    assert (report["reward"], report["errors"][0]["kind"]) == (0, "no-reports")


def test_one_broken_report_among_good_ones_is_named_and_the_rest_counts() -> None:
    both = {
        **readings(case("x")),
        "b/TEST-b.xml": read_report(suite(case("y"), case("z"))[:-30]),
    }
    report = junit_compare.compare(["a.B.x", "a.B.y"], both)
    assert report["reward"] == 1
    assert [e["kind"] for e in report["errors"]] == ["report"]
    assert "b/TEST-b.xml" in report["errors"][0]["message"]
    assert [(r["file"], r["tests"]) for r in report["reports"]] == [
        ("TEST-a.xml", 1),
        ("b/TEST-b.xml", 1),
    ]
    assert junit_compare.compare(["a.B.x", "a.B.z"], both)["missing"] == ["a.B.z"]


@pytest.mark.parametrize("timed_out", [True, False])
@pytest.mark.parametrize("changed", [(), ("a/Test.kt",)])
@pytest.mark.parametrize("status", ["", "<failure/>"])
def test_a_score_follows_from_the_report_alone(
    timed_out: bool, changed: tuple[str, ...], status: str
) -> None:
    report = junit_compare.compare(
        ["a.B.x"], readings(case("x", status)), timed_out=timed_out, changed=changed
    )
    again = json.loads(junit_compare.dumps(report))
    assert again == report
    assert junit_compare.rescore(again, ["a.B.x"]) == report["reward"]
    assert report["reward"] == int(not timed_out and not changed and not status)


def test_a_verifier_error_rescores_to_0() -> None:
    report = junit_compare.empty_report("verifier-error", [])
    assert junit_compare.rescore({**report, "tests": {"a": "passed"}}, ["a"]) == 0


# --- anything at all ----------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1).filter(
    lambda name: not junit_compare._NOT_XML.search(name)
)
CASES = st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["", "<failure/>", "<skipped/>"])))
STATUS = {"": "passed", "<failure/>": "failed", "<skipped/>": "skipped"}
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])


def attribute(text: str) -> str:
    return quoteattr(text, {"\n": "&#10;", "\t": "&#9;"})


def document(cases: list[tuple[str, str, str]]) -> str:
    lines = [
        f"<testcase classname={attribute(owner)} name={attribute(name)}>{verdict}</testcase>"
        for owner, name, verdict in cases
    ]
    return f"<testsuite>{''.join(lines)}</testsuite>"


@settings(max_examples=150, deadline=None)
@given(cases=CASES, encoding=ENCODINGS)
def test_whatever_is_written_is_read_back(cases: list[tuple[str, str, str]], encoding: str) -> None:
    reading = read_report(document(cases).encode(encoding))
    assert reading.error is None
    assert [(c.id, c.status) for c in reading.cases] == [
        (f"{owner}.{name}", STATUS[verdict]) for owner, name, verdict in cases
    ]


@settings(max_examples=150, deadline=None)
@given(cases=CASES, cut=st.floats(0, 1))
def test_a_truncated_report_never_invents_a_case(
    cases: list[tuple[str, str, str]], cut: float
) -> None:
    whole = document(cases).encode()
    part = whole[: int(len(whole) * cut)]
    reading = read_report(part)
    full = read_report(whole).cases
    assert reading.cases == full[: len(reading.cases)]
    assert (reading.error is None) == (part == whole)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400) | st.text(max_size=200).map(lambda t: t.encode()))
def test_no_bytes_raise(data: bytes) -> None:
    for head in (b"", b"<testsuite>", b"<?xml version='1.0'?>", codecs.BOM_UTF16_LE):
        reading = read_report(head + data)
        assert reading.error is not None or reading.cases is not None


# --- what ships in tasks ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["junit_compare.py", "verify_checkout.py"])
def test_the_shipped_python_is_old_enough_and_imports_only_the_standard_library(name: str) -> None:
    import sys

    tree = ast.parse((RUNTIME / name).read_text(), feature_version=(3, 8))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    named = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
    named |= {n.module or "" for n in imports if isinstance(n, ast.ImportFrom)}
    assert {n.split(".")[0] for n in named} <= set(sys.stdlib_module_names)
