"""The files that go into tasks and containers, as they lie in this package."""

from importlib import resources


def shipped_file(name: str) -> bytes:
    """The content of a file of `runtime/`."""
    return (resources.files("kbench_build.runtime") / name).read_bytes()
