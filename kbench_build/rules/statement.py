"""Checks of the instruction against the fix and the hidden tests: what it shows, what it omits.

Promises: linear in the texts; no more of an instruction than a book's worth is looked at. A name
that tests need and code that a user of the project would write are part of a fair statement, so
what they look like is let be. What can't be told from the patches alone is told from
`Content.at_base`, where the upstream repository was at hand.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from kbench_build.rules.content import DOCKERFILE, FIX, INSTRUCTION, TASK, TEST_PATCH, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.fix_references import (
    HEX,
    SHORTEST_ID,
    WHOLE_ID,
    Number,
    is_change,
    is_one_of,
    links,
    names_change,
    numbers,
)
from kbench_build.rules.names import SOURCE, is_telling
from kbench_build.rules.once import once
from kbench_build.rules.patch_checks import kind_of
from kbench_build.rules.patches import FilePatch

_DISTINCT = 24
_LONGEST = 1_000
_MOST_READ = 1 << 18
_MOST_LINES = 20_000
_FENCE = re.compile(r"\s*(?:```|~~~)")
_SPAN = re.compile(r"`([^`\n]+)`")
_MARKER = re.compile(r"\s*(?:>\s*)*(?:[-*+]\s+|\d+[.)]\s+)?")
_ISSUE_WORD = re.compile(r"issue|bug|fix(?:es|ed)?|close[sd]?|resolve[sd]?")
_COMMIT = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_MAIL = re.compile(rb"^From ([0-9a-f]{40}) ", re.MULTILINE)
_CODE = re.compile(rb"[(){}=;\[\]]")
_NO_CODE = (b"import ", b"package ", b"from ", b"//", b"*", b"#", b"<")
_ANNOTATION = re.compile(rb"@\w+(?:\([^)]*\))?")
# A declaration without its body is an interface: a fair statement may give it.
_SIGNATURE = re.compile(
    rb"(?:(?:export|public|default|declare|abstract|async|data|open|sealed|internal|suspend"
    rb"|override|inline|operator|enum)[ \t]+)*"
    rb"(?:fun|class|interface|object|type|enum|function|def|struct|trait|typealias)\b"
    rb"[^=]*(?:[{(,;]|\)[^=]*)?"
)
_ASSERTS = re.compile(
    rb"(?<![\w.])(?:assert\w*|expect\w*|verify|should\w*)[ ]?[(.{<]|\.(?:should|to)\b"
    rb"|(?:^|[ \t])(?:it|test|describe)(?:\.\w+)?\(|fun `"
)
_NO_PRODUCT = re.compile(
    r"(?:.*/)?(?:examples?|docs?|website|\.changeset|e2e|playground|samples?|stories|cypress"
    r"|[^/]*test[^/]*|[^/]*fixtures?[^/]*|specs?)/.*|.*\.(?:test|spec|stories|test-d)\.\w+"
)
_HEADING = re.compile(
    r"(?P<marks>#{1,6})[ \t]+(?P<text>.+?)[ \t#:]*|\*\*(?P<bold>[^*]+?)[ :]*\*\*:?"
)
_ISSUE_HEADING = re.compile(r"(?:github )?issue\b.*", re.IGNORECASE)
_TEMPLATE = re.compile(
    r"(?:describe the (?:bug|issue|problem)|bug description|(?:steps )?to reproduce|reproduction"
    r"|(?:the )?(?:expected|actual|current) (?:behaviou?r|result|output)|what happened|environment"
    r"|additional (?:context|information)|is your feature request related to a problem.*"
    r"|describe the solution.*|minimal reproducer|your environment)",
    re.IGNORECASE,
)


class _Line(NamedTuple):
    """A line of the instruction, its number from 1, and whether it is inside a code block."""

    number: int
    text: str
    code: bool


class _Referring(NamedTuple):
    """A line by its number: its links, and its numbers of the own repository's changes."""

    line: int
    links: tuple[re.Match[str], ...]
    numbers: tuple[Number, ...]


def _lines(task: Content) -> tuple[_Line, ...]:
    return _lines_of(task.data.get(INSTRUCTION, b"")[:_MOST_READ])


