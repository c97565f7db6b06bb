"""The twin of GitHub answers and refuses as GitHub does, and finds a wrong request: git data, pull requests, GraphQL."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pull_request.asker import Asker, asking
from tests.pull_request.conftest import Place, commit, git
from tests.pull_request.twin import ACTIONS, BOT, GRAPHQL, READER, WRITER
from tests.pull_request.twin_git_data import SIGNATURE
from tests.pull_request.twin_state import ZERO

UPDATE_REFS = "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
CREATE_COMMIT = """mutation($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) {
    commit {
      oid message tree { oid } signature { isValid state wasSignedByGitHub }
      author { name email } committer { name } parents(first: 2) { nodes { oid } }
    }
    ref { name target { oid } }
  }
}"""


@pytest.fixture
def ask(place: Place) -> Iterator[Asker]:
    with asking(place) as found:
        yield found


# ---- git data


def test_a_commit_is_built_from_its_parts(place: Place, ask: Asker) -> None:
    """Blob, tree on a base, commit and ref are real: git shows what they say, and keeps the rest of the tree."""
    tip = place.tip("main")
    status, blob = ask(
        "POST", "git/blobs", {"content": base64.b64encode(b"\0\1").decode(), "encoding": "base64"}
    )
    assert status == 201
    entries = [
        {"path": "data.bin", "mode": "100644", "type": "blob", "sha": blob["sha"]},
        {"path": "bin/run", "mode": "100755", "type": "blob", "content": "#!/bin/sh\n"},
        {"path": "tests/test_it.py", "mode": "100644", "type": "blob", "sha": None},
    ]
    _, base = ask("GET", f"git/commits/{tip}")
    status, tree = ask("POST", "git/trees", {"base_tree": base["tree"]["sha"], "tree": entries})
    assert status == 201
    status, made = ask(
        "POST", "git/commits", {"message": "Built\n\nwords", "tree": tree["sha"], "parents": [tip]}
    )
    assert (status, made["message"], made["tree"]["sha"]) == (201, "Built\n\nwords", tree["sha"])
    assert [one["sha"] for one in made["parents"]] == [tip]
    assert made["author"]["name"] == made["committer"]["name"] == "cgins-tester"
    status, ref = ask("POST", "git/refs", {"ref": "refs/heads/built", "sha": made["sha"]})
    assert (status, ref["object"]["sha"]) == (201, place.tip("built"))
    changed = git(place.bare, "diff", "--name-status", "main", "built").splitlines()
    assert changed == ["A\tbin/run", "A\tdata.bin", "D\ttests/test_it.py"]
    assert git(place.bare, "ls-tree", "built", "bin/run").startswith("100755")
    assert ask("GET", f"git/commits/{made['sha']}") == (200, made)


@pytest.mark.parametrize(
    ("token", "author", "verified"),
    [(WRITER, None, False), (BOT, None, True), (BOT, {"name": "Ada", "email": "ada@team.example"}, False)],
)  # fmt: skip
def test_only_a_bots_own_commit_is_signed(
    place: Place, ask: Asker, token: str, author: dict[str, str] | None, verified: bool
) -> None:
    """GitHub signs what an app commits without naming an author; git reads the commit with its signature."""
    tree = git(place.bare, "rev-parse", "main^{tree}")
    body = {"message": "m", "tree": tree, "parents": [place.tip("main")]}
    _, made = ask("POST", "git/commits", body | ({"author": author} if author else {}), token=token)
    said = made["verification"]
    assert (said["verified"], said["reason"]) == (verified, "valid" if verified else "unsigned")
    assert said["signature"] == (SIGNATURE if verified else None)
    assert ("gpgsig" in git(place.bare, "cat-file", "commit", made["sha"])) == verified
    assert git(place.bare, "log", "-1", "--format=%s", made["sha"]) == "m"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("git/trees", {"base_tree": "0" * 40, "tree": []}, 422, "base_tree is not a valid tree oid"),
        ("git/trees", {"tree": []}, 422, "Invalid tree info"),
        ("git/trees", {"tree": [{"path": "../x", "mode": "100644", "content": ""}]}, 422, "malformed path"),
        (
            "git/trees",
            {"tree": [{"path": "x", "mode": "100644", "sha": "1" * 40}]},
            422,
            "is not a valid blob",
        ),
        ("git/trees", {"tree": [{"path": "x", "mode": "100644", "sha": None}]}, 422, "BadObjectState"),
        ("git/trees", {"tree": [{"path": "x", "sha": None, "content": ""}]}, 422, "and not both"),
        ("git/blobs", {"content": "a", "encoding": "base64"}, 422, "not valid Base64"),
        ("git/commits", {"message": "m", "tree": "1" * 40}, 422, "Tree SHA does not exist"),
        ("git/refs", {"ref": "refs/heads/x", "sha": "1" * 40}, 422, "Object does not exist"),
        ("git/refs", {"ref": "heads/x", "sha": "1" * 40}, 422, "must start with 'refs/'"),
    ],
)
def test_git_data_that_cannot_be_is_refused(
    ask: Asker, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    """An object that is not there, a path that leads out, and a name that is none are told in GitHub's words."""
    found, answer = ask("POST", path, body)
    assert found == status
    assert said in answer["message"]


