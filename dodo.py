"""The dataset's graph: `doit list` shows it, `doit help` explains doit."""

from kbench_build.graph import load

load(globals())
