"""Facts about a task's origin that disagree, hosts that serve the fix; and what is in order."""

from tests.samples import Sample
from tests.validate_cases import Break, both, toml

URL = 'repository_url = "https://example.org/acme/adder"'
CHANGE = 'code_change_url = "https://example.org/acme/adder/pull/7"'
ISSUES = 'issue_urls = ["https://example.org/acme/adder/issues/6"]'
HOSTS = '"repo.example.org", "*.example.net"'
LICENCE = 'license = "Apache-2.0"'


def licence(text: str) -> Break:
    return toml(LICENCE, f'license = "{text}"')


def on(host: str, change: str, below: str = "acme/adder") -> Break:
    """The repository on another forge, and its change's address below the repository's."""
    moved = f'repository_url = "https://{host}/{below}"'
    return both(
        toml(URL, moved),
        toml(CHANGE, f'code_change_url = "https://{host}/{below}/{change}"'),
        toml(ISSUES, f'issue_urls = ["https://{host}/{below}/issues/6"]'),
    )


def issues(*urls: str, one: str = "") -> Break:
    listed = ", ".join(f'"{url}"' for url in urls)
    return toml(ISSUES, f"issue_urls = [{listed}]" + (f'\nissue_url = "{one}"' if one else ""))


def hosts(*names: str) -> Break:
    return toml(HOSTS, ", ".join(f'"{name}"' for name in names))


def shared_hosts(sample: Sample) -> None:
    """The list that is for all phases, and an agent without one of its own."""
    text = (sample.task / "task.toml").read_text(encoding="utf-8")
    agent = f'network_mode = "allowlist"\nallowed_hosts = [{HOSTS}]\n'
    shared = 'network_mode = "allowlist"\nallowed_hosts = ["github.com"]\n'
    moved = text.replace(agent, "").replace("[environment]\n", f"[environment]\n{shared}")
    sample.write("task.toml", moved)


SOURCE = "metadata.source."
ISSUE = "https://example.org/acme/adder/issues/6"

# (rule, form, how to break it, the file and place where it fires)
ORIGINS: list[tuple[str, str, Break, str, str]] = [
    (rule, "own", change, "task.toml", place)
    for rule, change, place in (
        ("provenance/licence", licence("Apache 2"), f"{SOURCE}license"),
        ("provenance/licence", licence("Apache-2.1"), f"{SOURCE}license"),
        ("provenance/licence", licence("NOASSERTION"), f"{SOURCE}license"),
        ("provenance/licence", licence("MIT OR"), f"{SOURCE}license"),
        ("provenance/licence", licence("MIT WITH MIT"), f"{SOURCE}license"),
        ("provenance/licence", licence("MIT OR " * 200 + "MIT"), f"{SOURCE}license"),
        ("provenance/licence", licence("(" * 400 + "MIT"), f"{SOURCE}license"),
        ("provenance/licence", licence("\\u001b[1mMIT"), f"{SOURCE}license"),
        ("provenance/licence-deprecated", licence("GPL-2.0"), f"{SOURCE}license"),
        ("provenance/licence-deprecated", licence("MIT OR LGPL-2.1+"), f"{SOURCE}license"),
        (
            "provenance/licence-deprecated",
            licence("GPL-2.0-with-classpath-exception"),
            f"{SOURCE}license",
        ),
        ("provenance/licence-spelling", licence("apache-2.0"), f"{SOURCE}license"),
        ("provenance/licence-spelling", licence("mit or Apache-2.0"), f"{SOURCE}license"),
        ("provenance/urls", toml(URL, URL.replace("https", "ftp")), f"{SOURCE}repository_url"),
        (
            "provenance/urls",
            toml(URL, 'repository_url = "git@example.org:acme/adder.git"'),
            f"{SOURCE}repository_url",
        ),
        (
            "provenance/urls",
            toml(URL, 'repository_url = "https://[::1"'),
            f"{SOURCE}repository_url",
        ),
        ("provenance/change", on("github.com", "pulls/7"), f"{SOURCE}code_change_url"),
        ("provenance/change", on("github.com", "issues/7"), f"{SOURCE}code_change_url"),
        ("provenance/change", on("gitlab.com", "pull/7"), f"{SOURCE}code_change_url"),
        ("provenance/change", on("github.com", "pull/8"), f"{SOURCE}code_change_url"),
        ("provenance/change", toml(CHANGE, CHANGE.replace("7", "17")), f"{SOURCE}code_change_url"),
        ("provenance/issues", issues(ISSUE, one=ISSUE.replace("6", "5")), f"{SOURCE}issue_url"),
        ("provenance/issues", issues(ISSUE, ISSUE), f"{SOURCE}issue_urls[1]"),
        (
            "provenance/issues",
            issues("https://example.org/acme/adder/pull/7"),
            f"{SOURCE}issue_urls",
        ),
        ("provenance/issues", issues("acme/adder#6"), f"{SOURCE}issue_urls"),
        (
            "provenance/id",
            both(toml('name = "adder"', 'name = "other"')),
            f"{SOURCE}repository_name",
        ),
        (
            "provenance/id",
            toml('code_change_id = "7"', 'code_change_id = "9"'),
            f"{SOURCE}code_change_id",
        ),
        ("network/own-fix", hosts("example.org"), "agent.allowed_hosts[0]"),
        ("network/own-fix", hosts("x.net", "*.org"), "agent.allowed_hosts[1]"),
        ("network/own-fix", hosts("0.0.0.0/0"), "agent.allowed_hosts[0]"),
        ("network/own-fix", hosts("acme.io"), "agent.allowed_hosts[0]"),
        ("network/own-fix", hosts("*.adder.dev"), "agent.allowed_hosts[0]"),
        (
            "network/own-fix",
            both(on("github.com", "pull/7"), shared_hosts),
            "environment.allowed_hosts[0]",
        ),
        *(
            (
                "network/own-fix",
                both(on("github.com", "pull/7"), hosts(host)),
                "agent.allowed_hosts[0]",
            )
            for host in (
                "github.com",
                "api.github.com",
                "codeload.github.com",
                "raw.githubusercontent.com",
                "*.githubusercontent.com",
                "*.github.com",
                "GitHub.com.",
                "acme.github.io",
                "jitpack.io",
            )
        ),
        (
            "network/own-fix",
            both(on("git.acme.example", "-/merge_requests/7"), hosts("*.acme.example")),
            "agent.allowed_hosts[0]",
        ),
    )
]