def test_refs_change_under_githubs_rules(place: Place, ask: Asker) -> None:
    """No second creation, no step aside without force, no change of what is not there."""
    first = place.tip("main")
    second = commit(place.other, {"a.txt": "a"}, branch="work")
    assert (
        ask("POST", "git/refs", {"ref": "refs/heads/work", "sha": first})[1]["message"]
        == "Reference already exists"
    )
    assert ask("PATCH", "git/refs/heads/work", {"sha": first})[1]["message"] == "Update is not a fast forward"
    assert ask("PATCH", "git/refs/heads/work", {"sha": first, "force": True})[0] == 200
    assert ask("PATCH", "git/refs/heads/work", {"sha": second})[0] == 200
    assert place.tip("work") == second
    assert ask("PATCH", "git/refs/heads/none", {"sha": first})[1]["message"] == "Reference does not exist"
    assert ask("PATCH", "git/refs/heads/work", {"sha": "1" * 40})[1]["message"] == "Object does not exist"
    assert ask("DELETE", "git/refs/heads/work") == (204, None)
    assert ask("DELETE", "git/refs/heads/work")[0] == 422
    assert ask("GET", "git/ref/heads/work")[0] == 404
    assert ask("GET", f"git/commits/{'1' * 40}")[0] == 404
    assert ask("POST", "git/blobs", {"content": ""}, token=READER)[0] == 403


# ---- GraphQL


def test_viewer_is_the_tokens_owner(ask: Asker) -> None:
    """A token without the right to read users still learns its own login, and no field that it did not ask for."""
    for token, login in ((WRITER, "cgins-tester"), (ACTIONS, "github-actions[bot]"), (BOT, "cgins-app[bot]")):
        assert ask.graphql("query { viewer { login } }", token=token) == {
            "data": {"viewer": {"login": login}}
        }
    assert ask("GET", "/user", token=BOT)[0] == 403
    assert ask("GET", "/user")[1]["login"] == "cgins-tester"


def refs(ask: Asker, *updates: dict[str, Any], **named: Any) -> Any:
    """The answer to `updateRefs`."""
    given = {"repositoryId": ask.place.twin.api.node_id, "refUpdates": list(updates)}
    return ask.graphql(UPDATE_REFS, given | named.pop("given", {}), **named)


def test_refs_change_together_or_not_at_all(place: Place, ask: Asker) -> None:
    """Zeros create and delete; one stale commit, and no ref of the mutation moves."""
    first = place.tip("main")
    second = commit(place.other, {"a.txt": "a"}, branch="work")
    ref = {"name": "refs/heads/new", "beforeOid": ZERO, "afterOid": first}
    assert ask("GET", "")[1]["node_id"] == place.twin.api.node_id
    assert refs(ask, ref) == {"data": {"updateRefs": {"clientMutationId": None}}}
    assert place.tip("new") == first
    done = refs(ask, {"name": "refs/heads/work", "beforeOid": second, "afterOid": first, "force": True}, ref)
    [error] = done["errors"]
    assert (done["data"], error["type"], error["path"]) == (
        {"updateRefs": None},
        "STALE_DATA",
        ["updateRefs"],
    )
    assert place.tip("work") == second
    refs(
        ask,
        {"name": "refs/heads/new", "beforeOid": first, "afterOid": second},
        ref | {"name": "refs/heads/b"},
    )
    refs(ask, {"name": "refs/heads/work", "beforeOid": second, "afterOid": ZERO})
    assert [place.tip(one) for one in ("new", "b", "work")] == [second, first, ""]


