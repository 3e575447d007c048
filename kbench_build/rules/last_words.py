"""The one line of a program's output that says best why it ended."""

import re
from collections.abc import Sequence

_LONGEST = 200
_MOST_LINES = 2_000
_OURS = "verifier: "
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The best first: what a runtime calls by its class, then what a tool calls an error.
_TELLING = (
    re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b"),
    re.compile(r"\b(?:fatal|error|not found|no such file)\b|ERR!", re.IGNORECASE),
)


def last_words(output: str) -> str:
    """The last line that names an error, else the last one; empty where nothing was said."""
    plain = (_COLOURS.sub("", line).strip() for line in output.splitlines()[-_MOST_LINES:])
    lines = [line[:_LONGEST] for line in plain if line and not line.startswith(_OURS)]
    return next((found for sign in _TELLING if (found := _last(lines, sign))), "") or "".join(
        lines[-1:]
    )


def _last(lines: Sequence[str], sign: re.Pattern[str]) -> str:
    return next((line for line in reversed(lines) if sign.search(line)), "")
