"""The twin of GitHub on bad days, behind rules, with an app's tokens; and what its oracles find."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from tests.pull_request import graphql_oracle, oracle, twin_app
from tests.pull_request.asker import Asker, asking
from tests.pull_request.conftest import Place, git
from tests.pull_request.twin import API, GRAPHQL, WRITER, Fault, Request
from tests.pull_request.twin_state import Pull

CREATE_COMMIT = """mutation($input: CreateCommitOnBranchInput!) {
  createCommitOnBranch(input: $input) { commit { oid } }
}"""


@pytest.fixture
def ask(place: Place) -> Iterator[Asker]:
    with asking(place) as found:
        yield found


# ---- bad days


def pushed(place: Place, ask: Asker, branch: str, token: str = WRITER) -> str:
    """What git says to a push of a new commit; "" where it is done."""
    (place.other / f"{branch}.txt").write_text(branch)
    git(place.other, "add", "--all")
    git(place.other, "commit", "--quiet", "-m", "m")
    url = ask.remote().replace(WRITER, token)
    command = ["git", "-C", str(place.other), "push", "--quiet", url, f"HEAD:refs/heads/{branch}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    ("kind", "said", "there"),
    [("status", "error: 503", False), ("drop", "Empty reply", False), ("lost", "Empty reply", True)],
)
def test_faults_apply_to_git(place: Place, ask: Asker, kind: Any, said: str, there: bool) -> None:
    """A push fails before it is done, or after."""
    place.twin.faults = [Fault("POST", "git-receive-pack", kind=kind, status=503)]
    assert said in pushed(place, ask, "work")
    assert bool(place.tip("work")) == there


def test_a_fault_hits_the_request_of_a_number(place: Place, ask: Asker) -> None:
    """Counted from the last restart on, whatever the request; a dropped one is not done."""
    ask("GET", "")
    place.twin.restart()
    place.twin.faults = [Fault(at=1, kind="drop")]
    assert ask("GET", "")[0] == 200
    with pytest.raises(httpx2.RemoteProtocolError):
        ask("POST", "git/refs", {"ref": "refs/heads/new", "sha": place.tip("main")})
    assert place.tip("new") == ""
    assert ask("GET", "")[0] == 200
    assert (place.twin.count, len(place.twin.requests)) == (3, 4)


def test_a_hook_stands_between_requests(place: Place, ask: Asker) -> None:
    """It is told before and after each, and may itself ask the twin."""
    told: list[tuple[int, str, str, bool]] = []

    def hook(index: int, request: Request, when: str) -> None:
        told.append((index, request.method, when, bool(place.tip("new"))))
        if when == "after":
            place.twin.hook = None
            with asking(place) as other:
                assert other("DELETE", "git/refs/heads/new") == (204, None)

    place.twin.restart()
    place.twin.hook = hook
    assert ask("POST", "git/refs", {"ref": "refs/heads/new", "sha": place.tip("main")})[0] == 201
    assert told == [(0, "POST", "before", False), (0, "POST", "after", True)]
    assert place.tip("new") == ""


def test_too_many_writes_are_refused_once(place: Place, ask: Asker) -> None:
    """The secondary limit says when to come back, counts GraphQL's mutations, and does not count what reads."""
    place.twin.api.secondary_limit_after = 1
    ask("GET", "")
    assert ask("POST", "git/blobs", {"content": "a"})[0] == 201
    ask.graphql("query { viewer { login } }")
    body = {"query": "mutation($i: UpdateRefsInput!) { updateRefs(input: $i) { clientMutationId } }"}
    limited = ask.client.post(GRAPHQL, json=body, headers={"Authorization": f"Bearer {WRITER}"})
    assert (limited.status_code, limited.headers["Retry-After"]) == (403, "1")
    assert "secondary rate limit" in limited.json()["message"]
    assert ask("POST", "git/blobs", {"content": "a"})[0] == 201


