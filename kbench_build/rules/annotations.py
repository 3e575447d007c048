"""Findings as GitHub's workflow commands, which annotate the lines of a change.

Promises: what a finding says can't end a command or begin another; no more annotations than GitHub
shows for a step, and a last one that says how many there are. Where a file's name stands in them is
relative to the repository.
"""

from collections.abc import Iterable, Iterator, Sequence

from kbench_build.model import Severity
from kbench_build.rules.places import Placed

# Of each kind GitHub shows ten a step. The summary is one of the notices.
MOST_OF_A_KIND = 10
# Of what was answered for, which stands in the log alone.
MOST_LISTED = 50
_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}
_IN_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def commands(placed: Sequence[Placed], summary: str) -> Iterator[str]:
    """One command a finding, as many as are shown; what was suppressed; a summary of all."""
    counting = [item for item in placed if not item.reason]
    shown = [item for severity in _COMMANDS for item in _first(counting, severity)]
    yield from map(_command, shown)
    rest = len(counting) - len(shown)
    more = f"; {rest} of them aren't annotated: `kbench validate` lists all" if rest else ""
    yield from _answered([item for item in placed if item.reason])
    yield f"::notice title=kbench validate::{f'{summary}{more}'.translate(_IN_DATA)}"


def _answered(placed: Sequence[Placed]) -> Iterator[str]:
    """What was answered for and why: in the log alone, for it is nothing to mend."""
    if placed:
        yield f"::group::{len(placed)} suppressed"
        for item in placed[:MOST_LISTED]:
            said = f"suppressed: {item.finding} ({item.reason})".translate(_IN_DATA)
            # An older kind of command, which may stand anywhere in a line.
            yield said.replace("##[", "## [")
        if len(placed) > MOST_LISTED:
            yield f"and {len(placed) - MOST_LISTED} more: `kbench validate` lists all"
        yield "::endgroup::"


def _first(placed: Iterable[Placed], severity: Severity) -> Sequence[Placed]:
    most = MOST_OF_A_KIND - (severity == "note")
    return [item for item in placed if item.finding.severity == severity][:most]


def _command(item: Placed) -> str:
    finding = item.finding
    spot = {
        "file": finding.file,
        "line": str(item.line or 1),
        "col": str(item.column or ""),
        "title": finding.rule,
    }
    properties = ",".join(f"{k}={v.translate(_IN_PROPERTY)}" for k, v in spot.items() if v)
    where = f"{finding.where}: " if finding.where else ""
    data = f"{where}{finding.message}\n{finding.mend}".translate(_IN_DATA)
    return f"::{_COMMANDS[finding.severity]} {properties}::{data}"