# (what it is, form, what is done to the sample): nothing of provenance or network may fire.
IN_ORDER: list[tuple[str, str, Break]] = [
    ("an expression", "own", licence("(MIT OR Apache-2.0) AND LicenseRef-docs")),
    ("a licence with an exception", "own", licence("GPL-2.0-only WITH Classpath-exception-2.0")),
    ("a licence or later", "own", licence("Apache-2.0+")),
    ("a change on github", "own", on("github.com", "pull/7")),
    ("a change's files on github", "own", on("github.com", "pull/7/files")),
    ("a change on gitlab", "own", on("gitlab.com", "-/merge_requests/7")),
    ("a change on gitlab, the older way", "own", on("gitlab.com", "merge_requests/7")),
    ("a change on codeberg", "own", on("codeberg.org", "pulls/7")),
    ("a change on a forge of one's own", "own", on("git.acme.example", "pulls/7")),
    ("a repository called pull", "own", both(on("git.example", "merge_requests/7"))),
    ("a commit", "own", on("github.com", "commit/0123456789abcdef")),
    ("an issue in both keys", "own", issues(ISSUE, one=ISSUE)),
    ("an issue in a tracker", "own", issues("https://tracker.example.org/issue/ADD-6")),
    (
        "an id with the issue's number",
        "own",
        both(
            toml('code_change_id = "7"', 'code_change_id = "9"'),
            toml("/pull/7", "/pull/9"),
            issues("https://example.org/acme/adder/issues/7"),
        ),
    ),
    ("an id in another case", "own", both(toml('owner = "acme"', 'owner = "Acme"'))),
    (
        "build hosts of the owner",
        "own",
        hosts("repo.maven.apache.org", "maven.google.com", "cache-redirector.jetbrains.com"),
    ),
    ("the registries that builds need", "own", hosts("registry.npmjs.org", "pypi.org")),
    (
        "a mirror of public forges, where the repository isn't on one",
        "own",
        both(on("git.acme.example", "pulls/7"), hosts("jitpack.io")),
    ),
    ("a forge that holds others", "own", hosts("github.com", "raw.githubusercontent.com")),
    ("a host with the name in a part", "own", hosts("adders.dev", "acme-tools.org")),
    ("a plain task that says nothing of itself", "plain", lambda _: None),
]
