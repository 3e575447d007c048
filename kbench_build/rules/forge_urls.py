"""Addresses that a browser can open, of a repository, its changes and its issues.

Promises: nothing is guessed. The repository's own comes from a clone's origin, or from an address
that the forge itself gave of a change; those below it are made only for forges whose shape is
known, or after an address of the same forge. What isn't known is empty.
"""

import re
from urllib.parse import SplitResult, urlsplit

# scp's way of writing an address, as git takes it: git@host:owner/name.git
_SCP = re.compile(r"(?:[^@/:\s]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[^:\s/][^:\s]*)")
_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)+")
_SCHEMES = ("http", "https", "ssh", "git")
# What stands between the repository's address and a number, by host: changes, issues, commits.
_SHAPES = {
    "github.com": ("pull", "issues", "commit"),
    "gitlab.com": ("-/merge_requests", "-/issues", "-/commit"),
    "codeberg.org": ("pulls", "issues", "commit"),
    "bitbucket.org": ("pull-requests", "issues", "commits"),
}
# By the word with which an address of a change goes on after the repository's.
_BY_CHANGE = {shape[0]: shape for shape in _SHAPES.values()} | {
    "merge_requests": ("merge_requests", "issues", "commit"),
}
_CHANGE = re.compile(
    r"(?P<home>https?://[^/\s]+/[^\s?#]+?)/(?P<word>(?:-/)?merge_requests|pulls?|pull-requests)/\d+"
    r"(?:[/?#].*)?"
)


def home_of(origin: str, change: str = "") -> str:
    """The repository's address, from one of its changes' or else from a clone's origin."""
    found = _CHANGE.fullmatch(change.strip())
    if found:
        return found["home"]
    scp = _SCP.fullmatch(origin.strip())
    if scp and "://" not in origin:
        return _web(scp["host"], scp["path"])
    parts = _split(origin.strip())
    if parts is None or parts.scheme not in _SCHEMES or not parts.hostname:
        return ""
    # A port of ssh or git says nothing about the web.
    port = f":{parts.port}" if parts.port and parts.scheme.startswith("http") else ""
    return _web(f"{parts.hostname}{port}", parts.path)


def _web(host: str, path: str) -> str:
    path = path.strip("/").removesuffix(".git").rstrip("/")
    is_host = "." in host and not host.startswith(".")
    return f"https://{host}/{path}" if is_host and _NAME.fullmatch(path) else ""


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _shape(home: str, like: str) -> tuple[str, str, str] | None:
    """How a forge writes what is below a repository, by an address of a change or by its host."""
    found = _CHANGE.fullmatch(like.strip())
    if found:
        return _BY_CHANGE[found["word"]]
    parts = _split(home)
    return _SHAPES.get(parts.hostname or "") if parts else None


def change_url(home: str, number: int, like: str = "") -> str:
    """The address of a change."""
    shape = _shape(home, like)
    return f"{home}/{shape[0]}/{number}" if home and shape else ""


def issue_url(home: str, number: int, like: str = "") -> str:
    """The address of an issue; `like` is an address of a change of the same forge."""
    shape = _shape(home, like)
    return f"{home}/{shape[1]}/{number}" if home and shape else ""


def commit_url(home: str, commit: str, like: str = "") -> str:
    """The address of a commit."""
    shape = _shape(home, like)
    return f"{home}/{shape[2]}/{commit}" if home and shape else ""
