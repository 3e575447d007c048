"""The build system for coding-agent benchmarks."""

__version__ = "0.1.0"
