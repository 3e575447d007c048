"""Recognises the texts of licences, by `identify`'s copy of the well-known ones.

Promises: a text that differs from a known one by less than 5 % is that one, holders and years
aside; hostile content costs bounded time. Leaves what it means to `rules.licence`.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

LARGEST = 128 << 10


def recognised(texts: Mapping[str, bytes]) -> Mapping[str, str]:
    """The SPDX id of each text, by its file's name; empty where it isn't known."""
    with TemporaryDirectory(prefix="kbench-licence-") as scratch:
        return {name: _recognised(data, Path(scratch) / "text") for name, data in texts.items()}


def _recognised(data: bytes, place: Path) -> str:
    from identify.identify import license_id  # noqa: PLC0415 - only when asked for

    if len(data) > LARGEST:
        return ""
    place.write_bytes(data)
    try:
        return license_id(str(place)) or ""
    except ValueError:  # isn't UTF-8
        return ""
