"""Checks of what an agent can reach: does some host serve the project's own fixed version?

Promises: decides by names alone. A forge that holds the repository, and a site named after the
project, serve the fix for certain or nearly so. A package registry does only where the project is
published there, which nothing in a task tells, and a build can't do without one: it isn't named.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from kbench_build.rules.content import TASK, Content
from kbench_build.rules.findings import Check, Spot
from kbench_build.rules.origin import issue_urls, source_of

# Hosts that serve what a forge holds, under other names than its own.
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "github.com": ("*.github.com", "*.githubusercontent.com", "*.github.io", "ghcr.io"),
    "gitlab.com": ("*.gitlab.com", "*.gitlab.io"),
    "bitbucket.org": ("*.bitbucket.org",),
    "codeberg.org": ("*.codeberg.org", "*.codeberg.page"),
}
# Mirrors of whatever a forge of this name holds.
_MIRRORS = ("jitpack.io", "*.jsdelivr.net", "unpkg.com", "proxy.golang.org", "sourcegraph.com")
# They carry builds of everyone, whoever owns them.
_FOR_ALL = (
    "repo.maven.apache.org",
    "maven.google.com",
    "dl.google.com",
    "*.pypi.org",
    "pub.dev",
    "cache-redirector.jetbrains.com",
    "packages.jetbrains.team",
    "services.gradle.org",
    "downloads.gradle.org",
    "plugins.gradle.org",
    "plugins-artifacts.gradle.org",
)
_SHORTEST = 4


def _own_fix(task: Content) -> Iterator[Spot]:
    origin = task.origin
    forges = tuple(_forges(task))
    for where, host in _allowed(task.config or {}):
        name = host.strip().lower().rstrip(".")
        forge = next((f for f in forges for h in (f, *_BEHIND.get(f, ())) if _meet(name, h)), None)
        if _is_everything(name):
            yield Spot(file=TASK, where=where, message=f"{host!r} lets everything through")
        elif forge:
            message = f"{host!r} serves {forge}, where the repository and its fix are"
            yield Spot(file=TASK, where=where, message=message)
        elif _BEHIND.keys() & forges and any(_meet(name, mirror) for mirror in _MIRRORS):
            message = f"{host!r} serves what public repositories hold, and so the fix"
            yield Spot(file=TASK, where=where, message=message)
        elif _is_named_after(name, origin.owner, origin.name):
            message = (
                f"{host!r} is named after {origin.owner}/{origin.name}, whose releases it may hold"
            )
            yield Spot(file=TASK, where=where, message=message)


def _allowed(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(place, host) for each host that the agent may reach, by its own list or the shared one."""
    for section in ("agent", "environment"):
        table = config.get(section)
        if isinstance(table, Mapping) and table.get("network_mode") is not None:
            hosts = table.get("allowed_hosts") if table["network_mode"] == "allowlist" else None
            for index, host in enumerate(hosts if isinstance(hosts, list) else ()):
                if isinstance(host, str):
                    yield f"{section}.allowed_hosts[{index}]", host
            return


def _forges(task: Content) -> Iterator[str]:
    """The hosts of the addresses that the task gives, trackers left out."""
    source = source_of(task.config)
    urls = [source.get("repository_url"), source.get("code_change_url")]
    urls += [url for url in issue_urls(source) if "/issues/" in url]
    hosts = (_host(url) for url in urls if isinstance(url, str))
    yield from dict.fromkeys(host for host in hosts if host)


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def _meet(allowed: str, served: str) -> bool:
    """Whether two names of hosts, either with `*.` in front, have a host in common."""
    if allowed == served:
        return True
    for pattern, other in ((allowed, served), (served, allowed)):
        if pattern.startswith("*.") and other.removeprefix("*").endswith(pattern[1:]):
            return True
    return False


def _is_everything(name: str) -> bool:
    """A whole top-level domain, or all addresses."""
    if re.fullmatch(r"\*(?:\.[a-z]{2,})?", name):
        return True
    try:
        return "/" in name and ip_network(name, strict=False).prefixlen == 0
    except ValueError:
        return False


def _is_named_after(name: str, owner: str, project: str) -> bool:
    if any(_meet(name, host) for host in _FOR_ALL):
        return False
    labels = name.removeprefix("*.").split(".")
    plain = labels[-2] if len(labels) > 1 else ""
    words = {word.lower() for word in (owner, project) if len(word) >= _SHORTEST}
    return plain in words


CHECKS: tuple[Check[Content], ...] = (
    Check(
        id="network/own-fix",
        severity="warning",
        why="An agent that reaches the project's forge or site can download the fixed version;"
        " registries of packages aren't named, since builds need them and no task tells whether"
        " one serves the project's own releases.",
        mend="Take the host off the list, and put what the build needs of it into the image.",
        find=_own_fix,
    ),
)
