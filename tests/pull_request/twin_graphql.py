"""The GraphQL side of the twin: who asks, refs that change together, and commits that GitHub signs."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from tests.pull_request import graphql_oracle, twin_app
from tests.pull_request.graphql_oracle import Failure, Judged
from tests.pull_request.twin_git_data import (
    SIGNATURE,
    resolved,
    shown_commit,
    update,
    write_blob,
    write_commit,
    write_tree,
)
from tests.pull_request.twin_state import ZERO, Refusal, State

WEB_FLOW = {"name": "GitHub", "email": "noreply@github.com"}
"""Committer of what GitHub commits for others."""
_SHA = re.compile(r"[0-9a-f]{40}")


def without_update_refs(query: str) -> dict[str, Any] | None:
    """What a server says to `updateRefs` that does not have it yet; None if it is not asked for."""
    if "updateRefs" not in graphql_oracle.mutations(query):
        return None
    where = query[: query.index("updateRefs")]
    error = {
        "path": ["mutation", "updateRefs"],
        "extensions": {"code": "undefinedField", "typeName": "Mutation", "fieldName": "updateRefs"},
        "locations": [{"line": where.count("\n") + 1, "column": len(where.rpartition("\n")[2]) + 1}],
        "message": "Field 'updateRefs' doesn't exist on type 'Mutation'",
    }
    return {"errors": [error]}


def answer(api: State, body: dict[str, Any], *, login: str, token: str, reads_only: bool) -> Judged:
    """Execute a request whose form is right.

    Args:
        login: of the token's owner.
        token: of the request.
        reads_only: whether the token may change nothing.
    """

    def changing(resolver: Any) -> Any:
        def run(_: Any, input: dict[str, Any]) -> Any:  # noqa: A002 - GitHub's name
            if reads_only:
                raise Failure("FORBIDDEN", "Resource not accessible by personal access token")
            try:
                twin_app.check_permission(api, token, "POST", "/git")
                return resolver(api, input, login)
            except Refusal as refusal:
                raise Failure(
                    {403: "FORBIDDEN", 404: "NOT_FOUND"}.get(refusal.status, "UNPROCESSABLE"), str(refusal)
                ) from None

        return run

    resolvers = {
        "viewer": {"login": login},
        "updateRefs": changing(_update_refs),
        "createCommitOnBranch": changing(_create_commit),
    }
    return graphql_oracle.judge(body, resolvers)


def _update_refs(api: State, given: dict[str, Any], login: str) -> dict[str, Any]:
    for one in given["refUpdates"]:
        _oid(one["afterOid"])
        _oid(one.get("beforeOid") or ZERO)
        if not str(one["name"]).startswith("refs/"):
            raise ValueError(f"{one['name']!r} is no GitRefname")
    if given["repositoryId"] != api.node_id:
        raise Failure(
            "NOT_FOUND", f"Could not resolve to a node with the global id of '{given['repositoryId']}'."
        )
    changes = []
    for one in given["refUpdates"]:
        ref, after = one["name"], one["afterOid"]
        now = resolved(api, ref) or ZERO
        if one.get("beforeOid") is not None and one["beforeOid"] != now:
            raise Failure("STALE_DATA", f'Expected {ref} to point to "{one["beforeOid"]}" but it did not.')
        if after == now == ZERO:
            raise Refusal(422, "Reference does not exist")
        if after != ZERO and api.git("cat-file", "-t", after, check=False) != "commit":
            raise Refusal(422, "Object does not exist")
        if ZERO not in (now, after) and not one.get("force") and not api.contains(now, after):
            raise Refusal(422, "Update is not a fast forward")
        changes.append((ref, now, after))
    update(api, changes)
    return {"clientMutationId": given.get("clientMutationId")}


def _create_commit(api: State, given: dict[str, Any], login: str) -> dict[str, Any]:
    branch = _branch(api, given["branch"])
    tip = api.tip(branch)
    if not tip:
        raise Failure("NOT_FOUND", f"Could not resolve to a branch with the name '{branch}'.")
    if _oid(given["expectedHeadOid"]) != tip:
        raise Failure(
            "STALE_DATA",
            f'Expected branch to point to "{given["expectedHeadOid"]}" but it did not.  Pull and try again.',
        )
    tree = write_tree(api, tip, _changes(api, given.get("fileChanges") or {}, tip))
    words = given["message"]
    author = {"name": login, "email": api.address(login)}
    sha = write_commit(
        api,
        tree=tree,
        parents=[tip],
        author=author,
        committer=WEB_FLOW,
        message="\n\n".join(filter(None, [words["headline"], words.get("body")])),
        signature=SIGNATURE,
    )
    update(api, [(f"refs/heads/{branch}", tip, sha)])
    signature = shown_commit(api, sha)["verification"]
    return {
        "commit": {
            "oid": sha,
            "tree": {"__typename": "Tree", "oid": tree},
            "signature": signature["signature"]
            and {"__typename": "GpgSignature", "isValid": signature["verified"]},
        }
    }


def _branch(api: State, given: dict[str, Any]) -> str:
    name, repository = given.get("branchName"), given.get("repositoryNameWithOwner")
    if "id" in given or name is None or repository is None:
        raise ValueError("the twin knows a branch by repositoryNameWithOwner and branchName alone")
    if repository.lower() != f"{api.owner}/{api.name}".lower():
        raise Failure("NOT_FOUND", f"Could not resolve to a Repository with the name '{repository}'.")
    return str(name).removeprefix("refs/heads/")


def _changes(api: State, given: dict[str, Any], tip: str) -> list[tuple[str, str, str | None]]:
    """Path, mode and blob of what a commit adds."""
    lines = api.git("ls-tree", "-r", "-z", tip).split("\0")
    modes = {line.split("\t", 1)[1]: line.split(" ", 1)[0] for line in lines if line}
    found: list[tuple[str, str, str | None]] = []
    if given.get("deletions"):
        raise ValueError("the twin deletes nothing: the bot never does")
    for one in given.get("additions") or ():
        if any(part in ("", ".", "..", ".git") for part in one["path"].split("/")):
            raise Refusal(422, f"A path was requested that is malformed: {one['path']}")
        try:
            content = base64.b64decode(one["contents"], validate=True)
        except binascii.Error:
            raise ValueError(f"the contents of {one['path']} are no Base64String") from None
        found.append((one["path"], modes.get(one["path"], "100644"), write_blob(api, content)))
    return found


def _oid(text: Any) -> str:
    if not isinstance(text, str) or not _SHA.fullmatch(text):
        raise ValueError(f"{text!r} is no GitObjectID")
    return text
