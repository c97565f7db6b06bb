"""Labels, reviewers and assignees of a pull request: each given once; what a person took away stays away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pytest_cgins.config.pull_request import PullRequestSettings
from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.rest import Rest

_REFUSED = (403, 404, 422)
_GIVEN = {
    "labeled": ("label", "name"),
    "assigned": ("assignee", "login"),
    "review_requested": ("requested_reviewer", "login"),
}
"""Where an event says what was given, by its kind; of a team it has `requested_team` instead."""


def give(rest: Rest, pull: dict[str, Any], wanted: PullRequestSettings, *, is_new: bool) -> Iterator[str]:
    """Give a pull request what `cgins.yaml` asks for, where it never had it; from one that is new nothing was taken away.

    Yields:
        What could not be given and why, a line each: a name that is wrong spoils no pull request.
    """
    number, author = int(pull["number"]), (pull["user"] or {}).get("login", "")
    there = _there(pull)
    asked = {
        "labeled": wanted.labels,
        "assigned": wanted.assignees,
        "review_requested": tuple(
            login for login in wanted.reviewers if login.casefold() != author.casefold()
        ),
        "team": wanted.team_reviewers,
    }
    missing = {kind: _without(names, there[kind]) for kind, names in asked.items()}
    if not any(missing.values()):
        return
    try:
        given = _given(() if is_new else rest.events(number))
    except GitHubError as error:
        names = [name for kind in missing.values() for name in kind]
        yield _untaken("what was taken away cannot be known, and", names, error)
        return
    left = {kind: _without(names, given[kind]) for kind, names in missing.items()}
    if left["labeled"]:
        yield from _try("the labels", left["labeled"], lambda: rest.add_labels(number, left["labeled"]))
    if left["assigned"]:
        yield from _assign(rest, number, left["assigned"])
    yield from _ask(rest, number, left["review_requested"], left["team"])


def _there(pull: dict[str, Any]) -> dict[str, set[str]]:
    return {
        "labeled": {item["name"].casefold() for item in pull["labels"]},
        "assigned": {item["login"].casefold() for item in pull.get("assignees") or ()},
        "review_requested": {item["login"].casefold() for item in pull.get("requested_reviewers") or ()},
        "team": {item["slug"].casefold() for item in pull.get("requested_teams") or ()},
    }


def _given(events: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """What a pull request has been given at any time, by whom ever."""
    given: dict[str, set[str]] = {kind: set() for kind in (*_GIVEN, "team")}
    for event in events:
        kind = event["event"]
        if kind not in _GIVEN:
            continue
        key, name = _GIVEN[kind]
        if team := event.get("requested_team"):
            given["team"].add(str(team["slug"]).casefold())
        elif subject := event.get(key):
            given[kind].add(str(subject[name]).casefold())
    return given


def _without(names: Iterable[str], known: set[str]) -> list[str]:
    return [name for name in names if name.casefold() not in known]


def _assign(rest: Rest, number: int, names: list[str]) -> Iterator[str]:
    try:
        taken = {login.casefold() for login in rest.add_assignees(number, names)}
    except GitHubError as error:
        yield _untaken("the assignees", names, error)
        return
    left_out = _without(names, taken)
    if left_out:
        yield f"{', '.join(left_out)} cannot be assigned here: correct assignees in cgins.yaml"


def _ask(rest: Rest, number: int, reviewers: list[str], teams: list[str]) -> Iterator[str]:
    """Ask all at once; where that is refused, one by one, since one wrong name spoils the request."""
    if not (reviewers or teams):
        return
    try:
        rest.request_reviewers(number, reviewers=reviewers, teams=teams)
        return
    except GitHubError as error:
        if error.status not in _REFUSED:
            raise
        if len(reviewers) + len(teams) == 1:
            yield _untaken("the reviewers", [*reviewers, *teams], error)
            return
    for name in reviewers:
        yield from _ask(rest, number, [name], [])
    for name in teams:
        yield from _ask(rest, number, [], [name])


def _try(kind: str, names: list[str], do: Any) -> Iterator[str]:
    try:
        do()
    except GitHubError as error:
        yield _untaken(kind, names, error)


def _untaken(kind: str, names: list[str], error: GitHubError) -> str:
    if error.status not in _REFUSED:
        raise error
    return f"{kind} {', '.join(names)} were not taken: {error.what}"
