"""Verifiers of tasks' own that reward what they shouldn't."""

from pathlib import Path

from tests.defects.kit import Row, small

REWARD = "/logs/verifier/reward.txt"
JEST = f"""#!/bin/bash
echo 0 > {REWARD}
cd /app || exit 1
npx jest spec/adder.spec.js{{}}
status=$?
if [ $status -eq 0 ]; then
  echo 1 > {REWARD}
fi
"""
REPORTED = f"""#!/bin/bash
PATH=/usr/bin:/bin
echo 0 > {REWARD}
cd /app || exit 1
npx jest --json --outputFile=/tmp/report.json spec/adder.spec.js
node /tests/compare.js /tmp/report.json && echo 1 > {REWARD}
"""


def own(folder: Path, old: str, new: str) -> None:
    """A task of the own form whose test.sh has this changed."""
    small(folder).edit("tests/test.sh", old, new)


def plain(folder: Path, script: str) -> None:
    """A plain task with this test.sh."""
    small(folder, form="plain").write("tests/test.sh", script)


RUN = "./gradlew --offline test --continue\n"
DECIDES = "if python3 /tests/compare.py .; then\n"
SWALLOWED = (
    "./gradlew --offline test --continue || true\nexit_code=$?\n"
    "if ls /tmp/reports/*.xml; then\n  python3 /tests/compare.py .\n  exit_code=$?\nfi\n"
)
KEPT = SWALLOWED.replace(" || true", "")

ROWS: tuple[Row, ...] = (
    Row(
        row="exit code swallowed",
        rule="verifier/exit-code",
        defect=lambda folder: own(
            folder, RUN + DECIDES, SWALLOWED + "if [ $exit_code -eq 0 ]; then\n"
        ),
        twin=lambda folder: own(folder, RUN + DECIDES, KEPT + "if [ $exit_code -eq 0 ]; then\n"),
    ),
    Row(
        row="crash passes",
        rule="verifier/empty-run",
        defect=lambda folder: plain(folder, JEST.format(" --passWithNoTests")),
        twin=lambda folder: plain(folder, JEST.format("")),
    ),
    Row(
        row="crash passes",
        rule="verifier/exit-code-only",
        defect=lambda folder: plain(folder, JEST.format("")),
        twin=lambda folder: plain(folder, REPORTED),
    ),
)
