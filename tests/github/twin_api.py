"""The REST side of the twin: what GitHub answers about a bare repository and its pull requests."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.github.oracle import filled

BODY_LIMIT = 65_536


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, *details: dict[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)
        }  # fmt: skip
        if details:
            self.body["errors"] = list(details)


def invalid(field_name: str) -> Refusal:
    detail = {"resource": "PullRequest", "field": field_name, "code": "invalid"}
    return Refusal(422, "Validation Failed", detail)


def custom(message: str) -> Refusal:
    return Refusal(
        422, "Validation Failed", {"resource": "PullRequest", "code": "custom", "message": message}
    )


@dataclass
class Pull:
    number: int
    title: str
    body: str | None
    head: str
    base: str
    draft: bool
    state: str = "open"
    frozen_sha: str = ""
    """Of the head, when it was closed."""
    labels: list[str] = field(default_factory=list)
    edits: int = 0
    head_owner: str = ""
    """Of the fork that its branch is in; "" for this repository."""


@dataclass
class Comment:
    id: int
    number: int
    """Of the pull request."""
    login: str
    body: str
    edits: int = 0


@dataclass
class Api:
    """One repository."""

    path: Path
    owner: str
    name: str
    url: str = ""
    """Of the twin, without a slash at the end."""
    login: str = "cgins-tester"
    default_branch: str = "main"
    drafts: bool = True
    """Whether the repository's plan has drafts."""
    unseen_heads: int = 0
    """How many more times a pushed branch is not known yet."""
    pulls: list[Pull] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)

    def git(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments], capture_output=True, text=True, check=check
        )
        return done.stdout.strip()

    def tip(self, branch: str) -> str:
        return self.git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", check=False)

    def answer(
        self, template: str, method: str, path: dict[str, str], query: str, body: Any
    ) -> tuple[int, Any]:
        """Status and body.

        Raises:
            Refusal: GitHub says no.
        """
        if template == "/user":
            return 200, filled("public-user", self._user(self.login), url=self.url)
        if (path["owner"].lower(), path["repo"].lower()) != (self.owner.lower(), self.name.lower()):
            raise Refusal(404, "Not Found")
        name = template.removeprefix("/repos/{owner}/{repo}")
        handlers = {
            ("GET", ""): lambda: (200, self._repository("full-repository")),
            ("GET", "/pulls"): lambda: (200, self._list(query)),
            ("POST", "/pulls"): lambda: (201, self._create(body)),
            ("GET", "/pulls/{pull_number}"): lambda: (200, self.shown(self._pull(path["pull_number"]))),
            ("PATCH", "/pulls/{pull_number}"): lambda: (
                200,
                self._update(self._pull(path["pull_number"]), body),
            ),
            ("GET", "/git/ref/{ref}"): lambda: (200, self._ref(path["ref"])),
            ("GET", "/compare/{basehead}"): lambda: (200, self._compare(path["basehead"])),
            ("GET", "/issues/{issue_number}/comments"): lambda: (
                200,
                self._comments(path["issue_number"], query),
            ),
            ("POST", "/issues/{issue_number}/comments"): lambda: (
                201,
                self._comment(path["issue_number"], body),
            ),
            ("PATCH", "/issues/comments/{comment_id}"): lambda: (
                200,
                self._recomment(path["comment_id"], body),
            ),
            ("GET", "/issues/{issue_number}/labels"): lambda: (200, self._labels(path["issue_number"])),
            ("POST", "/issues/{issue_number}/labels"): lambda: (200, self._label(path["issue_number"], body)),
        }
        return handlers[method, name]()

    def shown(self, pull: Pull, schema: str = "pull-request") -> dict[str, Any]:
        html = f"{self.url}/{self.owner}/{self.name}/pull/{pull.number}"
        known = {
            "id": 1000 + pull.number,
            "number": pull.number,
            "title": pull.title,
            # What was sent comes back with the ends of lines of a browser.
            "body": None if pull.body is None else pull.body.replace("\r\n", "\n").replace("\n", "\r\n"),
            "draft": pull.draft,
            "state": pull.state,
            "html_url": html,
            "url": f"{self.url}/api/v3/repos/{self.owner}/{self.name}/pulls/{pull.number}",
            "user": filled("simple-user", self._user(self.login), url=self.url),
            "head": self._end(pull.head, pull.frozen_sha or self.tip(pull.head)),
            "base": self._end(pull.base, self.tip(pull.base)),
            "labels": self._shown_labels(pull),
        }
        return filled(schema, known, url=self.url)

    def _end(self, branch: str, commit: str) -> dict[str, Any]:
        return {
            "label": f"{self.owner}:{branch}",
            "ref": branch,
            "sha": commit,
            "user": filled("simple-user", self._user(self.owner), url=self.url),
            "repo": self._repository("repository"),
        }

    def _user(self, login: str) -> dict[str, Any]:
        return {"login": login, "type": "User", "html_url": f"{self.url}/{login}"}

    def _repository(self, schema: str) -> dict[str, Any]:
        known = {
            "name": self.name,
            "full_name": f"{self.owner}/{self.name}",
            "owner": filled("simple-user", self._user(self.owner), url=self.url),
            "default_branch": self.default_branch,
            "clone_url": f"{self.url}/{self.owner}/{self.name}.git",
            "private": True,
            "permissions": {"admin": False, "push": True, "pull": True},
        }
        return filled(schema, known, url=self.url)

    def _pull(self, number: str) -> Pull:
        found = next((one for one in self.pulls if str(one.number) == number), None)
        if found is None:
            raise Refusal(404, "Not Found")
        return found

    def _list(self, query: str) -> list[dict[str, Any]]:
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        found = sorted(self.pulls, key=lambda one: -one.number)
        state, head = asked.get("state", "open"), asked.get("head", "")
        if state != "all":
            found = [one for one in found if one.state == state]
        if ":" in head:  # GitHub ignores a head without an owner
            found = [one for one in found if f"{one.head_owner or self.owner}:{one.head}" == head]
        if "base" in asked:
            found = [one for one in found if one.base == asked["base"]]
        size, page = min(int(asked.get("per_page", "30")), 100), int(asked.get("page", "1"))
        return [self.shown(one, "pull-request-simple") for one in found[(page - 1) * size : page * size]]

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        head = body["head"].removeprefix(f"{self.owner}:")
        if not self.tip(body["base"]):
            raise invalid("base")
        if self.unseen_heads or not self.tip(head):
            self.unseen_heads = max(0, self.unseen_heads - 1)
            raise invalid("head")
        if any((one.head, one.base, one.state) == (head, body["base"], "open") for one in self.pulls):
            raise custom(f"A pull request already exists for {self.owner}:{head}.")
        if self.git("rev-list", "--count", f"refs/heads/{body['base']}..refs/heads/{head}") == "0":
            raise custom(f"No commits between {body['base']} and {head}")
        if not body.get("title"):
            raise Refusal(
                422,
                "Validation Failed",
                {"resource": "Issue", "code": "missing_field", "field": "title"},
            )
        if body.get("draft") and not self.drafts:
            raise Refusal(422, "Draft pull requests are not supported in this repository.")
        self._check_words(body)
        pull = Pull(
            number=max((one.number for one in self.pulls), default=0) + 1,
            title=body["title"],
            body=body.get("body"),
            head=head,
            base=body["base"],
            draft=bool(body.get("draft")),
        )
        self.pulls.append(pull)
        return self.shown(pull)

    def _update(self, pull: Pull, body: dict[str, Any]) -> dict[str, Any]:
        self._check_words(body)
        if "base" in body and not self.tip(body["base"]):
            raise invalid("base")
        pull.title = body.get("title", pull.title)
        pull.body = body.get("body", pull.body)
        pull.base = body.get("base", pull.base)
        if "state" in body:
            self.set_state(pull, body["state"])
        pull.edits += 1
        return self.shown(pull)

    def set_state(self, pull: Pull, state: str) -> None:
        pull.state, pull.frozen_sha = state, self.tip(pull.head) if state == "closed" else ""

    def _check_words(self, body: dict[str, Any]) -> None:
        if len(body.get("body") or "") > BODY_LIMIT:
            raise custom(f"body is too long (maximum is {BODY_LIMIT} characters)")
        if len(body.get("title") or "") > 256:
            raise custom("title is too long (maximum is 256 characters)")

    def _ref(self, ref: str) -> dict[str, Any]:
        commit = self.git("rev-parse", "--verify", "--quiet", f"refs/{ref}", check=False)
        if not commit:
            raise Refusal(404, "Not Found")
        there = {"type": "commit", "sha": commit, "url": self.url}
        return filled("git-ref", {"ref": f"refs/{ref}", "object": there}, url=self.url)

    def _compare(self, basehead: str) -> dict[str, Any]:
        base, found, head = basehead.partition("...")
        ends = self.tip(base), self.tip(head)
        if not found or not all(ends):
            raise Refusal(404, "Not Found")
        ahead = self.git("rev-list", "--reverse", f"{ends[0]}..{ends[1]}").split()
        behind = self.git("rev-list", f"{ends[1]}..{ends[0]}").split()
        status = {(True, True): "diverged", (True, False): "ahead", (False, True): "behind"}
        known = {
            "status": status.get((bool(ahead), bool(behind)), "identical"),
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "total_commits": len(ahead),
            "base_commit": self._commit(ends[0]),
            "merge_base_commit": self._commit(self.git("merge-base", *ends)),
            "commits": [self._commit(one) for one in ahead],
        }
        return filled("commit-comparison", known, url=self.url)

    def _commit(self, commit: str) -> dict[str, Any]:
        return filled("commit", {"sha": commit}, url=self.url)

    def _comments(self, number: str, query: str) -> list[dict[str, Any]]:
        asked = {name: int(values[-1]) for name, values in parse_qs(query).items()}
        size, page = min(asked.get("per_page", 30), 100), asked.get("page", 1)
        mine = [one for one in self.comments if one.number == self._pull(number).number]
        return [self._shown_comment(one) for one in mine[(page - 1) * size : page * size]]

    def _comment(self, number: str, body: dict[str, Any]) -> dict[str, Any]:
        self._check_words(body)
        made = Comment(len(self.comments) + 1, self._pull(number).number, self.login, body["body"])
        self.comments.append(made)
        return self._shown_comment(made)

    def _recomment(self, comment: str, body: dict[str, Any]) -> dict[str, Any]:
        found = next((one for one in self.comments if str(one.id) == comment), None)
        if found is None:
            raise Refusal(404, "Not Found")
        if found.login != self.login:
            raise Refusal(403, "Resource not accessible by integration")
        self._check_words(body)
        found.body, found.edits = body["body"], found.edits + 1
        return self._shown_comment(found)

    def _shown_comment(self, one: Comment) -> dict[str, Any]:
        known = {
            "id": one.id,
            "body": one.body.replace("\r\n", "\n").replace("\n", "\r\n"),
            "html_url": f"{self.url}/{self.owner}/{self.name}/pull/{one.number}#issuecomment-{one.id}",
            "user": filled("simple-user", self._user(one.login), url=self.url),
        }
        return filled("issue-comment", known, url=self.url)

    def _labels(self, number: str) -> list[dict[str, Any]]:
        return self._shown_labels(self._pull(number))

    def _label(self, number: str, body: Any) -> list[dict[str, Any]]:
        pull = self._pull(number)
        for one in body["labels"] if isinstance(body, dict) else body:
            name = one if isinstance(one, str) else one["name"]
            if name not in pull.labels:
                pull.labels.append(name)
        return self._labels(number)

    def _shown_labels(self, pull: Pull) -> list[dict[str, Any]]:
        return [
            {
                "id": 1,
                "node_id": "",
                "url": self.url,
                "name": one,
                "description": "",
                "color": "ededed",
                "default": False,
            }
            for one in pull.labels
        ]
