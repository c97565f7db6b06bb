"""GitHub's REST API, as far as pull requests and their comments need it: one method an operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.transport import Transport

PAGE = 100
"""Most that GitHub lists at once."""
NOT_FOUND = 404


def plain(text: str | None) -> str:
    """A text as it was sent: GitHub gives lines back with the ends that a browser would send."""
    return (text or "").replace("\r\n", "\n").strip()


class Rest:
    """One repository, seen through the REST API; each method raises `GitHubError` where GitHub refuses."""

    def __init__(self, transport: Transport, repository: str) -> None:
        """Nothing is sent yet; the repository is `owner/name`."""
        self._transport = transport
        self._repository = repository

    def user(self) -> dict[str, Any]:
        """Whose token it is; an App's is refused with status 403."""
        user: dict[str, Any] = self._transport.request("GET", "/user")
        return user

    def repository(self) -> dict[str, Any]:
        """The repository: `default_branch`, `node_id`, and under `permissions` what the token may do."""
        return self._call("GET", "")

    # ---- pull requests

    def pulls(self, *, head: str = "", base: str = "", state: str = "open") -> Iterator[dict[str, Any]]:
        """Pull requests of a head, `owner:branch`, and a base, "" for any, newest first, page after page as they are asked for."""
        filters = {"head": head, "base": base, "state": state}
        return self._pages("/pulls", {name: value for name, value in filters.items() if value})

    def pull(self, number: int) -> dict[str, Any]:
        """One pull request as it is now."""
        return self._call("GET", f"/pulls/{number}")

    def create_pull(self, *, title: str, body: str, head: str, base: str, draft: bool) -> dict[str, Any]:
        """Open a pull request; status 422 where there is one already, or no difference.

        A second request does no harm: GitHub knows one open pull request of a branch into another.
        """
        content = {"title": title, "body": body, "head": head, "base": base, "draft": draft}
        return self._call("POST", "/pulls", content=content)

    def update_pull(self, number: int, **fields: str) -> dict[str, Any]:
        """Give a pull request another `title`, `body` or `state`."""
        return self._call("PATCH", f"/pulls/{number}", content=fields)

    def request_reviewers(self, number: int, *, reviewers: Sequence[str], teams: Sequence[str]) -> None:
        """Ask people and teams for a review; status 422 if one of them cannot be asked."""
        content = {"reviewers": list(reviewers), "team_reviewers": list(teams)}
        self._call("POST", f"/pulls/{number}/requested_reviewers", content=content)

    # ---- issues, of which a pull request is one

    def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Give a pull request labels, beside those that it has; GitHub makes those that it does not know."""
        self._call("POST", f"/issues/{number}/labels", content={"labels": list(labels)})

    def remove_label(self, number: int, label: str) -> None:
        """Take a label away; status 404 if it is not there."""
        self._call("DELETE", f"/issues/{number}/labels/{quote(label, safe='')}")

    def add_assignees(self, number: int, assignees: Sequence[str]) -> list[str]:
        """Assign people; those whom GitHub took, for it leaves others out without a word."""
        answer = self._call("POST", f"/issues/{number}/assignees", content={"assignees": list(assignees)})
        return [user["login"] for user in answer["assignees"]]

    def events(self, number: int) -> Iterator[dict[str, Any]]:
        """What happened to a pull request, oldest first."""
        return self._pages(f"/issues/{number}/events", {})

    def comments(self, number: int) -> Iterator[dict[str, Any]]:
        """Comments of a pull request, oldest first, page after page as they are asked for."""
        return self._pages(f"/issues/{number}/comments", {})

    def create_comment(self, number: int, body: str) -> dict[str, Any]:
        """Write a comment; sent once, for a second request would make a second comment."""
        return self._call("POST", f"/issues/{number}/comments", content={"body": body}, once=True)

    def update_comment(self, comment: int, body: str) -> dict[str, Any]:
        """Give a comment other words."""
        return self._call("PATCH", f"/issues/comments/{comment}", content={"body": body})

    # ---- git's objects and refs

    def commit(self, commit: str) -> dict[str, Any]:
        """A commit: `message`, `tree`, `parents`, `verification`."""
        return self._call("GET", f"/git/commits/{commit}")

    def create_tree(self, base: str, entries: Sequence[Mapping[str, str]]) -> str:
        """Write a tree, that of the base with these entries: `path`, `mode`, `type` and `content` of each file; its id."""
        made = self._call("POST", "/git/trees", content={"base_tree": base, "tree": list(entries)})
        return str(made["sha"])

    def create_commit(self, message: str, tree: str, parent: str) -> dict[str, Any]:
        """Write a commit that no ref has yet. GitHub signs it where the token is a bot's."""
        content = {"message": message, "tree": tree, "parents": [parent]}
        return self._call("POST", "/git/commits", content=content)

    def branch(self, name: str) -> str | None:
        """The commit at the tip of a branch; None if there is no such branch."""
        try:
            ref = self._call("GET", f"/git/ref/heads/{quote(name)}")
        except GitHubError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return str(ref["object"]["sha"])

    def create_branch(self, name: str, commit: str) -> None:
        """Make a branch; status 422 if there is one already."""
        self._call("POST", "/git/refs", content={"ref": f"refs/heads/{name}", "sha": commit})

    def move_branch(self, name: str, commit: str) -> None:
        """Set a branch to a commit, whatever it had."""
        self._call("PATCH", f"/git/refs/heads/{quote(name)}", content={"sha": commit, "force": True})

    def delete_branch(self, name: str) -> None:
        """Delete a branch; status 422 if there is none."""
        self._call("DELETE", f"/git/refs/heads/{quote(name)}")

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            asked = {**query, "per_page": str(PAGE), "page": str(page)}
            items = self._transport.request("GET", f"/repos/{self._repository}{path}", query=asked)
            yield from items
            if len(items) < PAGE:
                return
            page += 1

    def _call(self, method: str, path: str, *, content: object = None, once: bool = False) -> dict[str, Any]:
        url = f"/repos/{self._repository}{path}"
        answer: dict[str, Any] = self._transport.request(method, url, content=content, once=once)
        return answer
