"""Requests to GitHub's APIs, with time-outs, bounded retries and errors that say what to do.

The library is httpx2, on which openai builds: the maintained continuation of httpx. It needs Python 3.11;
before that it is httpx itself, whose calls are the same.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.credentials import workflow_permission
from pytest_cgins.pull_request.retries import retried

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2

API_VERSION = "2022-11-28"
LIMIT_S = 30.0
"""Longest wait for a connection, and for each piece of an answer."""
TRIES = 4
LONGEST_WAIT_S = 60.0
"""A server that asks for a longer pause gets an error instead."""
LIMIT_WAIT_S = 60.0
"""The pause after a limit that does not say how long it lasts, as GitHub asks for. The next would be twice as
long."""

LIMITED = 429
"""`status` of errors that are limits, whatever the server answered."""

_RETRIED = (500, 502, 503, 504)
_MESSAGE_LENGTH = 500
_REMEDIES = {
    401: "the token is not valid, or has expired: set GITHUB_TOKEN or GH_TOKEN to one that is",
    403: "the token needs the permissions contents: write and pull-requests: write for this repository",
    404: "look at OWNER/NAME; GitHub also says 404 where a token has no access to the repository",
    409: "the repository is empty, or something is being done to it: run the command again later",
}
_MOVED_REMEDY = "the repository was renamed or moved: set the remote's url, or --repository, to its new name"
_ELSEWHERE_REMEDY = "look at GITHUB_API_URL and at proxies: neither token nor words were sent on"
_ACTIONS_REMEDY = (
    "allow it in the repository's settings: Actions, General, Workflow permissions, or use an App's token"
)
_ADDRESSES = (
    "look at GITHUB_API_URL, HTTPS_PROXY, HTTP_PROXY and ALL_PROXY; socks5:// needs the package socksio"
)
_LATER = "GitHub limits how much is asked of it: run the command again later"


class Transport:
    """One server's API, and the token that is sent to it and to no other."""

    def __init__(self, base_url: str, token: str) -> None:
        """Nothing is sent yet.

        Raises:
            GitHubError: the address, or that of a proxy, cannot be used.
        """
        from pytest_cgins import __version__

        self._library = _library()
        self._token = token
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "User-Agent": f"pytest-cgins/{__version__}",
            "X-GitHub-Api-Version": API_VERSION,
        }
        try:
            self._client: httpx2.Client = self._library.Client(
                base_url=base_url, timeout=LIMIT_S, headers=headers, follow_redirects=False
            )
        except (ValueError, ImportError, self._library.InvalidURL):
            # Not the library's words, which may have some of a proxy's password.
            raise GitHubError(
                "the address of the API, or that of a proxy, cannot be used", remedy=_ADDRESSES
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: object = None,
        once: bool = False,
    ) -> Any:
        """Send a request until it is answered, `TRIES` times at most; the path is from the API's base, or a whole url.

        What must not be done twice, `once`, is sent again only when rate-limited: without an answer, it may have been done.

        Returns:
            The decoded answer; None where it has no content.
        """

        def send() -> Any:
            try:
                response = self._client.request(method, path, params=query, json=content)
            except self._library.TransportError as error:
                raise self._unreachable(method, path, error) from None
            if response.is_success and not _limited(response):
                return self._decoded(response, method, path)
            raise self._refused(response, method, path)

        return retried(self._client.base_url.host, send, _Pauses(once=once), TRIES)

    def clean(self, text: str) -> str:
        """A text from the server for a message: one line, cut, without the token."""
        shown = "".join(
            letter if letter.isprintable() else " " for letter in text.replace(self._token, "***")
        )
        return shown[:_MESSAGE_LENGTH]

    def _decoded(self, response: httpx2.Response, method: str, path: str) -> Any:
        if response.status_code == 204:
            return None
        try:
            return response.json()
        except ValueError:
            raise GitHubError(
                f"{method} {path}: the answer is not JSON",
                remedy="GITHUB_API_URL must be the address of GitHub's REST API",
                status=response.status_code,
            ) from None

    def _unreachable(self, method: str, path: str, error: Exception) -> _RequestError:
        reason = self.clean(str(error)) or type(error).__name__
        return _RequestError(
            f"{method} {path}: GitHub cannot be reached at {self._client.base_url.host}: {reason}",
            remedy="look at the network, at proxies, and at GITHUB_API_URL",
        )

    def _refused(self, response: httpx2.Response, method: str, path: str) -> _RequestError:
        status = response.status_code
        message = self.clean(_said(response))
        remedy = workflow_permission(message) or _REMEDIES.get(status, "")
        if 300 <= status < 400:
            there = _location(response)
            message += f", to {self.clean(there)}" if there else ""
            own = not there or there.startswith(str(self._client.base_url.join("/")))
            remedy = _MOVED_REMEDY if own else _ELSEWHERE_REMEDY
        elif status == 403 and "GitHub Actions is not permitted" in message:
            remedy = _ACTIONS_REMEDY
        elif _limited(response):
            remedy = _LATER
        elif status == 422 and "raft pull requests are not supported" in message:
            remedy = "open it with --ready"
        elif status >= 500:
            remedy = "GitHub has trouble: run the command again later"
        # A limit comes with 403 too, and is no refusal of what was asked for.
        kind = LIMITED if _limited(response) else status
        summary = f"{method} {path}: status {status}" + (f": {message}" if message else "")
        return _RequestError(summary, remedy=remedy, status=kind, response=response)


