"""Checks of where a task says that it comes from: licence, repository, change, issues.

Promises: offline; that an address exists is left to others, that the facts agree is not. Which
licences there are is the SPDX list's business, as `packaging` keeps it.
"""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

from kbench_build.rules.content import TASK, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.origin import issue_urls, source_of

_NO_LICENCE = frozenset({"NONE", "NOASSERTION"})
# What most projects have: the list needs no reading for these.
_USUAL = frozenset({"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0"})
_LONGEST = 500
_WORD = re.compile(r"[A-Za-z0-9.+-]+")
_GNU = re.compile(r"(?P<name>A?L?GPL|GFDL)-(?P<version>\d\.\d)(?P<later>\+?)", re.IGNORECASE)
_REPLACED: Mapping[str, str] = {
    "bsd-2-clause-freebsd": "BSD-2-Clause",
    "bsd-2-clause-netbsd": "BSD-2-Clause",
    "bzip2-1.0.5": "bzip2-1.0.6",
    "ecos-2.0": "GPL-2.0-or-later WITH eCos-exception-2.0",
    "gpl-2.0-with-autoconf-exception": "GPL-2.0-only WITH Autoconf-exception-2.0",
    "gpl-2.0-with-bison-exception": "GPL-2.0-only WITH Bison-exception-2.2",
    "gpl-2.0-with-classpath-exception": "GPL-2.0-only WITH Classpath-exception-2.0",
    "gpl-2.0-with-font-exception": "GPL-2.0-only WITH Font-exception-2.0",
    "gpl-2.0-with-gcc-exception": "GPL-2.0-only WITH GCC-exception-2.0",
    "gpl-3.0-with-autoconf-exception": "GPL-3.0-only WITH Autoconf-exception-3.0",
    "gpl-3.0-with-gcc-exception": "GPL-3.0-only WITH GCC-exception-3.1",
    "net-snmp": "the licences that its text joins",
    "nunit": "zlib-acknowledgement",
    "standardml-nj": "SMLNJ",
    "wxwindows": "LGPL-2.0-or-later WITH WxWindows-exception-3.1",
}
# How forges write the address of a change, after the repository's own.
_SHAPES: Mapping[str, str] = {
    "github.com": "pull",
    "gitlab.com": "-/merge_requests",
    "codeberg.org": "pulls",
    "bitbucket.org": "pull-requests",
}
_CHANGE = re.compile(
    r"(?P<kind>pulls?|pull-requests|(?:-/)?merge_requests)/(?P<number>\d+)(?:/.*)?"
)
_COMMIT_PATH = re.compile(r"(?:-/)?commits?/(?P<id>[0-9a-f]{7,64})")
_ID = re.compile(r"(?P<stem>.+)-(?P<number>\d+)")


def _place(key: str) -> str:
    return f"metadata.source.{key}"


def _spot(key: str, message: str) -> Spot:
    return Spot(file=TASK, where=_place(key), message=message)


# The licence.


def _licence(task: Content) -> Iterator[Spot]:
    licence = source_of(task.config).get("license")
    if isinstance(licence, str) and licence and canonical(licence) is None:
        yield _spot("license", f"{licence!r} is no SPDX expression that names a licence")


def canonical(licence: str) -> str | None:
    """An SPDX expression in its usual spelling; None where it is none."""
    if licence in _USUAL:
        return licence
    if licence in _NO_LICENCE or len(licence) > _LONGEST or not licence.isascii():
        return None
    from packaging.licenses import (  # noqa: PLC0415 - a list of hundreds of licences
        InvalidLicenseExpression,
        canonicalize_license_expression,
    )

    try:
        return str(canonicalize_license_expression(licence))
    except InvalidLicenseExpression:
        return None


def _deprecated(task: Content) -> Iterator[Spot]:
    licence = source_of(task.config).get("license")
    if not isinstance(licence, str) or licence in _USUAL or canonical(licence) is None:
        return
    for word in _WORD.findall(licence):
        if instead := replacement(word):
            yield _spot("license", f"{word!r} is deprecated: write {instead}")


def replacement(licence: str) -> str | None:
    """What SPDX says instead of a deprecated id; None where the id isn't deprecated."""
    if licence.lower() in _REPLACED:
        return _REPLACED[licence.lower()]
    gnu = _GNU.fullmatch(licence)
    if gnu is None:
        return None
    ending = "or-later" if gnu["later"] else "only"
    return f"{gnu['name'].upper()}-{gnu['version']}-{ending}"


def _spelling(task: Content) -> Iterator[Spot]:
    licence = source_of(task.config).get("license")
    usual = canonical(licence) if isinstance(licence, str) and licence else None
    if usual is not None and usual != licence:
        yield _spot("license", f"{licence!r} is usually written {usual!r}")


# Addresses.