@lru_cache(maxsize=1)
def _lines_of(instruction: bytes) -> tuple[_Line, ...]:
    """The lines of an instruction; remembered, since most checks of a task ask for them."""
    return tuple(_numbered(instruction.decode("utf-8", "replace")))


def _numbered(text: str) -> Iterator[_Line]:
    inside = False
    for number, line in enumerate(text.split("\n", _MOST_LINES)[:_MOST_LINES], start=1):
        if _FENCE.match(line):
            inside = not inside
        yield _Line(number=number, text=line, code=inside or line.startswith(("    ", "\t")))


def _spot(line: int, message: str) -> Spot:
    return Spot(file=INSTRUCTION, where=f"line {line}", message=message)


# Links and ids of the fix.


def _fix_links(task: Content) -> Iterator[Spot]:
    origin = task.origin
    if origin.change is None:
        return
    for refers in _referring(task):
        for link in refers.links:
            if is_change(link, origin):
                yield _spot(refers.line, f"links to the change that fixes it: {link[0]!r}")
        for found in refers.numbers:
            if names_change(found.number, origin):
                yield _spot(refers.line, f"names the change that fixes it: #{found.number}")


@once
def _referring(task: Content) -> tuple[_Referring, ...]:
    """The lines that refer to a change or an issue."""
    found = (
        _Referring(
            line=line.number,
            links=tuple(links(line.text)),
            # Code says nothing of changes.
            numbers=() if line.code else tuple(numbers(line.text, task.origin)),
        )
        for line in _lines(task)
    )
    return tuple(refers for refers in found if refers.links or refers.numbers)


def _fix_ids(task: Content) -> Iterator[Spot]:
    known = ids_of_fix(task)
    for line in _lines(task):
        for run in HEX.findall(line.text) if known or task.later else ():
            if is_one_of(run, known):
                yield _spot(line.number, f"holds {run!r}, an id of the fix")
            elif run in task.later:
                yield _spot(line.number, f"holds {run!r}, a commit that comes after the base")


def ids_said(task: Content) -> frozenset[str]:
    """What may be ids of commits in the instruction."""
    runs = (run for line in _lines(task) for run in HEX.findall(line.text))
    return frozenset(run for run in runs if not run.isdecimal() and len(run) <= WHOLE_ID)


def ids_of_fix(task: Content) -> frozenset[str]:
    """Ids of commits and files that the fix makes, as far as the task itself shows them."""
    origin = task.origin
    mails = _MAIL.findall(task.data.get(FIX, b""))
    ids = {each.decode() for each in mails} | origin.commits
    if task.form == "plain":
        # Such an image is made at the fixed commit, and the fix taken back.
        recipes = (data for path, data in task.data.items() if _is_recipe(path))
        ids |= {each.decode() for data in recipes for each in _COMMIT.findall(data)}
    patches = (patch for patch in (task.fix, task.test) if patch is not None)
    ids |= {file.new_blob or "" for patch in patches for file in patch.files}
    known = (each for each in ids if len(each) >= SHORTEST_ID and each.strip("0"))
    return frozenset(known) - {origin.base}


def _is_recipe(path: str) -> bool:
    return path == DOCKERFILE or (path.startswith("environment/") and path.endswith(".sh"))


# Names.

_AS_FAR = ", as far as the patches show"


def _fix_names(task: Content) -> Iterator[Spot]:
    told = {name for name in task.fix_names.new & task.instruction_words if is_telling(name)}
    # What no test can be told of isn't known to be needless.
    new = told - task.hidden_words if told and task.hidden_lines else set()
    new -= task.at_base or frozenset()
    for name, line in sorted(_first_lines(task, new).items(), key=lambda item: item[1]):
        as_far = "" if task.at_base is not None else _AS_FAR
        yield _spot(line, f"names {name!r}, which no hidden test uses and the fix makes up{as_far}")


