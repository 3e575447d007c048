"""A forge for tests: a real HTTP server on loopback that speaks what is asked of GitHub's API.

It pages, knows ETags, and fails as it is told to, so that the real client is what is tested.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PRIMARY = "API rate limit exceeded for user ID 1."
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes."


@dataclass
class Reply:
    """What the server says in place of an answer; `drop` closes the connection instead."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def short(self) -> str:
        """The path below the repository: `pulls?2` is the second page of the list."""
        parts = urlsplit(self.path)
        kind = "/".join(parts.path.split("/")[4:])
        page = parse_qs(parts.query).get("page", [""])[0]
        return f"{kind}?{page}" if page else kind


# What to say to a request in place of the usual; None: the usual.
Fault = Callable[[Asked, int], Reply | None]


def message(status: int, text: str, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=json.dumps({"message": text}).encode(), headers=named)


@dataclass
class Forge:
    """The repositories' pull requests and issues, and all that was asked."""

    url: str = ""
    per_page: int = 2
    token: str = ""
    pulls: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    issues: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    fault: Fault = lambda _asked, _n: None
    asked: list[Asked] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)

    def pull(self, number: int, title: str = "", **more: Any) -> dict[str, Any]:
        """Add a merged pull request to acme/text."""
        value = {
            "number": number,
            "title": title or f"Change {number}",
            "body": "",
            "user": {"login": "ada", "id": 1},
            "labels": [],
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": f"2024-02-{number % 28 + 1:02d}T00:00:00Z",
            "merged_at": "2024-01-02T00:00:00Z",
            "html_url": f"https://github.com/acme/text/pull/{number}",
            "merge_commit_sha": None,
            "head": {"repo": {"description": "none of our business"}},
            **more,
        }
        self.pulls.setdefault("acme/text", []).append(value)
        return value

    def issue(self, number: int, title: str, body: str = "", repository: str = "acme/text") -> None:
        url = f"https://github.com/{repository}/issues/{number}"
        value = {"number": number, "title": title, "body": body, "html_url": url}
        self.issues.setdefault(repository, {})[number] = value

    @property
    def paths(self) -> list[str]:
        """The paths that were asked, short."""
        return [asked.short for asked in self.asked]

    def reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        said = self.fault(asked, len(self.asked))
        if said is None:
            said = self._usual(asked)
        self.replies.append(0 if said.drop else said.status)
        return said

    def _usual(self, asked: Asked) -> Reply:
        if self.token and asked.headers.get("authorization") != f"token {self.token}":
            return message(401, "Bad credentials")
        parts = urlsplit(asked.path)
        _, _, owner, name, kind, *rest = parts.path.split("/")
        found = self._found(f"{owner}/{name}", kind, rest)
        if found is None:
            return message(404, "Not Found")
        headers: dict[str, str] = {}
        if not rest:
            found, headers = self._page(found, parts.path, parse_qs(parts.query))
        body = json.dumps(found).encode()
        etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        if asked.headers.get("if-none-match") == etag:
            return Reply(status=304, body=b"", headers={"ETag": etag, **headers})
        return Reply(body=body, headers={"ETag": etag, **headers})

    def _found(self, repository: str, kind: str, rest: list[str]) -> Any:
        if kind == "pulls":
            pulls = self.pulls.get(repository)
            if pulls is None or not rest:
                listed = ({k: v for k, v in p.items() if k != "commits"} for p in pulls or ())
                newest = sorted(listed, key=lambda p: p["updated_at"], reverse=True)
                return newest if pulls is not None else None
            return next((p for p in pulls if p["number"] == int(rest[0])), None)
        return self.issues.get(repository, {}).get(int(rest[0]))

    def _page(self, values: list[Any], path: str, query: Any) -> tuple[list[Any], dict[str, str]]:
        page = int(query["page"][0])
        more = page * self.per_page < len(values)
        rest = "&".join(f"{k}={v[0]}" for k, v in query.items() if k != "page")
        link = f'<{self.url}{path}?{rest}&page={page + 1}>; rel="next"'
        found = values[(page - 1) * self.per_page : page * self.per_page]
        return found, {"Link": link} if more else {}


@contextmanager
def serving(reply: Callable[[Asked], Reply]) -> Iterator[str]:
    """A server on loopback that answers by a function; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(length)
            said = reply(Asked(path=self.path, headers=headers, body=body))
            if said.drop:
                self.close_connection = True
                return
            self.send_response(said.status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            for name, value in said.headers.items():
                self.send_header(name, value)
            if said.status != 304:
                self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        do_POST = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def forge(**options: Any) -> Iterator[Forge]:
    """A forge that answers as long as the block runs."""
    made = Forge(**options)
    with serving(made.reply) as url:
        made.url = url
        yield made
