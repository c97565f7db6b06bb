"""A client of the twin for its own tests: it knows nothing, so that it can ask what the product never would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.pull_request.conftest import Place, commit
from tests.pull_request.twin import API, GRAPHQL, WRITER

HEADERS = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
    "User-Agent": "pytest-cgins",
}


class Asker:
    """A client of the twin."""

    def __init__(self, place: Place, client: httpx2.Client) -> None:
        self.place = place
        self.client = client

    def __call__(self, method: str, path: str, body: Any = None, *, token: str = WRITER) -> tuple[int, Any]:
        """Status, and what is said; a path without a slash is of the repository."""
        url = path if path.startswith("/") else f"/repos/octo/kernels/{path}".rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = self.client.request(method, API + url, json=body, headers=headers)
        return answer.status_code, answer.json() if answer.content else None

    def graphql(self, query: str, given: dict[str, Any] | None = None, *, token: str = WRITER) -> Any:
        """The whole answer to a document whose one variable is `input`."""
        body = {"query": query} | ({"variables": {"input": given}} if given else {})
        answer = self.client.post(GRAPHQL, json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def opened(self, branch: str = "work") -> Any:
        """A new pull request from a branch with a commit."""
        commit(self.place.other, {f"{branch}.txt": branch}, branch=branch)
        status, made = self("POST", "pulls", {"title": branch, "head": branch, "base": "main"})
        assert status == 201, made
        return self.place.twin.api.pulls[-1]

    def remote(self) -> str:
        """Address for git, with the token that may write."""
        return self.place.twin.remote.replace("http://", f"http://x-access-token:{WRITER}@")

    def violations(self) -> list[str]:
        """What the twin found, which is then forgotten."""
        found, self.place.twin.violations[:] = list(self.place.twin.violations), []
        return found


@contextmanager
def asking(place: Place) -> Iterator[Asker]:
    """A client, until the end of the block."""
    with httpx2.Client(base_url=place.twin.url, headers=HEADERS) as client:
        yield Asker(place, client)
