"""Reads a root file system as a tar on stdin and writes it to stdout in one normal form.

Members are sorted by path, times are clamped to SOURCE_DATE_EPOCH, and what belongs to the machine
that made it (devices, resolver, host names, machine id, the engine's marker) is left out. Owners,
modes, links and contents stay as they are.
"""

import copy
import os
import sys
import tarfile
import tempfile

OWN_TO_A_MACHINE = {".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id"}
EMPTY_FOLDERS = ("dev/", "proc/", "sys/")


def is_kept(path: str) -> bool:
    """Say whether a member, named relative to the root, belongs into the image."""
    return path not in OWN_TO_A_MACHINE and not path.startswith(EMPTY_FOLDERS)


def normalised(member: tarfile.TarInfo, newest: int) -> tarfile.TarInfo:
    """Give the same member with plain paths, a clamped time and numeric owners only."""
    # TarInfo.replace is newer than the Python of Debian 12.
    plain = copy.copy(member)
    plain.name = member.name.removeprefix("./")
    if member.islnk():
        plain.linkname = member.linkname.removeprefix("./")
    plain.mtime = min(int(member.mtime), newest)
    plain.uname = plain.gname = ""
    return plain


def main() -> None:
    """Copy the archive; it is spooled to a file because a pipe can't be read out of order."""
    newest = int(os.environ["SOURCE_DATE_EPOCH"])
    with tempfile.TemporaryFile() as spool:
        while block := sys.stdin.buffer.read(1 << 20):
            spool.write(block)
        spool.seek(0)
        source = tarfile.open(fileobj=spool, mode="r:")
        target = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT)
        with source, target:
            # A hard link comes after the file that it names.
            for member in sorted(source, key=lambda m: (m.islnk(), m.name.removeprefix("./"))):
                path = member.name.removeprefix("./")
                if path in ("", ".") or not is_kept(path):
                    continue
                data = source.extractfile(member) if member.isreg() else None
                target.addfile(normalised(member, newest), data)


if __name__ == "__main__":
    main()
