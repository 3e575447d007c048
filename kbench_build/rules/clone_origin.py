"""Which repository a clone's origin is, from its address."""

import re

# scheme://host/owner/name.git, git@host:owner/name.git, and folders that end the same way.
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://(?:[^/@]*@)?[^/]+/|[^/@:]+@[^/:]+:)?"
    r"(?:.*/)?(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?",
    re.IGNORECASE | re.ASCII,
)


def repository_of(address: str) -> str:
    """`owner/name` of a clone's address, empty where it names none."""
    found = _ADDRESS.fullmatch(address.strip())
    names = (found["owner"], found["name"]) if found else ("", "")
    return "/".join(names) if all(name.strip(".") for name in names) else ""
