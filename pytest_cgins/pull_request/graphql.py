"""GitHub's GraphQL API: commits that GitHub signs for anybody, and refs set only if they are as expected."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.credentials import workflow_permission
from pytest_cgins.pull_request.retries import retried
from pytest_cgins.pull_request.transport import TRIES, Transport

ZEROS = "0" * 40
"""Where a ref is not there."""
VIEWER = "query { viewer { login } }"
UPDATE_REFS = """\
mutation ($repository: ID!, $updates: [RefUpdate!]!) {
  updateRefs(input: {repositoryId: $repository, refUpdates: $updates}) { clientMutationId }
}
"""
CREATE_COMMIT = """\
mutation ($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) { commit { oid tree { oid } signature { isValid } } }
}
"""
_UNKNOWN = ("undefinedField", "undefinedType")
_FORBIDDEN = {"FORBIDDEN", "INSUFFICIENT_SCOPES"}
_PASSING = ("None", "INTERNAL", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "NOT_FOUND")
"""Types of errors that may pass, `None` for those without one: trouble of the server ("Something went
wrong"), and what was made a moment ago and is not known everywhere yet."""
_LATER = "run the command again later"


class _PassingError(GitHubError):
    """Trouble that another try may not have."""


class UnavailableError(GitHubError):
    """The server has no such API or no such mutation, as old servers of GitHub Enterprise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChange:
    """What is to become of one branch."""

    branch: str
    before: str | None
    """The commit that it must have; None: it must not be there."""
    after: str | None
    """The commit that it gets; None: it is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit that GitHub made."""

    commit: str
    tree: str
    signed: bool
    """Whether GitHub has signed it."""


class Graphql:
    """One server; methods raise `UnavailableError` where it is too old, and `GitHubError` where it refuses.

    The error's status is 403 where a permission is missing and 422 where the request is refused as it is, so
    that another way may do; 200 is that of a ref that is not as expected, and of trouble that did not pass.
    """

    def __init__(self, transport: Transport, url: str, repository: str) -> None:
        """Nothing is sent yet; the repository is `owner/name`."""
        self._transport = transport
        self._url = url
        self._repository = repository

    def login(self) -> str:
        """Whose token it is; `NAME[bot]` for an App."""
        return str(self._call(VIEWER, {})["viewer"]["login"])

    def update_refs(self, repository_id: str, changes: Sequence[RefChange]) -> None:
        """Change branches of the repository with this `node_id`, all or none; refused if one of them is not as expected."""
        updates = [
            {
                "name": f"refs/heads/{change.branch}",
                "beforeOid": change.before or ZEROS,
                "afterOid": change.after or ZEROS,
                "force": True,
            }
            for change in changes
        ]
        self._call(UPDATE_REFS, {"repository": repository_id, "updates": updates})

    def create_commit(
        self, branch: str, expected: str, message: str, files: Mapping[str, bytes]
    ) -> Committed:
        """Commit on a branch with the expected tip, as the token's owner, signed by GitHub."""
        headline, _, body = message.partition("\n")
        additions = [
            {"path": path, "contents": base64.b64encode(content).decode()}
            for path, content in sorted(files.items())
        ]
        asked = {
            "branch": {"repositoryNameWithOwner": self._repository, "branchName": branch},
            "expectedHeadOid": expected,
            "message": {"headline": headline, "body": body.strip()},
            "fileChanges": {"additions": additions},
        }
        made = self._call(CREATE_COMMIT, {"input": asked})["createCommitOnBranch"]["commit"]
        return Committed(
            commit=made["oid"],
            tree=made["tree"]["oid"],
            signed=bool((made["signature"] or {}).get("isValid")),
        )

    def _call(self, document: str, variables: Mapping[str, object]) -> dict[str, Any]:
        def ask() -> Any:
            answer = self._asked({"query": document, "variables": variables})
            errors = answer.get("errors") if isinstance(answer, dict) else None
            if not errors:
                return answer
            raise self._refused(
                [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
            )

        # Refs and commits are changed only from what is expected: done twice does no harm.
        answer = retried(
            self._url,
            ask,
            lambda error, tried: float(2 ** (tried - 1)) if isinstance(error, _PassingError) else None,
            TRIES,
        )
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict):
            raise GitHubError(f"POST {self._url}: the answer has no data", remedy=_ADDRESS)
        return data

    def _asked(self, content: Mapping[str, object]) -> Any:
        try:
            return self._transport.request("POST", self._url, content=content)
        except GitHubError as error:
            # 501 and 404 of a server without it; a token without access gets a 200 with an error.
            if error.status in (404, 405, 501):
                raise UnavailableError(error.what, remedy=error.remedy, status=error.status) from None
            raise

    def _refused(self, errors: Sequence[dict[str, Any]]) -> GitHubError:
        message = "; ".join(str(error.get("message") or error.get("type")) for error in errors) or "an error"
        summary = f"POST {self._url}: {self._transport.clean(message)}"
        if any(_code(error) in _UNKNOWN for error in errors):
            return UnavailableError(summary, remedy="use a newer server, or --commit-with push")
        kinds = {str(error.get("type")) for error in errors}
        if kinds & _FORBIDDEN:
            remedy = "the token needs the permission contents: write, and the branch must not be protected"
            return GitHubError(summary, remedy=workflow_permission(message) or remedy, status=403)
        if not errors:
            return GitHubError(summary, remedy=_LATER, status=200)
        if all(str(error.get("type")) in _PASSING and not _code(error) for error in errors):
            return _PassingError(summary, remedy=_LATER, status=200)
        # `STALE_DATA` is of a ref that somebody has moved; all else would be refused again.
        status = 200 if "STALE_DATA" in kinds else 422
        remedy = workflow_permission(message) or "look at the branch, and run the command again"
        return GitHubError(summary, remedy=remedy, status=status)


def _code(error: dict[str, Any]) -> str:
    """What is wrong with the document itself, which errors of that kind say instead of a type."""
    extensions = error.get("extensions")
    return str(extensions.get("code") or "") if isinstance(extensions, dict) else ""


_ADDRESS = "GITHUB_GRAPHQL_URL must be the address of GitHub's GraphQL API"