@pytest.mark.parametrize(
    ("update", "named", "kind", "said"),
    [
        ({"name": "refs/heads/work", "afterOid": "main"}, {}, "UNPROCESSABLE", "not a fast forward"),
        ({"name": "refs/heads/none", "afterOid": ZERO}, {}, "UNPROCESSABLE", "Reference does not exist"),
        ({"name": "refs/heads/none", "afterOid": "1" * 40}, {}, "UNPROCESSABLE", "Object does not exist"),
        (
            {"name": "refs/heads/new", "afterOid": "main"},
            {"token": READER},
            "FORBIDDEN",
            "personal access token",
        ),
        (
            {"name": "refs/heads/new", "afterOid": "main"},
            {"given": {"repositoryId": "R_1"}},
            "NOT_FOUND",
            "R_1",
        ),
        ({"name": "refs/heads/kept", "afterOid": "main"}, {}, "UNPROCESSABLE", "through a pull request"),
    ],
)
def test_ref_updates_are_refused_as_github_does(
    place: Place, ask: Asker, update: dict[str, Any], named: dict[str, Any], kind: str, said: str
) -> None:
    """Status 200, no data, and an error with its type."""
    commit(place.other, {"a.txt": "a"}, branch="work")
    place.twin.api.protected = ["kept"]
    after = place.tip(update["afterOid"]) or update["afterOid"]
    done = refs(ask, update | {"afterOid": after}, **named)
    assert done["data"] == {"updateRefs": None}
    assert done["errors"][0]["type"] == kind
    assert said in done["errors"][0]["message"]
    assert place.tip("new") == ""


def test_a_commit_on_a_branch_is_signed(place: Place, ask: Asker) -> None:
    """Additions, a deletion and modes are real; GitHub commits and signs for the token's owner."""
    tip = commit(place.other, {"old.txt": "old"}, branch="work")
    given = {
        "branch": {"repositoryNameWithOwner": "octo/kernels", "branchName": "work"},
        "expectedHeadOid": tip,
        "message": {"headline": "Repair", "body": "words"},
        "fileChanges": {
            "additions": [{"path": "kernels/new.cpp", "contents": base64.b64encode(b"int x;\n").decode()}],
            "deletions": [{"path": "old.txt"}],
        },
    }
    done = ask.graphql(CREATE_COMMIT, given)["data"]["createCommitOnBranch"]
    made = done["commit"]
    assert made["oid"] == place.tip("work") == done["ref"]["target"]["oid"]
    assert (made["message"], made["author"]["name"], made["committer"]["name"]) == ("Repair\n\nwords", "cgins-tester", "GitHub")  # fmt: skip
    assert made["signature"] == {"isValid": True, "state": "VALID", "wasSignedByGitHub": True}
    assert made["parents"] == {"nodes": [{"oid": tip}]}
    assert made["tree"]["oid"] == git(place.bare, "rev-parse", "work^{tree}")
    assert git(place.bare, "diff", "--name-status", tip, "work").splitlines() == [
        "A\tkernels/new.cpp",
        "D\told.txt",
    ]
    [stale] = ask.graphql(CREATE_COMMIT, given)["errors"]
    assert (stale["type"], stale["path"]) == ("STALE_DATA", ["createCommitOnBranch"])
    assert stale["message"] == f'Expected branch to point to "{tip}" but it did not.  Pull and try again.'
    _, shown = ask("GET", f"git/commits/{made['oid']}")
    assert shown["verification"]["verified"]


def test_old_servers_have_less(place: Place, ask: Asker) -> None:
    """No endpoint at all, or no `updateRefs`, as an old Enterprise server; neither is a violation."""
    place.twin.api.update_refs = False
    done = refs(ask, {"name": "refs/heads/new", "afterOid": place.tip("main")})
    assert "data" not in done
    [error] = done["errors"]
    assert error["extensions"]["code"] == "undefinedField"
    assert error["message"] == "Field 'updateRefs' doesn't exist on type 'Mutation'"
    place.twin.api.graphql = False
    body = {"query": "query { viewer { login } }"}
    answer = ask.client.post(GRAPHQL, json=body, headers={"Authorization": f"Bearer {WRITER}"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"query": "query { viewer { logins } }"}, "Cannot query field 'logins' on type 'User'"),
        ({"query": "query { viewer { login }"}, "Syntax Error"),
        ({"query": UPDATE_REFS, "variables": {"input": {"repositoryId": 1}}}, "refUpdates"),
        ({"query": "query { viewer { login } }", "variables": {"input": 1}}, "declares no variable $input"),
        ({"query": "query { viewer { login } }", "variable": {}}, "there is no field variable"),
        ({"quarry": ""}, "the body is no object with a query"),
        (
            {"query": UPDATE_REFS, "variables": {"input": {"repositoryId": "R", "refUpdates": [{"name": "x", "afterOid": 5}]}}},
            "",
        ),
    ],
)  # fmt: skip
def test_a_wrong_document_is_found(ask: Asker, body: dict[str, Any], said: str) -> None:
    """A field, a variable or a type that the schema does not have is a violation, not an answer."""
    answer = ask.client.post(GRAPHQL, json=body, headers={"Authorization": f"Bearer {WRITER}"})
    found = ask.violations()
    assert answer.status_code == 400, answer.text
    assert found
    assert said in found[0]


