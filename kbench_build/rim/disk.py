"""How much of a disk is free."""

import shutil


def free_bytes(folder: str) -> int | None:
    """What an ordinary user may still write below a folder; None where that can't be seen."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