def _first_lines(task: Content, names: set[bytes]) -> Mapping[str, int]:
    wanted = {name.decode("ascii") for name in names}
    found: dict[str, int] = {}
    for line in _lines(task) if wanted else ():
        for word in re.findall(r"[A-Za-z_$][\w$]*", line.text):
            if word in wanted:
                found.setdefault(word, line.number)
    return found


def _unknown_names(task: Content) -> Iterator[Spot]:
    known = task.at_base
    for name in sorted(needed_names(task) - (known or frozenset())):
        # A plain word may well be a name at the base, which the patches don't show.
        if known is not None or is_telling(name) or (name[:1].isupper() and len(name) >= 4):
            told = "which only the fix declares" + ("" if known is not None else _AS_FAR)
            message = f"needs {name.decode('ascii')!r}, {told}"
            yield Spot(file=_tests_of(task), message=message)


def needed_names(task: Content) -> frozenset[bytes]:
    """Names that hidden tests use, the fix alone declares as far as is known, nobody mentions."""
    names = task.fix_names
    found = (names.api & names.new) - task.instruction_words
    # Reading code takes longer than looking for words, and few tasks get so far.
    if not (found := found & task.hidden_words):
        return frozenset()
    tests = task.hidden_names
    return frozenset(n for n in found & tests.used - tests.declared - tests.known if len(n) > 2)


def _tests_of(task: Content) -> str:
    return TEST_PATCH if task.test is not None else "tests"


# Lines.


def _fix_lines(task: Content) -> Iterator[Spot]:
    yield from _said_lines(task, set(lines_of_fix(task)), task.data.get(FIX, b""), "the fix")


def lines_of_fix(task: Content) -> frozenset[bytes]:
    """The lines of code that the fix adds to the product and nobody writes by chance."""
    files = task.fix.files if task.fix is not None else ()
    added = (file.added for file in files if _is_product(file))
    return frozenset(text for lines in added for text in _telling_lines(lines))


def _is_product(file: FilePatch) -> bool:
    path = file.new or ""
    is_source = SOURCE.fullmatch(path) and kind_of(path) not in ("test", "docs")
    return bool(is_source) and not _NO_PRODUCT.fullmatch(path)


def _test_lines(task: Content) -> Iterator[Spot]:
    added = task.hidden_lines
    lines = {text for text in _telling_lines(added) if _ASSERTS.search(text)}
    yield from _said_lines(task, lines, task.data.get(TEST_PATCH, b""), "the hidden tests")


def _telling_lines(lines: tuple[bytes, ...]) -> Iterator[bytes]:
    """Lines of code that nobody writes by chance; comments and bare interfaces left out."""
    comment = False
    for line in lines:
        text = line.strip()
        opens, closes = text.rfind(b"/*"), text.rfind(b"*/")
        comment = opens > closes or (comment and closes < 0)
        if comment or not _DISTINCT <= len(text) <= _LONGEST or text.startswith(_NO_CODE):
            continue
        if _CODE.search(text) and not (_SIGNATURE.fullmatch(text) or _ANNOTATION.fullmatch(text)):
            yield text


def _said_lines(task: Content, lines: set[bytes], patch: bytes, whose: str) -> Iterator[Spot]:
    said = _said(task)
    both = lines & said.keys()
    if both:
        both -= {line[1:].strip() for line in patch.split(b"\n") if line[:1] in (b" ", b"-")}
    for text in sorted(both, key=lambda each: said[each]):
        message = f"holds a line of {whose}: {text.decode('utf-8', 'replace')!r}"
        yield _spot(said[text], message)


@once
def _said(task: Content) -> Mapping[bytes, int]:
    """What the instruction says in lines and in `code`, and the line where it does so first."""
    said: dict[bytes, int] = {}
    for line in _lines(task):
        for text in (line.text, line.text[_end(line.text) :], *_SPAN.findall(line.text)):
            said.setdefault(text.strip().encode("utf-8", "replace"), line.number)
    return said


def _end(text: str) -> int:
    """Where a line's text begins, after the marks of lists and quotes."""
    match = _MARKER.match(text)
    return match.end() if match else 0


# Issues.


