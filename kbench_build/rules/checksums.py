"""Checksum files (`B3SUMS`, `SHA256SUMS`): written, read, and which is to blame in a conflict.

A line is `digest SP SP name LF`, as `b3sum --check` and `sha256sum --check` read it.
"""

import re
from collections.abc import Iterator, Mapping

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\0]+)")


def sums_text(digests: Mapping[str, str]) -> str:
    """The text of a checksum file, from digests by file name; sorted by name."""
    return "".join(f"{value}  {name}\n" for name, value in sorted(digests.items()))


def parse_sums(data: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """Digests by file name, and a message for each line that is none."""
    text = data.decode("utf-8", "surrogateescape")
    found: dict[str, str] = {}
    wrong: list[str] = []
    lines = text.split("\n")
    if lines.pop():
        wrong.append("the last line has no newline")
        lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            wrong.append(f"line {number} isn't `digest  name`")
        elif match[2] in found:
            wrong.append(f"line {number} names {match[2]!r} again")
        else:
            found[match[2]] = match[1]
    return found, tuple(wrong)


def blamed(
    stated: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """(file to blame, message), for everything that doesn't agree.

    `stated` are the digests by checksum file and name; `found` are the digests of the files that
    are there, by checksum file and name. A file is blamed when no checksum file agrees with it, a
    checksum file when another one bears the file out.
    """
    for name in sorted({name for digests in stated.values() for name in digests}):
        states = {sums: digests[name] for sums, digests in stated.items() if name in digests}
        agreeing = [s for s, value in states.items() if found[s].get(name) == value]
        if agreeing:
            for sums in sorted(stated.keys() - states.keys()):
                yield sums, f"doesn't name {name}, which {agreeing[0]} does"
            for sums in sorted(states.keys() - set(agreeing)):
                yield sums, f"its digest of {name} isn't that of the file, which {agreeing[0]} has"
        elif any(name in digests for digests in found.values()):
            yield name, f"isn't the file that {' and '.join(sorted(states))} were made from"
        elif len(states) == len(stated):
            yield name, "is missing"
        else:
            yield sorted(states)[0], f"names {name!r}, which no other file does and isn't here"