# ---- pull requests


def test_a_pull_request_closes_and_opens_again(place: Place, ask: Asker) -> None:
    """By PATCH, with who did it; not once its branch is gone or was made anew."""
    pull = ask.opened()
    assert ask("PATCH", "pulls/1", {"state": "closed"})[1]["state"] == "closed"
    assert ask("PATCH", "pulls/1", {"state": "open"})[1]["state"] == "open"
    assert [(one.name, one.login) for one in place.twin.api.events] == [
        ("closed", "cgins-tester"),
        ("reopened", "cgins-tester"),
    ]
    place.twin.api.set_state(pull, "closed")
    tip = place.tip("work")
    ask("DELETE", "git/refs/heads/work")
    status, said = ask("PATCH", "pulls/1", {"state": "open"})
    assert (status, said["errors"][0]["message"]) == (422, "state cannot be changed. The work branch has been deleted.")  # fmt: skip
    ask("POST", "git/refs", {"ref": "refs/heads/work", "sha": place.tip("main")})
    assert "no new commits" in ask("PATCH", "pulls/1", {"state": "open"})[1]["errors"][0]["message"]
    ask("PATCH", "git/refs/heads/work", {"sha": tip})
    assert ask("PATCH", "pulls/1", {"state": "open"})[0] == 200


@pytest.mark.parametrize("how", ["rest", "graphql", "git", "reset", "push"])
def test_a_pull_request_closes_with_its_branch(place: Place, ask: Asker, how: str) -> None:
    """Where the branch is deleted, or has nothing that its base lacks; only what the base took in counts as merged."""
    pull = ask.opened()
    tip, main = place.tip("work"), place.tip("main")
    git(place.other, "remote", "set-url", "origin", ask.remote())
    if how == "rest":
        ask("DELETE", "git/refs/heads/work")
    elif how == "graphql":
        refs(ask, {"name": "refs/heads/work", "beforeOid": tip, "afterOid": ZERO})
    elif how == "git":
        git(place.other, "push", "--quiet", "origin", ":work")
    elif how == "reset":
        ask("PATCH", "git/refs/heads/work", {"sha": main, "force": True})
    else:
        git(place.other, "push", "--quiet", "origin", f"{tip}:main")
    assert (pull.state, bool(pull.merged_at)) == ("closed", how == "push")
    _, shown = ask("GET", "pulls/1")
    assert shown["head"]["sha"] == (main if how == "reset" else tip)
    assert [one.login for one in place.twin.api.events if one.name == "closed"] == ["cgins-tester"]


@pytest.mark.parametrize("squash", [False, True])
def test_a_merge_is_real(place: Place, ask: Asker, squash: bool) -> None:
    """The base has the files, by a merge commit or by one of its own, and the pull request says when."""
    pull = ask.opened()
    git(place.other, "reset", "--quiet", "--hard", "origin/main")
    commit(place.other, {"b.txt": "b"})
    place.twin.api.protected = ["main"]
    new = place.twin.api.merge(pull, squash=squash)
    assert place.tip("main") == new
    assert git(place.bare, "ls-tree", "--name-only", "main", "work.txt", "b.txt").split() == [
        "b.txt",
        "work.txt",
    ]
    assert len(git(place.bare, "log", "-1", "--format=%P", "main").split()) == (1 if squash else 2)
    _, shown = ask("GET", "pulls/1")
    assert (shown["state"], shown["merged"], shown["merged_at"] is None) == ("closed", True, False)
    assert ask("PATCH", "pulls/1", {"state": "open"})[0] == 422


