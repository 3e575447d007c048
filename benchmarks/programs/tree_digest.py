"""The digest of every task's tree, as the survey takes it. Prints the seconds, less the imports."""

import sys
import time
from pathlib import Path

from kbench_build import digest
from kbench_build.rim.tree import scan_tree

began = time.perf_counter()
for task in sorted(Path(sys.argv[1]).iterdir()):
    digest.of_tree(scan_tree(task))
print(time.perf_counter() - began)
