"""What hangs on a pull request of the twin: comments, labels, assignees, reviewers, and who did what."""

from __future__ import annotations

from typing import Any

from tests.pull_request import twin_app
from tests.pull_request.oracle import filled
from tests.pull_request.twin_pulls import check_words, shown, shown_labels, shown_team
from tests.pull_request.twin_state import Call, Comment, Event, Pull, Refusal, State, not_found, page

_MOULDS = {
    "labeled": "labeled-issue-event",
    "unlabeled": "unlabeled-issue-event",
    "assigned": "assigned-issue-event",
    "unassigned": "unassigned-issue-event",
    "review_requested": "review-requested-issue-event",
    "review_request_removed": "review-request-removed-issue-event",
}
_PLAIN = "added-to-project-issue-event"
"""What the description has for events with nothing of their own; it forgets `closed` and its like."""


# ---- comments


def list_comments(api: State, call: Call) -> tuple[int, Any]:
    number = api.pull(call.path["issue_number"]).number
    mine = [one for one in api.comments if one.number == number]
    return 200, [_shown_comment(api, one) for one in page(mine, call.query)]


def create_comment(api: State, call: Call) -> tuple[int, Any]:
    check_words(call.body)
    number = api.pull(call.path["issue_number"]).number
    made = Comment(len(api.comments) + 1, number, call.login, call.body["body"])
    api.comments.append(made)
    return 201, _shown_comment(api, made)


def update_comment(api: State, call: Call) -> tuple[int, Any]:
    found = next((one for one in api.comments if str(one.id) == call.path["comment_id"]), None)
    if found is None:
        raise not_found()
    if found.login != call.login:
        raise Refusal(403, "Resource not accessible by integration")
    check_words(call.body)
    found.body, found.edits = call.body["body"], found.edits + 1
    return 200, _shown_comment(api, found)


def _shown_comment(api: State, one: Comment) -> dict[str, Any]:
    known = {
        "id": one.id,
        "body": one.body.replace("\r\n", "\n").replace("\n", "\r\n"),
        "html_url": f"{api.url}/{api.owner}/{api.name}/pull/{one.number}#issuecomment-{one.id}",
        "user": api.user(one.login),
    }
    return filled("issue-comment", known, url=api.url)


# ---- labels


def add_labels(api: State, call: Call) -> tuple[int, Any]:
    pull = api.pull(call.path["issue_number"])
    given = call.body["labels"] if isinstance(call.body, dict) else call.body
    names = [one if isinstance(one, str) else one["name"] for one in given]
    if not _creates_labels(api, call.token) and any(_known(api, one) is None for one in names):
        detail = {"resource": "Repository", "field": "label", "code": "unauthorized"}
        raise Refusal(403, "You do not have permission to create labels on this repository.", detail)
    for one in names:
        label(api, pull, one, call.login)
    return 200, shown_labels(api, pull)


def remove_label(api: State, call: Call) -> tuple[int, Any]:
    pull = api.pull(call.path["issue_number"])
    if not unlabel(api, pull, call.path["name"], call.login):
        raise Refusal(404, "Label does not exist")
    return 200, shown_labels(api, pull)


def label(api: State, pull: Pull, name: str, login: str) -> None:
    """Give a label, which the repository has from then on."""
    known = _known(api, name)
    if known is None:
        api.labels.append(name)
        known = name
    if known.lower() not in (one.lower() for one in pull.labels):
        pull.labels.append(known)
        api.event(pull, "labeled", login, known)


def _known(api: State, name: str) -> str | None:
    """A label of the repository, as it is written there."""
    return next((one for one in api.labels if one.lower() == name.lower()), None)


def _creates_labels(api: State, token: str) -> bool:
    return twin_app.allows(api, token, "issues", "write") if token in api.minted else api.creates_labels


def unlabel(api: State, pull: Pull, name: str, login: str) -> bool:
    """Whether there was such a label."""
    found = next((one for one in pull.labels if one.lower() == name.lower()), None)
    if found is None:
        return False
    pull.labels.remove(found)
    api.event(pull, "unlabeled", login, found)
    return True


