"""A table inside tables. Imports nothing of ours: a run with nothing to do loads it, too."""

from collections.abc import Mapping
from typing import Any


def table(value: Mapping[str, Any] | None, *keys: str) -> Mapping[str, Any]:
    """The table under these keys; empty where it is missing or something else stands there."""
    here: Any = value or {}
    for key in keys:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}