def test_protected_branches_are_kept(place: Place, ask: Asker) -> None:
    """Against REST and git, in words of their own; other branches are free."""
    place.twin.api.protected = ["main", "kept"]
    ask.opened()
    tip, work = place.tip("main"), place.tip("work")
    for method, path, body in (
        ("PATCH", "git/refs/heads/main", {"sha": work}),
        ("DELETE", "git/refs/heads/main", None),
        ("POST", "git/refs", {"ref": "refs/heads/kept", "sha": work}),
    ):
        status, said = ask(method, path, body)
        assert (status, "through a pull request" in said["message"]) == (422, True)
    given = {
        "branch": {"repositoryNameWithOwner": "octo/kernels", "branchName": "main"},
        "expectedHeadOid": tip,
        "message": {"headline": "m"},
    }
    [error] = ask.graphql(CREATE_COMMIT, given)["errors"]
    assert (error["type"], "through a pull request" in error["message"]) == ("UNPROCESSABLE", True)
    said = pushed(place, ask, "main")
    assert "! [remote rejected] HEAD -> main (protected branch hook declined)" in said
    assert "GH006: Protected branch update failed for refs/heads/main." in said
    assert pushed(place, ask, "free") == ""
    assert [place.tip(one) for one in ("main", "kept")] == [tip, ""]


# ---- apps


@pytest.fixture(scope="module")
def keys() -> tuple[str, str]:
    return twin_app.make_key()


def web_token(private: str, **claims: Any) -> str:
    now = int(time.time())
    return jwt.encode({"iat": now - 60, "exp": now + 540, "iss": "4242"} | claims, private, algorithm="RS256")


def test_an_app_gets_a_token_for_what_it_asks(place: Place, ask: Asker, keys: tuple[str, str]) -> None:
    """It acts as the app's bot, with no more than the permissions asked for, until it ends or is revoked."""
    place.twin.api.app_key = keys[1]
    signed = web_token(keys[0])
    _, found = ask("GET", "installation", token=signed)
    body = {"repositories": ["kernels"], "permissions": {"contents": "write"}}
    status, minted = ask("POST", f"/app/installations/{found['id']}/access_tokens", body, token=signed)
    token = minted["token"]
    assert (status, token[:4], found["app_id"]) == (201, "ghs_", 4242)
    assert minted["permissions"] == {"contents": "write", "metadata": "read"}
    assert (
        ask.graphql("query { viewer { login } }", token=token)["data"]["viewer"]["login"] == "cgins-app[bot]"
    )
    assert pushed(place, ask, "work", token) == ""
    assert ask("POST", "pulls", {"title": "t", "head": "work", "base": "main"}, token=token)[0] == 403
    assert ask("GET", "/user", token=token)[0] == 403
    place.twin.api.minted[token].expires = 0
    assert ask("GET", "", token=token)[0] == 401
    place.twin.api.minted[token].expires = time.time() + 9
    assert ask("DELETE", "/installation/token", token=token) == (204, None)
    assert ask("GET", "", token=token)[0] == 401
    assert ask("DELETE", "/installation/token")[0] == 403


def test_a_token_that_only_reads_pushes_nothing(place: Place, ask: Asker, keys: tuple[str, str]) -> None:
    """An installation's token is held to its permissions by git and by GraphQL too."""
    place.twin.api.app_key = keys[1]
    body = {"permissions": {"contents": "read"}}
    _, minted = ask("POST", "/app/installations/77/access_tokens", body, token=web_token(keys[0]))
    assert "403" in pushed(place, ask, "work", minted["token"])
    given = {"repositoryId": place.twin.api.node_id, "refUpdates": []}
    query = "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
    [error] = ask.graphql(query, given, token=minted["token"])["errors"]
    assert (error["type"], error["message"]) == ("FORBIDDEN", "Resource not accessible by integration")


def minted_for(place: Place, ask: Asker, keys: tuple[str, str], **permissions: str) -> str:
    """A token of an installation to which these are granted, beside what it needs to open a pull request."""
    api = place.twin.api
    api.app_key = keys[1]
    api.app_permissions |= permissions
    _, minted = ask("POST", "/app/installations/77/access_tokens", token=web_token(keys[0]))
    return str(minted["token"])


