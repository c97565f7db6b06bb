"""Pull requests of the twin, and how branches differ."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.pull_request.oracle import WHEN, filled
from tests.pull_request.twin_git_data import write_commit
from tests.pull_request.twin_state import (
    BODY_LIMIT,
    PERSON,
    Call,
    Pull,
    Refusal,
    State,
    custom,
    identity,
    invalid,
    page,
)


def shown(api: State, pull: Pull, schema: str = "pull-request") -> dict[str, Any]:
    known = {
        "id": 1000 + pull.number,
        "node_id": f"PR_{identity(api.name)}_{pull.number}",
        "number": pull.number,
        "title": pull.title,
        # What was sent comes back with the ends of lines of a browser.
        "body": None if pull.body is None else pull.body.replace("\r\n", "\n").replace("\n", "\r\n"),
        "draft": pull.draft,
        "state": pull.state,
        "closed_at": None if pull.state == "open" else WHEN,
        "merged_at": pull.merged_at,
        "html_url": f"{api.url}/{api.owner}/{api.name}/pull/{pull.number}",
        "url": f"{api.url}/api/v3/repos/{api.owner}/{api.name}/pulls/{pull.number}",
        "user": api.user(api.author(pull)),
        "head": _end(
            api, pull.head, pull.frozen_sha or api.tip(pull.head), pull.head_owner, pull.head_repository
        ),
        "base": _end(api, pull.base, api.tip(pull.base)),
        "labels": shown_labels(api, pull),
        "assignees": [api.user(one) for one in pull.assignees],
        "requested_reviewers": [api.user(one) for one in pull.reviewers],
        "requested_teams": [
            shown_team(api, one, "team" if schema.endswith("simple") else "team-simple") for one in pull.teams
        ],
    }
    if schema == "pull-request":
        known["merged"] = pull.merged_at is not None
    return filled(schema, known, url=api.url)


def _end(api: State, branch: str, commit: str, owner: str = "", name: str | None = "") -> dict[str, Any]:
    return {
        "label": f"{owner or api.owner}:{branch}",
        "ref": branch,
        "sha": commit,
        "user": api.user(owner or api.owner),
        "repo": None if name is None else api.repository("repository", owner=owner, name=name),
    }


def shown_labels(api: State, pull: Pull) -> list[dict[str, Any]]:
    return [
        filled("label", {"id": identity(one), "name": one, "description": ""}, url=api.url)
        for one in pull.labels
    ]


def shown_team(api: State, slug: str, schema: str) -> dict[str, Any]:
    known = {
        "id": identity(slug),
        "node_id": f"T_{identity(slug)}",
        "slug": slug,
        "name": slug,
        "permission": "push",
    }
    return filled(schema, known, url=api.url)


def list_pulls(api: State, call: Call) -> tuple[int, Any]:
    state, head = call.query.get("state", "open"), call.query.get("head", "")
    found = sorted(api.pulls, key=lambda one: one.number, reverse=call.query.get("direction") != "asc")
    if state != "all":
        found = [one for one in found if one.state == state]
    if ":" in head:  # GitHub ignores a head without an owner
        found = [one for one in found if f"{one.head_owner or api.owner}:{one.head}" == head]
    if "base" in call.query:
        found = [one for one in found if one.base == call.query["base"]]
    return 200, [shown(api, one, "pull-request-simple") for one in page(found, call.query)]


def get_pull(api: State, call: Call) -> tuple[int, Any]:
    return 200, shown(api, api.pull(call.path["pull_number"]))


def create_pull(api: State, call: Call) -> tuple[int, Any]:
    body = call.body
    head = body["head"].removeprefix(f"{api.owner}:")
    if not api.tip(body["base"]):
        raise invalid("base")
    if api.unseen_heads or not api.tip(head):
        api.unseen_heads = max(0, api.unseen_heads - 1)
        raise invalid("head")
    if _open_one(api, head, body["base"]):
        raise custom(f"A pull request already exists for {api.owner}:{head}.")
    if api.contains(api.tip(head), api.tip(body["base"])):
        raise custom(f"No commits between {body['base']} and {head}")
    if not body.get("title"):
        raise Refusal(
            422, "Validation Failed", {"resource": "Issue", "code": "missing_field", "field": "title"}
        )
    if body.get("draft") and not api.drafts:
        raise Refusal(422, "Draft pull requests are not supported in this repository.")
    check_words(body)
    pull = Pull(
        number=max((one.number for one in api.pulls), default=0) + 1,
        title=body["title"],
        body=body.get("body"),
        head=head,
        base=body["base"],
        draft=bool(body.get("draft")),
        login=call.login,
        seen=(api.tip(head), api.tip(body["base"])),
    )
    api.pulls.append(pull)
    return 201, shown(api, pull)


def _open_one(api: State, head: str, base: str) -> bool:
    """Whether a pull request is open from a branch of this repository into another."""
    wanted = (head, base, "open")
    return any((one.head, one.base, one.state) == wanted and not api.is_fork(one) for one in api.pulls)


def update_pull(api: State, call: Call) -> tuple[int, Any]:
    pull, body = api.pull(call.path["pull_number"]), call.body
    check_words(body)
    if "base" in body and not api.tip(body["base"]):
        raise invalid("base")
    if body.get("state", pull.state) != pull.state:
        if body["state"] == "open":
            raise invalid("state")  # which the bot never asks for
        api.set_state(pull, body["state"], call.login)
    pull.title = body.get("title", pull.title)
    pull.body = body.get("body", pull.body)
    if body.get("base", pull.base) != pull.base:
        pull.base, pull.seen = body["base"], ("", "")
    pull.edits += 1
    return 200, shown(api, pull)


def check_words(body: dict[str, Any]) -> None:
    """Whether words fit.

    Raises:
        Refusal: they do not.
    """
    if len(body.get("body") or "") > BODY_LIMIT:
        raise custom(f"body is too long (maximum is {BODY_LIMIT} characters)")
    if len(body.get("title") or "") > 256:
        raise custom("title is too long (maximum is 256 characters)")


def merge(api: State, pull: Pull, *, login: str = PERSON, squash: bool = False) -> str:
    """Merge as a person does, past the protection of branches; the new tip of the base.

    Raises:
        CalledProcessError: it conflicts.
    """
    base, head = api.tip(pull.base), api.tip(pull.head)
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        older = api.git("merge-base", base, head)
        api.git("read-tree", "-i", "-m", "--aggressive", older, base, head, environment=index)
        tree = api.git("write-tree", environment=index)
    commit = write_commit(
        api,
        tree=tree,
        parents=[base] if squash else [base, head],
        author={"name": login, "email": api.address(login)},
        committer={"name": "GitHub", "email": "noreply@github.com"},
        message=f"{pull.title} (#{pull.number})"
        if squash
        else f"Merge pull request #{pull.number} from {api.owner}/{pull.head}\n\n{pull.title}",
    )
    api.git("update-ref", f"refs/heads/{pull.base}", commit, base)
    pull.merged_at = WHEN
    api.event(pull, "merged", login)
    api.set_state(pull, "closed", login)
    return commit


ROUTES = {
    ("GET", "/pulls"): list_pulls,
    ("POST", "/pulls"): create_pull,
    ("GET", "/pulls/{pull_number}"): get_pull,
    ("PATCH", "/pulls/{pull_number}"): update_pull,
}
