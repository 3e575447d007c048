"""Make the release of a dataset whose reports are there: tarball, lock, digests.

Arguments: the dataset's root, the number of threads. Prints the MB (10⁶ bytes) that this process
and its compressor held at most, together.
"""

import resource
import sys
from pathlib import Path

from kbench_build.model import DATASET
from kbench_build.plan import Plan
from kbench_build.steps import release

plan = Plan(Path(sys.argv[1]))
inputs = plan.steps["release"].inputs(DATASET)
dataset = plan.survey.dataset
report = release.release(dataset, plan.proof(), inputs=inputs, threads=int(sys.argv[2]))
if not report.ok:
    sys.exit(report.summary)
peaks = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(peak.ru_maxrss for peak in peaks) * 1024 / 1e6)