@dataclass(eq=False, repr=False, kw_only=True)
class _RequestError(GitHubError):
    """A request that was refused, or that got no answer."""

    response: httpx2.Response | None = None
    """The refusal."""


class _Pauses:
    """How long one request waits for its next try."""

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._waited_for_limit = False

    def __call__(self, error: GitHubError, tried: int) -> float | None:
        """Seconds; None if there is no other try."""
        if not isinstance(error, _RequestError):
            return None
        response, growing_s = error.response, float(2 ** (tried - 1))
        if response is None:
            return None if self._once else growing_s
        limited = _limited(response)
        if not limited and (self._once or response.status_code not in _RETRIED):
            return None
        named_s = _named_s(response)
        if named_s is not None:
            return named_s if named_s <= LONGEST_WAIT_S else None
        if not limited:
            return growing_s
        # After a second limit of unknown length the wait would be twice as long, which is too long.
        first, self._waited_for_limit = not self._waited_for_limit, True
        return LIMIT_WAIT_S if first else None


def _library() -> ModuleType:
    return importlib.import_module("httpx2" if sys.version_info >= (3, 11) else "httpx")


def _location(response: httpx2.Response) -> str:
    """Where a redirect points to, without what may be secret in it; "" for nowhere."""
    if not response.headers.get("location"):
        return ""
    try:
        parts = urlsplit(urljoin(str(response.request.url), response.headers["location"]))
        netloc = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    return parts._replace(netloc=netloc, query="", fragment="").geturl()


def _said(response: httpx2.Response) -> str:
    """GitHub's own words: `message`, and those of each of its `errors`."""
    try:
        content = response.json()
    except ValueError:
        return response.reason_phrase
    if not isinstance(content, dict):
        return response.reason_phrase
    errors = content.get("errors")
    details = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    words = [content.get("message"), *(_detail(error) for error in details)]
    return "; ".join(str(word) for word in words if word)


def _detail(error: dict[str, Any]) -> str:
    return str(error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if key in error))


def _limited(response: httpx2.Response) -> bool:
    if response.status_code == 429:
        return True
    if response.status_code == 200 and response.request.method == "POST":
        # An error of the GraphQL API comes with status 200; REST answers no POST on such a path.
        return response.url.path.endswith("/graphql") and '"RATE_LIMIT' in response.text
    return response.status_code == 403 and (
        "retry-after" in response.headers
        or response.headers.get("x-ratelimit-remaining") == "0"
        or "rate limit" in _said(response).lower()
    )


def _named_s(response: httpx2.Response) -> float | None:
    """How long the server asks to wait; None where it does not say."""
    asked = response.headers.get("retry-after", "")
    if re.fullmatch(r"\d{1,9}", asked):
        return float(asked)
    if response.headers.get("x-ratelimit-remaining") == "0":
        reset = response.headers.get("x-ratelimit-reset", "")
        if re.fullmatch(r"\d{1,12}", reset):
            return max(float(reset) - time.time(), 1.0)
    return None
