"""Words what is to change as a unified diff.

Promises: nothing is left out; time and memory stay in proportion to the texts, however hostile.
"""

from collections.abc import Iterator
from difflib import unified_diff

from kbench_build.rules.findings import printable
from kbench_build.rules.harden import Edit

# What is compared line by line; larger texts are shown as taken away and put there whole.
_MOST_PAIRS = 2_000_000
_NO_END = "\\ No newline at end of file"


def diff(edit: Edit) -> tuple[str, ...]:
    """The lines of an edit's diff, without line ends.

    Of a file that is replaced whole, all of the old text is shown, then all of the new one.
    Characters that a terminal would obey are shown as escapes.
    """
    old, new = _lines(edit.old), _lines(edit.new)
    before = f"a/{edit.file}" if edit.old is not None else "/dev/null"
    head = (f"--- {before}", f"+++ b/{edit.file}")
    if edit.whole or len(old) * len(new) > _MOST_PAIRS:
        body = (_range(old, new), *(f"-{line}" for line in old), *(f"+{line}" for line in new))
    else:
        body = tuple(unified_diff(old, new, lineterm=""))[2:]
    return (*head, *(shown for line in body for shown in _shown(line)))


def _lines(data: bytes | None) -> list[str]:
    parts = (data or b"").decode("utf-8", "backslashreplace").split("\n")
    whole = [f"{part}\n" for part in parts[:-1]]
    return [*whole, parts[-1]] if parts[-1] else whole


def _range(old: list[str], new: list[str]) -> str:
    return f"@@ -{min(1, len(old))},{len(old)} +{min(1, len(new))},{len(new)} @@"


def _shown(line: str) -> Iterator[str]:
    if line.startswith("@@"):
        yield line
        return
    text = line.removesuffix("\n")
    yield text if text.isprintable() else _escaped(text)
    if not line.endswith("\n"):
        yield _NO_END


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else printable(c) for c in text)