def test_creating_a_label_needs_a_permission_of_its_own(
    place: Place, ask: Asker, keys: tuple[str, str]
) -> None:
    """Without issues: write a label that the repository lacks is refused, with all that came along; known ones are given."""
    api, pull = place.twin.api, ask.opened()
    bare = minted_for(place, ask, keys)
    api.creates_labels = False
    for token in (WRITER, bare):
        status, said = ask("POST", "issues/1/labels", {"labels": ["cgins", "speed"]}, token=token)
        words = "You do not have permission to create labels on this repository."
        assert (status, said["message"]) == (403, words)
    assert pull.labels == []
    assert ask("POST", "issues/1/labels", {"labels": ["CGINS"]}, token=bare)[0] == 200
    assert pull.labels == ["cgins"]
    granted = minted_for(place, ask, keys, issues="write")
    assert ask("POST", "issues/1/labels", {"labels": ["speed"]}, token=granted)[0] == 200
    assert ask("POST", "issues/1/labels", {"labels": ["speed"]}, token=bare)[0] == 200
    assert (pull.labels, api.labels) == (["cgins", "speed"], ["bug", "cgins", "speed"])


def test_teams_are_asked_by_who_may_see_them(place: Place, ask: Asker, keys: tuple[str, str]) -> None:
    """An installation's token without members: read cannot name a team, nor the people beside it."""
    api, pull = place.twin.api, ask.opened()
    api.collaborators, api.teams = ["ada"], ["kernels"]
    body = {"reviewers": ["ada"], "team_reviewers": ["kernels"]}
    asked = "pulls/1/requested_reviewers"
    bare = minted_for(place, ask, keys)
    status, said = ask("POST", asked, body, token=bare)
    assert (status, said["message"]) == (422, "Validation Failed")
    assert said["errors"][0].startswith("Could not resolve to a node with the global id of 'T_")
    assert (pull.reviewers, pull.teams) == ([], [])
    assert ask("POST", asked, {"reviewers": ["ada"]}, token=bare)[0] == 201
    assert ask("POST", asked, body, token=minted_for(place, ask, keys, members="read"))[0] == 201
    assert pull.teams == ["kernels"]


@pytest.mark.parametrize(
    ("claims", "status", "said"),
    [
        ({"exp": int(time.time()) + 3600}, 401, "too far in the future"),
        ({"exp": int(time.time()) - 1}, 401, "must be a numeric value representing the future time"),
        ({"iat": int(time.time()) + 3600}, 401, "'Issued at' claim"),
        ({"iss": "me"}, 401, "'Issuer' claim"),
        ({"iss": "7"}, 404, "Integration not found"),
    ],
)
def test_claims_are_verified(
    place: Place, ask: Asker, keys: tuple[str, str], claims: dict[str, Any], status: int, said: str
) -> None:
    """A web token of another app, of another time, or that would last too long is refused."""
    place.twin.api.app_key = keys[1]
    found, answer = ask("GET", "installation", token=web_token(keys[0], **claims))
    assert found == status
    assert said in answer["message"]


def test_signatures_are_verified(place: Place, ask: Asker, keys: tuple[str, str]) -> None:
    """A token of another key, one that is none, and any where there is no app."""
    good = web_token(keys[0])
    assert ask("GET", "installation", token=good)[0] == 401
    place.twin.api.app_key = keys[1]
    for token in (web_token(twin_app.make_key()[0]), WRITER, ""):
        status, said = ask("GET", "installation", token=token)
        assert (status, said["message"]) == (401, "A JSON web token could not be decoded")
    path = "/app/installations/77/access_tokens"
    assert ask("POST", path, token=good)[0] == 201
    assert ask("POST", path, {"repositories": ["other"]}, token=good)[0] == 422
    assert ask("POST", path, {"permissions": {"administration": "write"}}, token=good)[0] == 422
    assert ask("POST", "/app/installations/78/access_tokens", token=good)[0] == 404
    place.twin.api.installation = None
    assert ask("GET", "installation", token=good)[0] == 404


# ---- forks


