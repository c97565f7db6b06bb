"""The REST side of the twin: what GitHub answers about a bare repository and its pull requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from tests.pull_request import twin_app, twin_git_data, twin_issues, twin_pulls
from tests.pull_request.twin_state import PERSON, Call, Comment, Pull, Refusal, State, custom, not_found

__all__ = ["Api", "Call", "Comment", "Pull", "Refusal", "custom"]

REPOSITORY = "/repos/{owner}/{repo}"
Route = Callable[[State, Call], tuple[int, Any]]
ROUTES: dict[tuple[str, str], Route] = twin_app.ROUTES | {
    (method, REPOSITORY + path): route
    for routes in (twin_git_data.ROUTES, twin_pulls.ROUTES, twin_issues.ROUTES)
    for (method, path), route in routes.items()
}


class Api(State):
    """One repository, as its REST API shows it, and as people use it."""

    def answer(
        self,
        template: str,
        method: str,
        path: dict[str, str],
        query: str,
        body: Any,
        *,
        login: str = "",
        token: str = "",
    ) -> tuple[int, Any]:
        """Status and body.

        Raises:
            Refusal: GitHub says no.
        """
        if "owner" in path and (path["owner"].lower(), path["repo"].lower()) != (
            self.owner.lower(),
            self.name.lower(),
        ):
            raise not_found()
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        call = Call(login or self.login, token, path, asked, body)
        if template == "/user":
            return 200, self.user(call.login, "public-user")
        if template == REPOSITORY:
            return 200, self.repository("full-repository")
        return ROUTES[method, template](self, call)

    # ---- as a person does

    def merge(self, pull: Pull, *, login: str = PERSON, squash: bool = False) -> str:
        """Merge; the new tip of the base."""
        return twin_pulls.merge(self, pull, login=login, squash=squash)

    def unlabel(self, pull: Pull, name: str, login: str = PERSON) -> None:
        twin_issues.unlabel(self, pull, name, login)

    def unassign(self, pull: Pull, who: str, login: str = PERSON) -> None:
        twin_issues.unassign(self, pull, who, login)

    def unrequest(self, pull: Pull, who: str, login: str = PERSON) -> None:
        twin_issues.unrequest(self, pull, who, login)