def _unlisted(task: Content) -> Iterator[Spot]:
    origin = task.origin
    seen = {*origin.issues, origin.change}
    for line, name in _issues_named(task):
        if name not in seen:
            seen.add(name)
            where = f"#{name}" if name.isdecimal() else name
            yield _spot(line, f"names the issue {where}, which {TASK} doesn't list")


def _issues_named(task: Content) -> list[tuple[int, str]]:
    """The issues that the instruction names: each one's line, and its number or key."""
    origin, tracker = task.origin, task.origin.tracker
    found: list[tuple[int, str]] = []
    for line, there, numbers_there in _referring(task):
        issues = (link for link in there if link["kind"] == "issues")
        own = (m["number"] for m in issues if origin.is_repository(m["owner"], m["name"]))
        # A bare number may be any earlier change that the text speaks of.
        said = (n.number for n in numbers_there if _ISSUE_WORD.fullmatch(n.word))
        found += [(line, number) for number in (*own, *said)]
    if tracker:
        found += [(line.number, key) for line in _lines(task) for key in tracker.findall(line.text)]
    return sorted(found, key=itemgetter(0))


def _several(task: Content) -> Iterator[Spot]:
    listed = max(1, len(task.origin.issue_urls))
    for what, lines in _told_apart(task).items():
        if len(lines) > listed:
            message = f"tells {len(lines)} issues, by its {what}, where {TASK} lists {listed}"
            yield _spot(lines[listed], message)


def _told_apart(task: Content) -> Mapping[str, list[int]]:
    """The lines at which issues seem to begin, by what shows it."""
    titles: list[int] = []
    numbered: list[int] = []
    parts: dict[str, list[int]] = {}
    for line in _lines(task):
        heading = None if line.code else _HEADING.fullmatch(line.text.strip())
        if heading is None:
            continue
        text = (heading["text"] or heading["bold"]).strip()
        if _TEMPLATE.fullmatch(text):
            parts.setdefault(text.lower(), []).append(line.number)
        elif heading["marks"] and _ISSUE_HEADING.fullmatch(text):
            numbered.append(line.number)
        elif heading["marks"] == "#" and len(text.split()) >= 3:
            titles.append(line.number)
    most = max(parts.values(), key=len, default=[])
    return {"headings": numbered or most, "titles": titles}


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="statement/fix-link",
        severity="warning",
        why="One look at the change shows the solution, to an agent or in what a model has read.",
        mend="Take the link or the number out; a link to the issue may stay.",
        find=_fix_links,
    ),
    Check(
        id="statement/fix-id",
        severity="warning",
        why="The id of a commit or file of the fix leads straight to it.",
        mend="Take the id out.",
        find=_fix_ids,
    ),
    Check(
        id="statement/fix-name",
        severity="warning",
        why="A name that the fix makes up and no test needs tells how the fix is built.",
        mend="Say what is to happen instead, or suppress this where the name is part of the wish.",
        find=_fix_names,
    ),
    Check(
        id="statement/unknown-name",
        severity="warning",
        why="Without being told the name nobody can pass, however good the solution.",
        mend="Name it in the instruction, or test without it.",
        find=_unknown_names,
    ),
    Check(
        id="statement/fix-line",
        severity="warning",
        why="A line of the fix in the statement is a part of the solution.",
        mend="Describe what is wrong, not the code that mends it.",
        find=_fix_lines,
    ),
    Check(
        id="statement/test-line",
        severity="warning",
        why="Who is told an assertion can write code for it alone.",
        mend="Use another example than the hidden tests do.",
        find=_test_lines,
    ),
    Check(
        id="statement/unlisted-issue",
        severity="warning",
        why="A reader can't tell which issues the task stands for, nor where its text is from.",
        mend="Add the issue to issue_urls, or take it out of the instruction.",
        find=_unlisted,
        forms=("shipped", "own"),
    ),
    Check(
        id="statement/several-issues",
        severity="warning",
        why="A reader can't tell which issues the task stands for, nor where its text is from.",
        mend="List all of them in issue_urls, or keep one in the instruction.",
        find=_several,
        forms=("shipped", "own"),
    ),
)
