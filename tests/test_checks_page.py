"""docs/checks.md is what the checks say, of every rule that there is."""

import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from kbench_build.rules.catalogue import BASE_CHECKS, TASK_CHECKS
from kbench_build.rules.dataset_checks import DATASET_CHECKS
from kbench_build.rules.findings import Check
from kbench_build.rules.sarif import anchor
from kbench_build.steps.validate import rule_ids
from tests.test_house import PACKAGE

SCRIPT = run_path(str(PACKAGE.parent / "scripts" / "checks_page.py"))
FAMILIES, OTHERS, PAGE, page = (SCRIPT[name] for name in ("FAMILIES", "OTHERS", "PAGE", "page"))

CHECKS: tuple[Check[Any], ...] = (*TASK_CHECKS, *BASE_CHECKS, *DATASET_CHECKS)
OTHER_RULES = [rule for rules in OTHERS.values() for rule in rules]
# What looks like a rule in the code and is none: keys of files, and paths.
NO_RULES = re.compile(
    r"(?:dataset|release|selfcheck|upstream|task|verifier)\.[a-z_]+|bases/manifest|seal\.json"
    r"|.*\.(?:py|sh|toml|md|json|patch|ya?ml)"
)


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/checks_page.py"


def test_the_script_says_whether_the_page_is_current(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/checks_page.py", "--check"]
    root = PACKAGE.parent
    assert subprocess.run(command, cwd=root, check=False, timeout=60).returncode == 0
    code = (
        "import sys, pathlib; sys.argv = ['x', '--check']; sys.path.insert(0, 'scripts');"
        f"import checks_page as page; page.ROOT = pathlib.Path({str(tmp_path)!r});"
        "page.PAGE = page.ROOT / 'checks.md';"
        "page.PAGE.write_text('old'); sys.exit(page.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=False, timeout=60, capture_output=True
    )
    assert (done.returncode, b"isn't current" in done.stdout) == (1, True)


def test_every_check_stands_on_the_page_under_its_anchor() -> None:
    headings = re.findall(r"^### (\S+/\S+)$", page(), re.MULTILINE)
    ids = [check.id for check in CHECKS]
    assert sorted(headings) == sorted(ids + [r for f in FAMILIES for r, *_ in OTHERS.get(f, ())])
    assert len({anchor(heading) for heading in headings}) == len(headings)


def test_every_family_is_described() -> None:
    assert {rule.partition("/")[0] for rule in rule_ids()} <= {*FAMILIES, "tests"}
    assert all(
        any(c.id.startswith(f"{family}/") for c in CHECKS) for family in {*FAMILIES} - {*OTHERS}
    )


def test_every_rule_in_the_code_stands_on_the_page() -> None:
    families = {*FAMILIES, *(re.split(r"[/.]", rule)[0] for rule, *_ in OTHER_RULES)}
    form = re.compile(rf'"((?:{"|".join(sorted(families))})[/.][a-z][a-z_0-9.-]*)"')
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = {rule for text in texts for rule in form.findall(text)}
    known = {check.id for check in CHECKS} | {rule for rule, *_ in OTHER_RULES}
    assert {rule for rule in named - known if not NO_RULES.fullmatch(rule)} == set()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_says_why_in_a_sentence_and_how_to_mend_it(check: Check[Any]) -> None:
    assert check.why.endswith(".")
    assert check.mend.endswith(".")
    assert check.why.count(". ") == 0, "one sentence"
    assert len(check.why) <= 240