def _urls(task: Content) -> Iterator[Spot]:
    source = source_of(task.config)
    url, change = source.get("repository_url"), source.get("code_change_url")
    if not isinstance(url, str) or not url:
        return
    home = url.rstrip("/").removesuffix(".git")
    owner, name = source.get("repository_owner"), source.get("repository_name")
    known = isinstance(owner, str) and isinstance(name, str)
    if not _is_web(url):
        yield _spot("repository_url", f"{url!r} is no address that a browser can open")
    elif known and not home.lower().endswith(f"/{owner}/{name}".lower()):
        yield _spot("repository_url", f"{url!r} doesn't end in {owner}/{name}")
    if isinstance(change, str) and change and not change.lower().startswith(f"{home}/".lower()):
        yield _spot("code_change_url", f"{change!r} isn't below {home}")


def _is_web(url: str) -> bool:
    parts = _split(url)
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _change(task: Content) -> Iterator[Spot]:
    source = source_of(task.config)
    url, number = source.get("code_change_url"), source.get("code_change_id")
    parts = _split(url) if isinstance(url, str) and url else None
    if parts is None:
        return
    below = "/".join(parts.path.split("/")[3:]) if parts.hostname in _SHAPES else parts.path
    change = _CHANGE.search(below)
    shape = _SHAPES.get(parts.hostname or "")
    if _COMMIT_PATH.search(below):
        return
    if shape and (change is None or change["kind"] not in (shape, shape.removeprefix("-/"))):
        message = f"{url!r} isn't how {parts.hostname} writes it: …/{shape}/<number>"
        yield _spot("code_change_url", message)
    elif change and isinstance(number, str) and number and change["number"] != number:
        message = f"{url!r} is of the change {change['number']}, and code_change_id is {number!r}"
        yield _spot("code_change_url", message)


def _issues(task: Content) -> Iterator[Spot]:
    source = source_of(task.config)
    one, several, change = (
        source.get(key) for key in ("issue_url", "issue_urls", "code_change_url")
    )
    if isinstance(one, str) and one and isinstance(several, list) and one not in several:
        yield _spot("issue_url", f"{one!r} isn't among issue_urls")
    listed = [url for url in several if isinstance(url, str)] if isinstance(several, list) else []
    for index, url in enumerate(listed):
        if url in listed[:index]:
            yield _spot(f"issue_urls[{index}]", f"{url!r} stands there twice")
    for url in dict.fromkeys(issue_urls(source)):
        if url == change:
            yield _spot("issue_urls", f"{url!r} is the change, and no issue")
        elif not _is_web(url):
            yield _spot("issue_urls", f"{url!r} is no address that a browser can open")


def _id(task: Content) -> Iterator[Spot]:
    """Where the id says one repository or change, and task.toml another."""
    origin, parts = task.origin, _ID.fullmatch(task.id)
    source = source_of(task.config)
    owner, name = source.get("repository_owner"), source.get("repository_name")
    if parts is None or not (isinstance(owner, str) and isinstance(name, str)):
        return
    if parts["stem"].lower() not in {f"{owner}{mark}{name}".lower() for mark in ("_", "__")}:
        message = f"the id {task.id!r} isn't named after {owner}/{name}"
        yield _spot("repository_name", message)
    elif origin.change and parts["number"] not in {origin.change, *origin.issues}:
        message = f"the id {task.id!r} ends in another number than the change's, {origin.change!r}"
        yield _spot("code_change_id", message)


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="provenance/licence",
        severity="warning",
        why="Who uses the release must know on what terms.",
        mend="Write an SPDX expression, for instance Apache-2.0.",
        find=_licence,
    ),
    Check(
        id="provenance/licence-deprecated",
        severity="warning",
        why="A deprecated id leaves open what it means, for instance whether later versions count.",
        mend="Write the id that took its place.",
        find=_deprecated,
    ),
    Check(
        id="provenance/licence-spelling",
        severity="note",
        why="Some tools compare licences letter by letter.",
        mend="Write it in the usual way.",
        find=_spelling,
    ),
    Check(
        id="provenance/urls",
        severity="warning",
        why="Facts about one repository that disagree make all of them doubtful.",
        mend="Make owner, name and URLs agree.",
        find=_urls,
    ),
    Check(
        id="provenance/change",
        severity="warning",
        why="A reader who follows the address must come to the change that the task is made from.",
        mend="Write the address of the pull or merge request, and its number in code_change_id.",
        find=_change,
    ),
    Check(
        id="provenance/issues",
        severity="warning",
        why="A reader must be able to tell which issues the instruction stands for.",
        mend="List each issue once, by its own address; keep one of the two keys.",
        find=_issues,
    ),
    Check(
        id="provenance/id",
        severity="warning",
        why="Results are quoted by id: it must name the repository and change that it stands for.",
        mend="Rename the folder to <owner>_<repository>-<number>, or correct [metadata.source].",
        find=_id,
        forms=("shipped", "own"),
    ),
)
