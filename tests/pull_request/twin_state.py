"""What the twin knows of one repository: its settings, pull requests, comments and events; git itself is asked for the rest."""

from __future__ import annotations

import os
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pull_request.oracle import WHEN, filled

BODY_LIMIT = 65_536
PERSON = "ada"
"""Who did what a test does, if it does not say."""
ZERO = "0" * 40
DECLINED = "Changes must be made through a pull request."


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(
        self, status: int, message: str, *details: dict[str, str] | str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
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


def not_found() -> Refusal:
    return Refusal(404, "Not Found")


@dataclass
class Pull:
    """A pull request."""

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
    """Of the fork that its branch is in; "" for this repository's."""
    head_repository: str | None = ""
    """Name of the repository that its branch is in, without the owner, who may be the same; "" for this repository's, None
    for a fork that is gone."""
    login: str = ""
    """Who opened it; "" for the api's own login."""
    merged_at: str | None = None
    assignees: list[str] = field(default_factory=list)
    reviewers: list[str] = field(default_factory=list)
    """Logins that a review is requested of."""
    teams: list[str] = field(default_factory=list)
    """The same of teams, by slug."""
    seen: tuple[str, str] = ("", "")
    """Tips of head and base when the twin last looked."""


@dataclass
class Comment:
    """A comment of a pull request."""

    id: int
    number: int
    """Of the pull request."""
    login: str
    body: str
    edits: int = 0


@dataclass(frozen=True)
class Event:
    """What somebody did to a pull request."""

    number: int
    """Of the pull request."""
    name: str
    """As GitHub calls it: `labeled`, `closed`."""
    login: str
    """Who did it."""
    what: str = ""
    """The label, login or slug that it was done with."""


@dataclass(frozen=True)
class Call:
    """A request, once its token and its form are checked."""

    login: str
    """The token's owner."""
    token: str
    path: dict[str, str]
    query: dict[str, str]
    body: Any


@dataclass
class Minted:
    """A token of an installation."""

    permissions: dict[str, str]
    expires: float
    """Seconds of the epoch."""


@dataclass
class State:
    """One repository."""

    path: Path
    owner: str
    name: str
    url: str = ""
    """Of the twin, without a slash at the end."""
    login: str = "cgins-tester"
    """Owner of the token that may write."""
    default_branch: str = "main"
    drafts: bool = True
    """Whether the repository's plan has drafts."""
    unseen_heads: int = 0
    """How many more times a pushed branch is not known yet."""
    pulls: list[Pull] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    labels: list[str] = field(default_factory=lambda: ["bug", "cgins"])
    """Labels that the repository has; adding another one to a pull request creates it."""
    creates_labels: bool = True
    """Whether tokens have *issues: write*, which creating a label needs; those of an installation go by what they were
    minted with."""
    collaborators: list[str] = field(default_factory=list)
    """Who can be assigned, and asked for a review."""
    teams: list[str] = field(default_factory=list)
    """Slugs of teams that can be asked for a review."""
    protected: list[str] = field(default_factory=list)
    """Names of branches that are changed by pull requests alone."""
    graphql: bool = True
    """Whether there is a GraphQL endpoint."""
    update_refs: bool = True
    """Whether GraphQL has the mutation `updateRefs`."""
    secondary_limit_after: int | None = None
    """After so many writes one is refused, once."""
    writes: int = 0
    app_id: int = 4242
    app_key: str = ""
    """Public key of the app, PEM; "" for no app."""
    app_permissions: dict[str, str] = field(
        default_factory=lambda: {"contents": "write", "pull_requests": "write", "metadata": "read"}
    )
    installation: int | None = 77
    """Of the app in the repository; None where it is not installed."""
    minted: dict[str, Minted] = field(default_factory=dict)
    """Tokens of the installation."""

    @property
    def node_id(self) -> str:
        """The repository's, as GraphQL knows it."""
        return f"R_{identity(f'{self.owner}/{self.name}')}"

    def git(
        self,
        *arguments: str,
        check: bool = True,
        given: str | bytes | None = None,
        environment: dict[str, str] | None = None,
    ) -> str:
        """Output of a command in the repository, without blanks at its ends."""
        content = given.encode() if isinstance(given, str) else given
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            capture_output=True,
            check=check,
            input=content,
            env=kept | (environment or {}),
        )
        return done.stdout.decode("utf-8", "replace").strip()

    def refs(self) -> dict[str, str]:
        """Commits by full name, read from git's own files: each request asks, and a process each time is slow."""
        packed = self.path / "packed-refs"
        lines = packed.read_text().splitlines() if packed.exists() else []
        found = {name: sha for sha, _, name in (line.partition(" ") for line in lines if line[0] not in "#^")}
        for file in (self.path / "refs").rglob("*"):
            if file.is_file() and file.suffix != ".lock":
                found[file.relative_to(self.path).as_posix()] = file.read_text().strip()
        return found

    def tip(self, branch: str) -> str:
        return self.refs().get(f"refs/heads/{branch}", "")

    def has(self, sha: str, kind: str) -> bool:
        """Whether there is an object of that kind."""
        return self.git("cat-file", "-t", sha, check=False) == kind

    def contains(self, older: str, newer: str) -> bool:
        """Whether one commit is the other, or an ancestor of it."""
        return not self.git("rev-list", "--max-count=1", older, "--not", newer)

    def author(self, pull: Pull) -> str:
        return pull.login or self.login

    def user(self, login: str, schema: str = "simple-user") -> dict[str, Any]:
        known = {
            "login": login,
            "id": identity(login),
            "node_id": f"U_{identity(login)}",
            "type": "Bot" if login.endswith("[bot]") else "User",
            "html_url": f"{self.url}/{login}",
        }
        return filled(schema, known, url=self.url)

    def address(self, login: str) -> str:
        """The email address that GitHub gives to commits of an account."""
        return f"{identity(login)}+{login}@users.noreply.github.com"

    def is_fork(self, pull: Pull) -> bool:
        """Whether its branch is in another repository, which the twin does not have."""
        name = self.name if pull.head_repository == "" else pull.head_repository
        return (pull.head_owner or self.owner, name) != (self.owner, self.name)

    def repository(self, schema: str, *, owner: str = "", name: str = "") -> dict[str, Any]:
        """This repository, or a fork of it under another owner or name."""
        owner, name = owner or self.owner, name or self.name
        full_name = f"{owner}/{name}"
        known = {
            "id": identity(full_name),
            "node_id": f"R_{identity(full_name)}",
            "name": name,
            "full_name": full_name,
            "owner": self.user(owner),
            "fork": full_name != f"{self.owner}/{self.name}",
            "default_branch": self.default_branch,
            "clone_url": f"{self.url}/{full_name}.git",
            "private": True,
            "permissions": {"admin": False, "push": True, "pull": True},
        }
        return filled(schema, known, url=self.url)

    def pull(self, number: str | int) -> Pull:
        """One pull request.

        Raises:
            Refusal: there is none.
        """
        found = next((one for one in self.pulls if str(one.number) == str(number)), None)
        if found is None:
            raise not_found()
        return found

    def event(self, pull: Pull, name: str, login: str, what: str = "") -> None:
        self.events.append(Event(pull.number, name, login, what))

    def set_state(self, pull: Pull, state: str, login: str = PERSON) -> None:
        """Close or open, as a person does."""
        if pull.state != state:
            self.event(pull, "closed" if state == "closed" else "reopened", login)
        pull.state = state
        pull.frozen_sha = (self.tip(pull.head) or pull.seen[0]) if state == "closed" else ""
        if state == "open":
            pull.seen = ("", "")

    def settle(self, login: str = PERSON) -> None:
        """Close what has lost its branch, or whose commits are in its base, as GitHub does after each push."""
        refs = self.refs()
        for pull in self.pulls:
            now = refs.get(f"refs/heads/{pull.head}", ""), refs.get(f"refs/heads/{pull.base}", "")
            if pull.state != "open" or self.is_fork(pull) or now == pull.seen:
                continue
            before, pull.seen = pull.seen, now if all(now) else pull.seen
            if not any(before):
                continue
            if not now[0]:
                self.event(pull, "head_ref_deleted", login)
                self.set_state(pull, "closed", login)
            elif now[1] and self.contains(*now):
                # Where the base has moved, it has taken the commits in; else the branch was set back.
                if now[0] == before[0]:
                    pull.merged_at = WHEN
                    self.event(pull, "merged", login)
                self.set_state(pull, "closed", login)


def identity(text: str) -> int:
    """A number of an account or a repository, the same each time."""
    return zlib.crc32(text.encode()) % 10**8


def page(found: list[Any], query: dict[str, str]) -> list[Any]:
    """What of a list is asked for."""
    size, number = min(int(query.get("per_page", "30")), 100), int(query.get("page", "1"))
    return found[(number - 1) * size : number * size]
