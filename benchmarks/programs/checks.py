"""All checks that need no repository, of every task and of the dataset, in this one process."""

import sys
from pathlib import Path

from kbench_build.plan import Plan

plan = Plan(Path(sys.argv[1]))
validate = plan.steps["validate"]
failed = [subject for subject in validate.subjects() if not validate.run(subject).ok]
if failed:
    raise SystemExit(f"the checks find errors in {len(failed)} subjects: {failed[0]}")
