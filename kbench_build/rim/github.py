"""GitHub's API, asked one question after another, through PyGithub.

Promises: an answer, or a `ForgeError` that says why there is none; limits are waited for as long as
`Patience` allows; after three failures in a row, a refused token or a limit that is too far off
nothing is asked any more. The token is sent to the named server alone, and stands in no message.
Leaves what to ask, and what answers mean, to others.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from kbench_build.errors import KbenchError

PUBLIC = "https://api.github.com"
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_URL = "GITHUB_API_URL"
UNCHANGED = 304
_GONE = (404, 410, 451)
_FAILURES = 3
_TIMEOUT_SEC = 60


class ForgeError(KbenchError):
    """A question that the forge didn't answer."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, in seconds: at most, at a secondary limit that names no time, and between
    attempts after a failure (the first time; twice as long each time after).
    """

    longest: float = 900
    secondary: float = 60
    failure: float = 1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the forge said. `status` is 200, 304 (as known by its `etag`), 404, 410 or 451.

    `next` is where the next page is, empty where there is none.
    """

    status: int
    value: Any = None
    etag: str = ""
    next: str = ""


def server_and_token(origin: str, env: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The API's address and the token that the environment names; an empty token is none.

    `origin` is the clone's address: what isn't at github.com needs `GITHUB_API_URL`. Raises
    `KbenchError` where a token would travel in the open or to a server that nobody named.
    """
    url = env.get(_URL, "").rstrip("/")
    if not url and origin and not _is_public(origin):
        raise KbenchError(f"{origin}: isn't at github.com: set {_URL} to its API's address")
    parts = urlsplit(url or PUBLIC)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise KbenchError(f"{_URL}: must be an address such as {PUBLIC}")
    token = next((env[name].strip() for name in _TOKENS if env.get(name, "").strip()), "")
    if token and parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise KbenchError(f"{_URL}: must begin with https, or the token could be read on its way")
    return url or PUBLIC, token


def _is_public(origin: str) -> bool:
    host = origin.partition("://")[2] or origin
    return host.partition("/")[0].partition(":")[0].rpartition("@")[2].lower() in (
        "github.com",
        "www.github.com",
        "ssh.github.com",
    )


class GitHub:
    """One server; used by one thread."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        announce: Callable[[str], None],
        patience: Patience | None = None,
    ) -> None:
        """`announce` is told of every wait. Raises `KbenchError` where PyGithub isn't installed."""
        github, retry = _library()
        rules = patience or Patience()
        github.set_log_level("CRITICAL")
        self.url = url
        self.asked = 0
        self.closed = ""
        self._failures = 0
        self._prefix = urlsplit(url).path.rstrip("/")
        self._client = github.Github(
            base_url=url,
            auth=github.Auth.Token(token) if token else None,
            timeout=_TIMEOUT_SEC,
            per_page=100,
            user_agent="kbench-build",
            seconds_between_requests=None,
            retry=retry(
                announce=announce,
                backoff_factor=rules.failure,
                secondary_rate_wait=rules.secondary,
                max_rate_limit_wait=rules.longest,
            ),
        )

    def get(self, path: str, etag: str = "") -> Answer:
        """Ask for what is at a path below the server's address. Raises `ForgeError`.

        An `etag` asks only for what has changed since the answer that it came with.
        """
        if self.closed:
            raise ForgeError(self.closed)
        self.asked += 1
        headers = {"Accept": "application/vnd.github+json"}
        headers |= {"If-None-Match": etag} if etag else {}
        try:
            status, said, text = self._request(path, headers)
            answer = self._answer(status, said, text)
        except ForgeError as error:
            self._failures += 1
            if self._failures == _FAILURES:
                self.closed = self.closed or str(error)
            raise
        self._failures = 0
        return answer

    def _request(self, path: str, headers: dict[str, str]) -> tuple[int, Mapping[str, str], str]:
        from github.GithubException import (  # noqa: PLC0415
            GithubException,
            RateLimitExceededExceedsMaxWait,
        )
        from requests import RequestException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            status, said, text = self._client.requester.requestJson("GET", path, headers=headers)
        except RateLimitExceededExceedsMaxWait as error:
            self.closed = _until(error.wait)
            raise ForgeError(self.closed) from None
        except GithubException as error:
            raise ForgeError(f"{error.status}: {_message(error.data)}") from None
        except (RequestException, HTTPError) as error:
            raise ForgeError(f"didn't answer: {_cause(error)}") from None
        except (RuntimeError, AssertionError):
            raise ForgeError("sends on to another server") from None
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            # Numbers in headers that are none, for instance.
            raise ForgeError(f"answers oddly: {_cause(error)}") from None
        return status, said, text

    def _answer(self, status: int, headers: Mapping[str, str], text: str) -> Answer:
        if status in (UNCHANGED, *_GONE):
            return Answer(status=status)
        value = _parsed(text)
        if status == 401:
            self.closed = f"401: {_message(value)}: see to the token in {' or '.join(_TOKENS)}"
            raise ForgeError(self.closed)
        if status != 200:
            raise ForgeError(f"{status}: {_message(value)}")
        if not isinstance(value, (dict, list)):
            raise ForgeError("the answer is no JSON")
        return Answer(
            status=200, value=value, etag=headers.get("etag", ""), next=self._next(headers)
        )

    def _next(self, headers: Mapping[str, str]) -> str:
        """Where the next page is, below the server's address, whichever host its link names."""
        from requests.utils import parse_header_links  # noqa: PLC0415

        links = parse_header_links(headers.get("link", ""))
        url = next((link["url"] for link in links if link.get("rel") == "next"), "")
        parts = urlsplit(url)
        if not url or not parts.path.startswith(f"{self._prefix}/"):
            return ""
        return f"{parts.path.removeprefix(self._prefix)}?{parts.query}"


def _library() -> tuple[Any, Any]:
    try:
        import github  # noqa: PLC0415

        from kbench_build.rim.github_retry import PatientRetry  # noqa: PLC0415
    except ImportError as error:
        raise KbenchError(
            "PyGithub isn't installed: pip install 'kbench-build[mine]', or give --pulls"
        ) from error
    return github, PatientRetry


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _message(value: Any) -> str:
    """What the server gives as a reason, in one short line."""
    if isinstance(value, str):
        value = _parsed(value)
    said = value.get("message") if isinstance(value, dict) else None
    return " ".join(said.split())[:200] if isinstance(said, str) and said else "no reason given"


def _until(wait: float | None) -> str:
    then = time.strftime("%H:%M", time.localtime(time.time() + (wait or 0)))
    return f"the limit of requests is used up until {then}: run it again then, it goes on from here"


def _cause(error: BaseException) -> str:
    """The innermost reason of a failed request, in one short line."""
    inner = getattr(error, "reason", None)
    causes = (inner, *error.args)
    cause = next((each for each in causes if isinstance(each, BaseException)), None)
    if cause is not None:
        return _cause(cause)
    said = str(error)
    return (said.partition("): ")[2] or said or type(error).__name__)[:200]