@pytest.mark.parametrize(
    ("owner", "name", "shown"),
    [("", "kernels-2", "octo/kernels-2"), ("stranger", "", "stranger/kernels"), ("", None, None)],
)
def test_a_fork_is_told_by_its_repository(
    place: Place, ask: Asker, owner: str, name: str | None, shown: str | None
) -> None:
    """Owner and branch may be those of the repository; what lies behind them has another id, or is gone."""
    api = place.twin.api
    api.pulls.append(Pull(1, "t", "", "work", "main", False, head_owner=owner, head_repository=name))
    ask.opened()
    listed = ask("GET", f"pulls?head={owner or 'octo'}:work")[1]
    own = ask("GET", "pulls/2")[1]
    assert [one["number"] for one in listed] == ([1] if owner else [2, 1])
    fork = listed[-1]
    assert (fork["head"]["label"], own["head"]["label"]) == (f"{owner or 'octo'}:work", "octo:work")
    assert own["head"]["repo"]["id"] == own["base"]["repo"]["id"] == fork["base"]["repo"]["id"] != 0
    found = fork["head"]["repo"]
    if shown is None:
        assert found is None
    else:
        assert (found["full_name"], found["fork"]) == (shown, True)
        assert found["id"] != own["head"]["repo"]["id"]
    assert (api.pulls[0].state, own["state"]) == ("open", "open")
    ask("DELETE", "git/refs/heads/work")
    assert [one.state for one in api.pulls] == ["open", "closed"]


# ---- the rest


def test_other_operations_answer_as_described(place: Place, ask: Asker) -> None:
    """What the product does not use is held against the description too, and strangers see nothing."""
    ask.opened()
    assert ask("GET", "compare/main...work")[1]["ahead_by"] == 1
    assert ask("GET", "git/ref/heads/work")[1]["object"]["sha"] == place.tip("work")
    assert ask("GET", "pulls/1")[1]["head"]["sha"] == place.tip("work")
    assert ask("GET", "/repos/octo/other")[0] == 404
    assert ask("GET", "", token="")[0] == 404
    assert ask("GET", "/user", token="")[0] == 401
    assert ask("GET", "", token="nobody")[0] == 401
    page = ask.client.get("/_pulls", headers={"Accept": "text/html"}).text
    assert "<h2>#1 work</h2>" in page


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "pulls/1", None, "there is no such operation"),
        ("POST", "pulls", {"head": "h", "base": "b", "tittle": "t"}, "there is no field tittle"),
        ("POST", "pulls", {"head": "h"}, "'base' is a required property"),
        ("GET", "pulls?heads=x", None, "there is no query parameter heads"),
        ("POST", "git/trees", {"tree": [{"path": "a", "mode": "644", "content": ""}]}, "'644' is not one of"),
        ("PATCH", "git/refs/heads/main", {"sha": "0", "force": "yes"}, "'yes' is not of type 'boolean'"),
        ("POST", "pulls/1/requested_reviewers", {"reviewers": "ada"}, "'ada' is not of type 'array'"),
        ("DELETE", "git/refs/heads/main", {"force": True}, "a body, where none belongs"),
    ],
)
def test_a_wrong_request_is_found(ask: Asker, method: str, path: str, body: Any, said: str) -> None:
    """An operation, a field, a parameter or a type that the description does not have is a violation."""
    assert ask(method, path, body)[0] == 400
    [found] = ask.violations()
    assert said in found


def test_headers_are_held_to_the_description(ask: Asker) -> None:
    """Kind of answer and version are asked for."""
    headers = {"Authorization": f"Bearer {WRITER}", "Accept": "*/*", "X-GitHub-Api-Version": "2021-01-01"}
    assert ask.client.get(f"{API}/user", headers=headers).status_code == 400
    found = ask.violations()
    assert [one.partition("header ")[2].split()[0] for one in found] == ["Accept", "X-GitHub-Api-Version"]


def test_a_wrong_answer_is_found() -> None:
    """The twin's own answers are held against the description and the schema."""
    found = oracle.operation("POST", "/repos/o/r/pulls")
    assert found
    assert oracle.answer_faults(found[0], 201, {"number": 1})
    assert oracle.operation("DELETE", "/repos/o/r/pulls") is None
    judged = graphql_oracle.judge({"query": "query { viewer { id } }"}, {"viewer": {"login": "x"}})
    assert judged.faults == ("Cannot return null for non-nullable field User.id.",)


def test_the_twin_stands_alone(tmp_path: Path, template: Path) -> None:
    """`python -m tests.pull_request.twin` prints the remote and the page, for a demo."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pull_request.twin", "--repository", str(template / "bare.git")],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        remote, page = process.stdout.readline().strip(), process.stdout.readline().strip()
        assert remote.endswith("/octo/kernels.git")
        assert urllib.request.urlopen(page, timeout=10).read() == b"[]"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
