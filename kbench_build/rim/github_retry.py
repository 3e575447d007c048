"""When a question to GitHub's API is asked again, and how long is waited first.

Promises: never waits longer than it was told it may: a longer wait ends in
`RateLimitExceededExceedsMaxWait`. Every wait of a second or more is announced. Imports PyGithub,
which is an extra, so it is itself imported only where that is needed.
"""

from collections.abc import Callable
from typing import Any

from github.GithubException import RateLimitExceededExceedsMaxWait
from github.GithubRetry import GithubRetry

_TRIES = 3
_FAILED = [429, 500, 502, 503, 504]


class PatientRetry(GithubRetry):
    """PyGithub's own rules, for a status of 429 as well as 403, with a limit on Retry-After too."""

    def __init__(self, *, announce: Callable[[str], None], **options: Any) -> None:
        """`announce` is told of waits; the other options are PyGithub's and urllib3's."""
        self.announce = announce
        options = {"total": _TRIES, "status_forcelist": _FAILED, **options}
        super().__init__(**options)

    def new(self, **options: Any) -> "PatientRetry":
        """The same rules after one more attempt."""
        return super().new(announce=self.announce, **options)

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        """What is left after an answer or an error. Raises where nothing is."""
        if response is not None and response.status in (403, 429):
            asked = self.get_retry_after(response)
            if asked is not None and asked > (self.max_rate_limit_wait or asked):
                raise RateLimitExceededExceedsMaxWait(response.status, wait=asked)
            # GitHub uses both for its limits, and says in the body which of them it is.
            response.status = 403
        return super().increment(method, url, response, *rest, **more)

    def sleep(self, response: Any = None) -> None:
        """Wait as long as the answer asks for."""
        asked = self.get_retry_after(response) if response is not None else None
        seconds = asked or self.get_backoff_time()
        if seconds >= 1:
            self.announce(f"waiting {seconds:.0f} s, as GitHub asks")
        super().sleep(response)
