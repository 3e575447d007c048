"""Names in source code, told by their form: which ones a change declares, which ones it knows.

Promises: linear in the text, whatever it holds; no language is parsed. A name in a string or a
comment is no use of it. Leaves to others what a name's being there means.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbench_build.rules.patches import Patch

SOURCE = re.compile(
    r".*\.(?:kts?|java|groovy|scala|[cm]?[jt]sx?|vue|svelte|astro|py|go|rs|rb|cs|swift|dart|php)"
)
_KEPT = re.compile(rb"^[ @-].*$", re.MULTILINE)
_WORD = re.compile(rb"[A-Za-z_$][A-Za-z0-9_$]*")
# Strings and comments. What isn't closed on its line ends there, so that no text is read twice; a
# raw string and a template may go over several lines.
_QUIET = re.compile(
    rb"//[^\n]*+|/\*(?:[^*\n]|\*(?!/))*+(?:\*/)?|^[ \t]*+[*#][^\n]*+"
    rb'|"""(?:[^"]|"(?!""))*+(?:""")?|"(?:[^"\\\n]|\\.)*+"?'
    rb"|'(?:[^'\\\n]|\\.)*+'?|`(?:[^`\\]|\\.)*+`?",
    re.MULTILINE,
)
_TYPES = rb"(?:class|interface|object|typealias|enum|record|struct|trait|type|namespace|mod)"
_CALLS = rb"(?:fun|function\*?|def|fn|func)"
_VALUES = rb"(?:val|var|const|let|static)"
_DECLARED = re.compile(
    rb"(?<![\w$.])(?P<kind>" + _TYPES + rb"|" + _CALLS + rb"|" + _VALUES + rb")[ \t]+"
    # Type parameters, and the type that a Kotlin function extends.
    rb"(?:<[^(\n]{0,80}>[ \t]*)?(?:[A-Z][\w.<>?*, ]{0,80}\.)?(?P<name>[A-Za-z_$][\w$]*)"
)
# Methods without a keyword: Java's have a modifier, those of JavaScript open a body.
_JAVA = re.compile(
    rb"^[ \t]*(?:(?:public|protected|static|final|abstract|default|synchronized)[ \t]+)+"
    rb"[\w<>\[\],.?]+(?: [\w<>\[\],.?]+){0,3}[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]*[(=;]"
)
_METHOD = re.compile(
    rb"^[ \t]+(?:(?:async|static|get|set|\*)[ \t]*)*(?P<name>[A-Za-z_$][\w$]*)"
    rb"\([^()\n]{0,200}\)(?:[ \t]*:[^{\n]{0,80})?[ \t]*\{[ \t]*$"
)
# A package's own name; names in braces may come from a package of the project itself.
_IMPORT = re.compile(rb"import (?P<name>[\w$]+) from ['\"](?P<origin>[^'\"]+)['\"]")
_REQUIRED = re.compile(rb"=[ \t]*(?:await[ \t]+)?(?:require|import)\(")
_NO_NAMES = frozenset(
    b"if for while switch catch when with return function do else try class interface object enum "
    b"fun val var const let static def type companion new constructor super this get set in is as "
    b"struct public private protected internal default".split()
)
_OVERRIDE = re.compile(rb"(?<!\w)(?:override|@Override)(?!\w)")
_HIDDEN = re.compile(rb"(?<!\w)(?:private|protected)(?!\w)|[ \t]#")
_LONGEST = 1_000


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a patch says of names: `declared` by lines it adds, `known` from all its other lines.

    `api` are those of `declared` that others are meant to use: types, functions and values that
    aren't private, nor inside a function.
    """

    declared: frozenset[bytes]
    api: frozenset[bytes]
    known: frozenset[bytes]

    @property
    def new(self) -> frozenset[bytes]:
        """Declared by the patch, and nowhere else as far as the patch shows."""
        return self.declared - self.known


@dataclass(frozen=True, kw_only=True)
class Used:
    """The names in the code of tests: used, declared there, and known from lines that they keep."""

    used: frozenset[bytes]
    declared: frozenset[bytes]
    known: frozenset[bytes]


NONE = Names(declared=frozenset(), api=frozenset(), known=frozenset())


def names_of(patch: Patch, data: bytes) -> Names:
    """The names in a patch; `data` is its text, where the lines that it keeps stand."""
    declared: set[bytes] = set()
    api: set[bytes] = set()
    for file in patch.files:
        if file.new is None or not SOURCE.fullmatch(file.new):
            continue
        for name, is_api in declarations(file.added):
            declared.add(name)
            if is_api:
                api.add(name)
    return Names(
        declared=frozenset(declared),
        api=frozenset(api),
        known=kept_words(data),
    )


def declarations(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """(name, whether others are meant to use it) for each name that lines declare."""
    after_override = False
    for line in lines:
        if len(line) > _LONGEST:
            continue
        # What overrides another declares nothing new, nor does what takes a module.
        old = after_override or _is_old(line)
        after_override = line.strip() == b"@Override"
        if not old:
            yield from _declared_in(line)


def _is_old(line: bytes) -> bool:
    # A word is looked for ten times as fast as a pattern, and few lines hold one.
    overrides = b"verride" in line and _OVERRIDE.search(line)
    takes = (b"require" in line or b"import" in line) and _REQUIRED.search(line)
    return bool(overrides or takes)


def _declared_in(line: bytes) -> Iterator[tuple[bytes, bool]]:
    inner = line[:1] in (b" ", b"\t")
    for match in _DECLARED.finditer(line):
        is_value = match["kind"] in (b"val", b"var", b"const", b"let", b"static")
        if match["name"] not in _NO_NAMES:
            local = is_value and inner and match.start() == len(line) - len(line.lstrip())
            yield match["name"], not local and not _HIDDEN.search(line)
    for form in (_JAVA, _METHOD):
        method = form.match(line)
        if method and method["name"] not in _NO_NAMES:
            yield method["name"], not _HIDDEN.search(line)


def used_in(lines: Sequence[bytes], *, known: frozenset[bytes]) -> Used:
    """The names in the lines of tests; `known` stand in lines that were there before."""
    text = b"\n".join(lines)
    return Used(
        used=frozenset(_WORD.findall(_QUIET.sub(b" ", text))),
        declared=frozenset((*(name for name, _ in declarations(lines)), *_imported(lines))),
        known=known,
    )


def _imported(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The names that lines take from packages, which no change of the project declares."""
    for line in lines:
        match = _IMPORT.match(line) if len(line) <= _LONGEST else None
        if match and not match["origin"].startswith((b".", b"/", b"~", b"@/")):
            yield match["name"]


def words_of(text: bytes) -> frozenset[bytes]:
    """All that looks like a name in any text."""
    return frozenset(_WORD.findall(text))


def kept_words(data: bytes) -> frozenset[bytes]:
    """The names in a patch's lines that are there before it: kept, removed, and hunks' heads."""
    return words_of(b"\n".join(_KEPT.findall(data)))


def is_telling(name: bytes) -> bool:
    """Whether a name can't be a word of plain English: it joins several, or holds a digit."""
    inner = name.strip(b"_$")
    mixed = any(chr(c).isupper() for c in inner[1:]) and not inner.isupper()
    return len(inner) >= 5 and (mixed or b"_" in inner)
