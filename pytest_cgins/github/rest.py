"""GitHub's REST API, as far as a pull request needs it, with time-outs, bounded retries and errors that say what to do.

The library is httpx2, on which openai builds: the maintained continuation of httpx. It needs Python 3.11; before that
it is httpx itself, whose calls are the same.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_cgins.errors import GitHubError

if TYPE_CHECKING:
    from types import ModuleType

    import httpx2

API_VERSION = "2022-11-28"
LIMIT_S = 30.0
"""Longest wait for a connection, and for each piece of an answer."""
TRIES = 4
LONGEST_WAIT_S = 60.0
"""A server that asks for a longer pause gets an error instead."""
TOKEN_VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN")
PAGE = 100

_RETRIED = (429, 500, 502, 503, 504)
_MESSAGE_LENGTH = 500
_REMEDIES = {
    301: "the repository was renamed or moved: set the remote's url, or --repository, to its new name",
    401: "the token is not valid, or has expired: set GITHUB_TOKEN or GH_TOKEN to one that is",
    403: "the token needs the permissions contents: write and pull-requests: write for this repository",
    404: "look at OWNER/NAME; GitHub also says 404 where a token has no access to the repository",
}
_ACTIONS_REMEDY = (
    "allow it in the repository's settings: Actions, General, Workflow permissions, or use an App's token"
)
_log = logging.getLogger(__name__)


def token(environment: Mapping[str, str], variable: str = "") -> str:
    """The token, from the environment alone.

    Args:
        environment: the variables.
        variable: name of the one that has it; "" for the first of `TOKEN_VARIABLES`.

    Raises:
        GitHubError: none is set, or it is no token.
    """
    names = (variable,) if variable else TOKEN_VARIABLES
    found = next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")
    if not found:
        raise GitHubError(
            f"there is no token: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not set",
            remedy="set it to a token with the permissions contents: write and pull-requests: write",
        )
    if not (found.isascii() and found.isprintable() and " " not in found):
        raise GitHubError("the token has blanks or characters that no token has", remedy="copy it again")
    return found


class Rest:
    """One repository, seen through the REST API."""

    def __init__(self, base_url: str, token: str, repository: str) -> None:
        """Nothing is sent yet.

        Args:
            base_url: of the API, without a slash at the end.
            token: goes into a header, and nowhere else.
            repository: `owner/name`.
        """
        from pytest_cgins import __version__

        self._library = _library()
        self._repository = repository
        self._token = token
        self._client: httpx2.Client = self._library.Client(
            base_url=base_url,
            timeout=LIMIT_S,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {token}",
                "User-Agent": f"pytest-cgins/{__version__}",
                "X-GitHub-Api-Version": API_VERSION,
            },
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def repository(self) -> dict[str, Any]:
        """The repository itself: its `default_branch`, and what the token may do, under `permissions`."""
        found: dict[str, Any] = self._call("GET", "")
        return found

    def pulls(self, *, head: str, base: str = "", state: str = "open") -> list[dict[str, Any]]:
        """Pull requests from one branch into another, newest first.

        Args:
            head: `owner:branch`.
            base: a branch; "" for any.
            state: `open`, `closed` or `all`.
        """
        query = {"head": head, "state": state, "per_page": str(PAGE)} | ({"base": base} if base else {})
        found: list[dict[str, Any]] = self._call("GET", "/pulls", query=query)
        return found

    def create_pull(self, *, title: str, body: str, head: str, base: str, draft: bool) -> dict[str, Any]:
        """Open a pull request.

        Raises:
            GitHubError: status 422 where there is one already, or no difference.
        """
        content = {"title": title, "body": body, "head": head, "base": base, "draft": draft}
        made: dict[str, Any] = self._call("POST", "/pulls", content=content)
        return made

    def update_pull(self, number: int, *, title: str, body: str) -> dict[str, Any]:
        """Give a pull request other words."""
        changed: dict[str, Any] = self._call(
            "PATCH", f"/pulls/{number}", content={"title": title, "body": body}
        )
        return changed

    def comments(self, number: int) -> Iterator[dict[str, Any]]:
        """Comments of a pull request, oldest first, page after page as they are asked for."""
        page = 1
        while True:
            query = {"per_page": str(PAGE), "page": str(page)}
            found: list[dict[str, Any]] = self._call("GET", f"/issues/{number}/comments", query=query)
            yield from found
            if len(found) < PAGE:
                return
            page += 1

    def create_comment(self, number: int, body: str) -> dict[str, Any]:
        """Write a comment. If an answer is lost there may be two of it: the next run rewrites the first."""
        made: dict[str, Any] = self._call("POST", f"/issues/{number}/comments", content={"body": body})
        return made

    def update_comment(self, comment: int, body: str) -> dict[str, Any]:
        """Give a comment other words."""
        changed: dict[str, Any] = self._call("PATCH", f"/issues/comments/{comment}", content={"body": body})
        return changed

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, content: object = None
    ) -> Any:
        """Send a request until it is answered, `TRIES` times at most.

        A second POST does no harm: GitHub knows one open pull request of a branch into another, and refuses the next; of
        comments the first is found again.
        """
        url = f"/repos/{self._repository}{path}"
        for tried in range(1, TRIES + 1):
            try:
                response = self._client.request(method, url, params=query, json=content)
            except self._library.TransportError as error:
                if tried == TRIES:
                    raise self._unreachable(method, url, error) from None
                wait_s = float(2 ** (tried - 1))
                _log.info("%s %s: %s; again in %g s", method, url, type(error).__name__, wait_s)
            else:
                if response.is_success:
                    return self._decoded(response, method, url)
                wait_s = _wait_s(response, tried)
                if tried == TRIES or not 0 <= wait_s <= LONGEST_WAIT_S:
                    raise self._refused(response, method, url)
                _log.info("%s %s: status %d; again in %g s", method, url, response.status_code, wait_s)
            time.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    def _decoded(self, response: httpx2.Response, method: str, url: str) -> Any:
        try:
            return response.json()
        except ValueError:
            raise GitHubError(
                f"{method} {url}: the answer is not JSON",
                remedy="GITHUB_API_URL must be the address of GitHub's REST API",
                status=response.status_code,
            ) from None

    def _unreachable(self, method: str, url: str, error: Exception) -> GitHubError:
        said = self._clean(str(error)) or type(error).__name__
        return GitHubError(
            f"{method} {url}: GitHub cannot be reached at {self._client.base_url.host}: {said}",
            remedy="look at the network, at proxies, and at GITHUB_API_URL",
        )

    def _refused(self, response: httpx2.Response, method: str, url: str) -> GitHubError:
        status = response.status_code
        said = self._clean(_said(response))
        remedy = _REMEDIES.get(status, "")
        if status == 403 and "GitHub Actions is not permitted" in said:
            remedy = _ACTIONS_REMEDY
        elif _limited(response):
            remedy = "GitHub limits how much is asked of it: run the command again later"
        elif status == 422 and "raft pull requests are not supported" in said:
            remedy = "open it with --ready"
        elif status >= 500:
            remedy = "GitHub has trouble: run the command again later"
        return GitHubError(f"{method} {url}: status {status}: {said}", remedy=remedy, status=status)

    def _clean(self, text: str) -> str:
        shown = "".join(one if one.isprintable() else " " for one in text.replace(self._token, "***"))
        return shown[:_MESSAGE_LENGTH]


def _library() -> ModuleType:
    return importlib.import_module("httpx2" if sys.version_info >= (3, 11) else "httpx")


def _said(response: httpx2.Response) -> str:
    """GitHub's own words: `message`, and those of each of its `errors`."""
    try:
        content = response.json()
    except ValueError:
        return response.reason_phrase
    if not isinstance(content, dict):
        return response.reason_phrase
    errors = content.get("errors")
    details = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    words = [content.get("message"), *(_detail(one) for one in details)]
    return "; ".join(str(word) for word in words if word)


def _detail(error: dict[str, Any]) -> str:
    return str(error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if key in error))


def _limited(response: httpx2.Response) -> bool:
    if response.status_code == 429:
        return True
    return response.status_code == 403 and (
        "retry-after" in response.headers
        or response.headers.get("x-ratelimit-remaining") == "0"
        or "rate limit" in _said(response).lower()
    )


def _wait_s(response: httpx2.Response, tried: int) -> float:
    """How long to wait for the next try; negative: there is none."""
    if response.status_code not in _RETRIED and not _limited(response):
        return -1.0
    asked = response.headers.get("retry-after", "")
    if re.fullmatch(r"\d{1,9}", asked):
        return float(asked)
    if response.headers.get("x-ratelimit-remaining") == "0":
        reset = response.headers.get("x-ratelimit-reset", "")
        if re.fullmatch(r"\d{1,12}", reset):
            return max(float(reset) - time.time(), 1.0)
    return float(2 ** (tried - 1))
