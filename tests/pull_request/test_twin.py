"""The twin of GitHub finds wrong requests and answers, and fails as it is told. What it refuses, tests of the bot rely on."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.pull_request import graphql_oracle, oracle
from tests.pull_request.conftest import Place, commit, git
from tests.pull_request.twin import API, GRAPHQL, WRITER, Fault
from tests.pull_request.twin_state import ZERO

UPDATE_REFS = "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
TOKEN = {"Authorization": f"Bearer {WRITER}"}
Ask = Callable[..., httpx2.Response]


@pytest.fixture
def client(place: Place) -> Iterator[httpx2.Client]:
    """A client that knows nothing, so that it can ask what the product never would."""
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28", **TOKEN}
    with httpx2.Client(base_url=place.twin.url, headers=headers) as client:
        yield client


@pytest.fixture
def ask(client: httpx2.Client) -> Ask:
    """Sends a request about the repository."""
    return lambda method, path, body=None: client.request(
        method, f"{API}/repos/octo/kernels/{path}".rstrip("/"), json=body
    )


def violations(place: Place) -> list[str]:
    """Of all requests so far, which are then forgotten."""
    violations, place.twin.violations[:] = list(place.twin.violations), []
    return violations


@pytest.mark.parametrize(
    ("method", "path", "body", "violation"),
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
def test_a_wrong_request_is_found(
    place: Place, ask: Ask, method: str, path: str, body: Any, violation: str
) -> None:
    """An operation, a field, a parameter or a type that the description does not have is a violation."""
    assert ask(method, path, body).status_code == 400
    assert [violation in text for text in violations(place)] == [True]


def test_headers_are_held_to_the_description(place: Place, client: httpx2.Client) -> None:
    """Kind of answer and version are asked for."""
    headers = {"Accept": "*/*", "X-GitHub-Api-Version": "2021-01-01"}
    assert client.get(f"{API}/user", headers=headers).status_code == 400
    assert [text.partition("header ")[2].split()[0] for text in violations(place)] == list(headers)


@pytest.mark.parametrize(
    ("body", "violation"),
    [
        ({"query": "query { viewer { logins } }"}, "Cannot query field 'logins' on type 'User'"),
        ({"query": "query { viewer { login }"}, "Syntax Error"),
        ({"query": UPDATE_REFS, "variables": {"input": {"repositoryId": 1}}}, "refUpdates"),
        ({"query": "query { viewer { login } }", "variables": {"input": 1}}, "declares no variable $input"),
        ({"query": "query { viewer { login } }", "variable": {}}, "there is no field variable"),
        ({"quarry": ""}, "the body is no object with a query"),
    ],
)
def test_a_wrong_document_is_found(
    place: Place, client: httpx2.Client, body: dict[str, Any], violation: str
) -> None:
    """A field, a variable or a type that the schema does not have is a violation, not an answer."""
    assert client.post(GRAPHQL, json=body).status_code == 400
    assert violation in violations(place)[0]


def test_a_wrong_answer_is_found() -> None:
    """The twin's own answers are held against the description and the schema."""
    operation = oracle.operation("POST", "/repos/o/r/pulls")
    assert operation
    assert oracle.answer_faults(operation[0], 201, {"number": 1})
    assert oracle.operation("DELETE", "/repos/o/r/pulls") is None
    judged = graphql_oracle.judge({"query": "query { viewer { id } }"}, {"viewer": {"login": "x"}})
    assert judged.faults == ("Cannot return null for non-nullable field User.id.",)


@pytest.mark.parametrize(
    ("kind", "error", "arrives"),
    [("status", "error: 503", False), ("drop", "Empty reply", False), ("lost", "Empty reply", True)],
)
def test_faults_apply_to_git(place: Place, kind: Any, error: str, arrives: bool) -> None:
    """A push fails before it is done, or after."""
    place.twin.faults = [Fault("POST", "git-receive-pack", kind=kind, status=503)]
    remote = place.twin.remote.replace("http://", f"http://x-access-token:{WRITER}@")
    git(place.other, "commit", "--quiet", "--allow-empty", "-m", "m")
    command = ["git", "-C", str(place.other), "push", "--quiet", remote, "HEAD:refs/heads/work"]
    assert error in subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert bool(place.tip("work")) == arrives


def test_a_fault_hits_the_request_of_a_number(place: Place, ask: Ask) -> None:
    """Counted from the last restart on, whatever the request; a dropped one is not done."""
    ask("GET", "")
    place.twin.restart()
    place.twin.faults = [Fault(at=1, kind="drop")]
    assert ask("GET", "").status_code == 200
    with pytest.raises(httpx2.RemoteProtocolError):
        ask("POST", "git/refs", {"ref": "refs/heads/new", "sha": place.tip("main")})
    assert place.tip("new") == ""
    assert ask("GET", "").status_code == 200
    assert (place.twin.count, len(place.twin.requests)) == (3, 4)


@pytest.mark.parametrize("how", ["rest", "graphql", "git", "reset", "push"])
def test_a_pull_request_closes_with_its_branch(
    place: Place, client: httpx2.Client, ask: Ask, how: str
) -> None:
    """Where the branch is deleted, or has nothing that its base lacks; only what the base took in counts as merged."""
    commit(place.other, {"work.txt": "work"}, branch="work")
    ask("POST", "pulls", {"title": "t", "head": "work", "base": "main"})
    [pull] = place.twin.api.pulls
    tip, main = place.tip("work"), place.tip("main")
    if how == "rest":
        ask("DELETE", "git/refs/heads/work")
    elif how == "graphql":
        update = {"name": "refs/heads/work", "beforeOid": tip, "afterOid": ZERO}
        variables = {"input": {"repositoryId": place.twin.api.node_id, "refUpdates": [update]}}
        client.post(GRAPHQL, json={"query": UPDATE_REFS, "variables": variables})
    elif how == "reset":
        ask("PATCH", "git/refs/heads/work", {"sha": main, "force": True})
    else:
        header = f"Authorization: Basic {base64.b64encode(f'x:{WRITER}'.encode()).decode()}"
        refspec = ":work" if how == "git" else f"{tip}:main"
        git(place.other, "-c", f"http.extraHeader={header}", "push", "--quiet", place.twin.remote, refspec)
    assert (pull.state, bool(pull.merged_at)) == ("closed", how == "push")
    assert ask("GET", "pulls/1").json()["head"]["sha"] == (main if how == "reset" else tip)
    assert [event.login for event in place.twin.api.events if event.name == "closed"] == ["cgins-tester"]