def test_pull_requests_are_listed_whole(ask: Asker) -> None:
    """All heads, page by page, with who opened them and their node IDs."""
    for branch in ("one", "two", "three"):
        ask.opened(branch)
    _, found = ask("GET", "pulls?state=all&per_page=2")
    assert [one["number"] for one in found] == [3, 2]
    assert {one["user"]["login"] for one in found} == {"cgins-tester"}
    assert len({one["node_id"] for one in found}) == 2
    assert [one["number"] for one in ask("GET", "pulls?per_page=2&page=2")[1]] == [1]
    assert ask("GET", "pulls?head=octo:two")[1][0]["title"] == "two"
    assert len(ask("GET", "pulls?head=two")[1]) == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base": "nowhere"}, "invalid"),
        ({"head": "nowhere"}, "invalid"),
        ({"head": "main"}, "No commits between main and main"),
        ({"head": "taken"}, "A pull request already exists for octo:taken."),
        ({"body": "x" * 70_000}, "body is too long"),
    ],
)
def test_a_pull_request_that_cannot_be_is_refused(ask: Asker, fields: dict[str, str], said: str) -> None:
    """422, with the details of each error."""
    ask.opened("taken")
    commit(ask.place.other, {"a.txt": "a"}, branch="work")
    status, answer = ask("POST", "pulls", {"title": "t", "head": "work", "base": "main"} | fields)
    assert status == 422
    assert said in str(answer["errors"])


# ---- issues


def test_labels_come_and_go(place: Place, ask: Asker) -> None:
    """Whatever the case of their letters; removing one that is not there is 404."""
    pull = ask.opened()
    ask("POST", "issues/1/labels", {"labels": ["cgins", "gpu/slow"]})
    assert [one["name"] for one in ask("POST", "issues/1/labels", {"labels": ["CGINS"]})[1]] == pull.labels
    assert [one["name"] for one in ask("GET", "issues/1/labels")[1]] == ["cgins", "gpu/slow"]
    assert [one["name"] for one in ask("DELETE", "issues/1/labels/gpu%2Fslow")[1]] == ["cgins"]
    assert ask("DELETE", "issues/1/labels/gpu%2Fslow")[0] == 404
    place.twin.api.unlabel(pull, "cgins", "ada")
    found = [
        (one["event"], one["label"]["name"], one["actor"]["login"])
        for one in ask("GET", "issues/1/events")[1]
    ]
    assert found == [
        ("labeled", "cgins", "cgins-tester"),
        ("labeled", "gpu/slow", "cgins-tester"),
        ("unlabeled", "gpu/slow", "cgins-tester"),
        ("unlabeled", "cgins", "ada"),
    ]


def test_people_are_asked(place: Place, ask: Asker) -> None:
    """Who cannot be assigned is left out; a review of a stranger, or of the author, is refused whole."""
    api, pull = place.twin.api, ask.opened()
    api.collaborators, api.teams = ["ada", "bob"], ["kernels"]
    pull.labels.append("cgins")
    _, issue = ask("POST", "issues/1/assignees", {"assignees": ["ada", "stranger"]})
    assert [one["login"] for one in issue["assignees"]] == pull.assignees == ["ada"]
    asked = "pulls/1/requested_reviewers"
    _, stranger = ask("POST", asked, {"reviewers": ["bob", "stranger"]})
    assert stranger["message"].startswith("Reviews may only be requested from collaborators.")
    assert ask("POST", asked, {"reviewers": ["cgins-tester"]})[0] == 422
    assert pull.reviewers == []
    _, shown = ask("POST", asked, {"reviewers": ["bob"], "team_reviewers": ["kernels"]})
    assert [one["login"] for one in shown["requested_reviewers"]] == ["bob"]
    assert [one["slug"] for one in shown["requested_teams"]] == ["kernels"]
    api.unassign(pull, "ada", "ada")
    api.unrequest(pull, "bob", "bob")
    api.unrequest(pull, "kernels", "bob")
    api.set_state(pull, "closed", "bob")
    _, events = ask("GET", "issues/1/events?per_page=100")
    assert [(one["event"], one["actor"]["login"]) for one in events] == [
        ("assigned", "cgins-tester"),
        ("review_requested", "cgins-tester"),
        ("review_requested", "cgins-tester"),
        ("unassigned", "ada"),
        ("review_request_removed", "bob"),
        ("review_request_removed", "bob"),
        ("closed", "bob"),
    ]
    assert events[0]["assignee"]["login"] == "ada"
    assert [events[at]["requested_reviewer"]["login"] for at in (1, 4)] == ["bob", "bob"]
    assert [events[at]["requested_team"]["slug"] for at in (2, 5)] == ["kernels", "kernels"]
    assert [one["event"] for one in ask("GET", "issues/1/events?per_page=3&page=3")[1]] == ["closed"]
    assert ask("GET", "pulls/1")[1]["requested_teams"] == []
    assert ask("GET", "issues/9/events")[0] == 404