# ---- people


def add_assignees(api: State, call: Call) -> tuple[int, Any]:
    pull = api.pull(call.path["issue_number"])
    for one in (call.body or {}).get("assignees", []):
        login = one if isinstance(one, str) else one["login"]
        # GitHub says nothing of those whom it leaves out.
        if login in api.collaborators and login not in pull.assignees and len(pull.assignees) < 10:
            pull.assignees.append(login)
            api.event(pull, "assigned", call.login, login)
    known = {
        "number": pull.number,
        "title": pull.title,
        "state": pull.state,
        "user": api.user(api.author(pull)),
        "labels": shown_labels(api, pull),
        "assignees": [api.user(one) for one in pull.assignees],
    }
    return 201, filled("issue", known, url=api.url)


def request_reviewers(api: State, call: Call) -> tuple[int, Any]:
    pull, body = api.pull(call.path["pull_number"]), call.body or {}
    people, teams = body.get("reviewers", []), body.get("team_reviewers", [])
    if api.author(pull) in people:
        raise Refusal(422, "Review cannot be requested from pull request author.")
    if not (set(people) <= set(api.collaborators) and set(teams) <= set(api.teams)):
        raise Refusal(
            422,
            "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not "
            f"a collaborator of the {api.owner}/{api.name} repository.",
        )
    if teams and not twin_app.allows(api, call.token, "members", "read"):
        node = shown_team(api, teams[0], "team")["node_id"]
        raise Refusal(
            422, "Validation Failed", f"Could not resolve to a node with the global id of '{node}'."
        )
    for there, asked in ((pull.reviewers, people), (pull.teams, teams)):
        for one in asked:
            if one not in there:
                there.append(one)
                api.event(pull, "review_requested", call.login, one)
    return 201, shown(api, pull, "pull-request-simple")


def unassign(api: State, pull: Pull, who: str, login: str) -> None:
    pull.assignees.remove(who)
    api.event(pull, "unassigned", login, who)


def unrequest(api: State, pull: Pull, who: str, login: str) -> None:
    """Withdraw the request of a review, of a person or of a team."""
    (pull.teams if who in pull.teams else pull.reviewers).remove(who)
    api.event(pull, "review_request_removed", login, who)


# ---- events


def list_events(api: State, call: Call) -> tuple[int, Any]:
    number = api.pull(call.path["issue_number"]).number
    found = [(at, one) for at, one in enumerate(api.events, 1) if one.number == number]
    return 200, [_shown_event(api, at, one) for at, one in page(found, call.query)]


def _shown_event(api: State, at: int, one: Event) -> dict[str, Any]:
    actor = api.user(one.login)
    known: dict[str, Any] = {"id": at, "event": one.name, "actor": actor}
    if "label" in one.name:
        known["label"] = {"name": one.what, "color": "ededed"}
    elif "assigned" in one.name:
        known |= {"assignee": api.user(one.what), "assigner": actor}
    elif one.name.startswith("review_request"):
        known["review_requester"] = actor
        if one.what in api.teams:
            known["requested_team"] = shown_team(api, one.what, "team")
        else:
            known["requested_reviewer"] = api.user(one.what)
    return filled(_MOULDS.get(one.name, _PLAIN), known, url=api.url)


ROUTES = {
    ("GET", "/issues/{issue_number}/comments"): list_comments,
    ("POST", "/issues/{issue_number}/comments"): create_comment,
    ("PATCH", "/issues/comments/{comment_id}"): update_comment,
    ("POST", "/issues/{issue_number}/labels"): add_labels,
    ("DELETE", "/issues/{issue_number}/labels/{name}"): remove_label,
    ("POST", "/issues/{issue_number}/assignees"): add_assignees,
    ("GET", "/issues/{issue_number}/events"): list_events,
    ("POST", "/pulls/{pull_number}/requested_reviewers"): request_reviewers,
}
