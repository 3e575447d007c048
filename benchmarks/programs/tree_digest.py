"""The digest of every task's tree, as the survey takes it. Prints the seconds, less the imports."""

import concurrent.futures.thread  # noqa: F401 - what `scan_trees` imports when it is called
import sys
import time
from pathlib import Path

from kbench_build import digest
from kbench_build.rim.tree import scan_trees

began = time.perf_counter()
for files in scan_trees(sorted(Path(sys.argv[1]).iterdir())):
    digest.of_tree(files)
print(time.perf_counter() - began)
