"""Make a generated file of a build context with its own command, and hold it against its pin.

The file stands in `.kbench/inputs/<repo>/`, whole or not at all; a file that its pin refuses is
never put there. The command runs on this machine: it is the dataset's own script, like a Makefile.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from kbench_build.errors import KbenchError
from kbench_build.model import Report
from kbench_build.rim import process
from kbench_build.rim.store import STATE
from kbench_build.rules.base_inputs import BaseInput, heads_digest, inputs_file

STEP = "base_inputs"
TIMEOUT_SEC = 3600.0
OUTPUT = "KBENCH_OUTPUT"
_CHUNK = 1 << 20


def place(root: Path, item: BaseInput) -> Path:
    """Where an input's file stands once it is made."""
    return root / STATE / "inputs" / item.repo / item.file


def make_input(root: Path, item: BaseInput, *, inputs: str) -> Report:
    """Make the file, unless the right one is there already. A wrong digest isn't ok."""
    began = time.monotonic()
    target = place(root, item)
    held = _found(target, item)
    made = held if held and held == item.pin else _made(root, item, target)
    ok = item.pin_kind == "unpinned" or made == item.pin
    size = target.stat().st_size if ok else 0
    return Report(
        step=STEP,
        subject=item.name,
        inputs=inputs,
        ok=ok,
        summary=f"{size} bytes, {_pin_words(item)}" if ok else _difference(item, made),
        seconds=time.monotonic() - began,
        made=made if ok else "",
        data={"digest": made, "size": size, "pin": item.pin_kind},
    )


def make_again(root: Path, item: BaseInput) -> str:
    """Run the command and throw away what it makes; returns its identity (see `make_input`).

    Raises `KbenchError` where the command fails.
    """
    with _making(root, item) as output:
        return _identity(output, item)


def _made(root: Path, item: BaseInput, target: Path) -> str:
    """Run the command; returns the identity of what it made, which is in place if it is right."""
    with _making(root, item) as output:
        identity = _identity(output, item)
        if item.pin_kind == "unpinned" or identity == item.pin:
            output.chmod(0o644)
            output.replace(target)
    return identity


@contextmanager
def _making(root: Path, item: BaseInput) -> Iterator[Path]:
    """The file that the command makes, for as long as it is looked at or put in place."""
    folder = place(root, item).parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        output = Path(scratch).resolve() / Path(item.file).name
        process.run(
            item.command,
            cwd=root / "bases" / item.repo,
            env={**os.environ, OUTPUT: str(output)},
            timeout=TIMEOUT_SEC,
        )
        if not output.is_file():
            raise _wrong(item, f"its command ended well but left no file at ${OUTPUT}")
        yield output


def _found(path: Path, item: BaseInput) -> str | None:
    return _identity(path, item) if path.is_file() and item.pin_kind != "unpinned" else None


def _identity(path: Path, item: BaseInput) -> str:
    """What the pin is compared with: the file's digest, or that of a bundle's heads."""
    if item.pin_kind == "git_heads":
        listed = process.run(["git", "bundle", "list-heads", str(path)], timeout=600)
        return heads_digest(listed.stdout.decode("utf-8", "surrogateescape"))
    hasher = blake3()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _pin_words(item: BaseInput) -> str:
    return "not pinned" if item.pin_kind == "unpinned" else f"as pinned by {item.pin_kind}"


def _difference(item: BaseInput, made: str) -> str:
    return (
        f"{inputs_file(item.repo)}: {item.file}: {item.pin_kind} is pinned to {item.pin}, "
        f"but the file made is {made}"
    )


def _wrong(item: BaseInput, message: str) -> KbenchError:
    return KbenchError(f"{inputs_file(item.repo)}: {item.file}: {message}")
