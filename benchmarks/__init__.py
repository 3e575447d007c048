"""How fast the graph is, as ratios to named yardsticks: `python -m benchmarks`."""
