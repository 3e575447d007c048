"""Make the release of a dataset whose reports are there: tarball, lock, digests.

Arguments: the dataset's root, the number of threads. Prints the seconds, less the imports.
"""

import sys
import time
from pathlib import Path

from kbench_build.model import DATASET
from kbench_build.plan import Plan
from kbench_build.steps import release

began = time.perf_counter()
plan = Plan(Path(sys.argv[1]))
inputs = plan.steps["release"].inputs(DATASET)
dataset = plan.survey.dataset
report = release.release(
    dataset,
    plan.proof(),
    inputs=inputs,
    known=plan.survey.listings,
    threads=int(sys.argv[2]),
)
if not report.ok:
    sys.exit(report.summary)
print(time.perf_counter() - began)
