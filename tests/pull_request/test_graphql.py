"""The GraphQL API: documents that GitHub's schema takes, and what becomes of its errors, which come with status 200."""

from __future__ import annotations

import time
from typing import Any

import pytest
from graphql import parse, validate

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import graphql as documents
from pytest_cgins.pull_request import transport as transports
from pytest_cgins.pull_request.clone import BranchMovedError
from pytest_cgins.pull_request.graphql import ZEROS, Graphql, RefChange, UnavailableError
from pytest_cgins.pull_request.transport import Transport
from tests.pull_request import graphql_oracle, twin_graphql
from tests.pull_request import twin as twins
from tests.pull_request.conftest import FIXED, SOURCE, Place, git
from tests.pull_request.graphql_oracle import Judged
from tests.pull_request.twin import API, GRAPHQL, READER, WRITER, Fault
from tests.pull_request.twin_state import Minted, Refusal

LIMITED = {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 1."}]}


def _client(place: Place, token: str = WRITER) -> Graphql:
    return Graphql(Transport(place.twin.url + API, token), place.twin.url + GRAPHQL, "octo/kernels")


@pytest.fixture
def api(place: Place) -> Graphql:
    """The twin's API."""
    return _client(place)


def _answer(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """What the twin says, each once, before it speaks for itself again."""
    real, left = twin_graphql.answer, list(answers)

    def answer(*given: Any, **named: Any) -> Judged:
        if not left:
            return real(*given, **named)
        said = left.pop(0)
        if isinstance(said, Refusal):
            raise said
        return Judged(said)

    monkeypatch.setattr(twin_graphql, "answer", answer)


# ---- what is asked


def test_documents_are_valid() -> None:
    """GitHub's own schema has each field, argument, variable and type of the module's documents."""
    texts = {name: text for name, text in vars(documents).items() if isinstance(text, str)}
    queries = {name: text for name, text in texts.items() if text.startswith(("query", "mutation"))}
    assert queries.keys() == {"VIEWER", "UPDATE_REFS", "CREATE_COMMIT"}
    assert all(validate(graphql_oracle.SCHEMA, parse(text)) == [] for text in queries.values())


def test_a_login_is_read(place: Place, api: Graphql) -> None:
    """Whose token it is: a person's, an App's, or a workflow's."""
    assert api.login() == "cgins-tester"
    assert _client(place, twins.BOT).login() == "cgins-app[bot]"
    assert _client(place, twins.ACTIONS).login() == "github-actions[bot]"


def test_a_commit_is_made(place: Place, api: Graphql) -> None:
    """New bytes and old ones, a message with its parts, and what GitHub says of it."""
    git(place.bare, "branch", "work", "main")
    before = place.tip("work")
    files = {SOURCE: FIXED.encode(), "new/empty.txt": b"", "bytes.bin": bytes(range(256))}
    made = api.create_commit("work", before, "First line\n\nSecond, with ü\n\nKey: value\n", files)
    assert (made.commit, made.signed) == (place.tip("work"), True)
    assert made.tree == git(place.bare, "rev-parse", "work^{tree}")
    assert git(place.bare, "log", "-1", "--format=%B", "work") == "First line\n\nSecond, with ü\n\nKey: value"
    assert git(place.bare, "diff", "--name-only", before, "work").split() == sorted(files)
    assert place.twin.api.git("cat-file", "-s", "work:bytes.bin") == "256"
    assert git(place.bare, "rev-parse", "work^") == before


@pytest.mark.parametrize("signature", [None, {"isValid": False}])
def test_a_commit_without_a_signature(
    monkeypatch: pytest.MonkeyPatch, api: Graphql, signature: dict[str, bool] | None
) -> None:
    """A server may sign nothing, or not validly."""
    commit = {"oid": "1" * 40, "tree": {"oid": "2" * 40}, "signature": signature}
    _answer(monkeypatch, {"data": {"createCommitOnBranch": {"commit": commit}}})
    made = api.create_commit("work", "0" * 40, "t", {})
    assert (made.commit, made.tree, made.signed) == ("1" * 40, "2" * 40, False)


def test_refs_are_asked_for_in_full(place: Place, api: Graphql) -> None:
    """What is not there is zeros, before as after, and a step aside is allowed."""
    tip = place.tip("main")
    api.update_refs(place.twin.api.node_id, [RefChange(branch="a/b", before=None, after=tip)])
    api.update_refs(place.twin.api.node_id, [RefChange(branch="a/b", before=tip, after=None)])
    asked = [request.body["variables"]["updates"] for request in place.twin.requests]
    ref = {"name": "refs/heads/a/b", "force": True}
    assert asked == [
        [{**ref, "beforeOid": ZEROS, "afterOid": tip}],
        [{**ref, "beforeOid": tip, "afterOid": ZEROS}],
    ]


# ---- servers that are old


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_it(place: Place, api: Graphql, waits: list[float], status: int) -> None:
    """No such address is told apart from a refusal, and is not asked again."""
    place.twin.faults = [Fault(path=GRAPHQL, status=status, message="Not Found")]
    with pytest.raises(UnavailableError, match=f"graphql: status {status}: Not Found"):
        api.login()
    assert (waits, len(place.twin.requests)) == ([], 1)


def test_a_server_without_the_mutation(place: Place, api: Graphql) -> None:
    """A field that is not defined: the server is too old, and the remedy names the way around."""
    place.twin.api.update_refs = False
    change = RefChange(branch="work", before=None, after=place.tip("main"))
    with pytest.raises(UnavailableError, match="Field 'updateRefs' doesn't exist") as caught:
        api.update_refs(place.twin.api.node_id, [change])
    assert "--commit-with push" in caught.value.remedy
    assert place.tip("work") == ""


# ---- limits


@pytest.mark.parametrize("kind", ["RATE_LIMITED", "RATE_LIMIT"])
def test_a_limit_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, place: Place, api: Graphql, waits: list[float], kind: str
) -> None:
    """RATE_LIMITED comes with status 200, and what was asked for was not done: it is asked again."""
    _answer(monkeypatch, {"errors": [{"type": kind, "message": "slowly"}]})
    change = RefChange(branch="work", before=None, after=place.tip("main"))
    api.update_refs(place.twin.api.node_id, [change])
    assert place.tip("work") == place.tip("main")
    assert waits == [transports.LIMIT_WAIT_S]


def test_a_limit_that_stays(monkeypatch: pytest.MonkeyPatch, api: Graphql, waits: list[float]) -> None:
    """Told in GitHub's words, with what to do."""
    _answer(monkeypatch, *[LIMITED] * 9)
    with pytest.raises(GitHubError, match="API rate limit exceeded for user ID 1") as caught:
        api.login()
    assert "run the command again later" in caught.value.remedy
    assert waits == [transports.LIMIT_WAIT_S]


@pytest.mark.parametrize(("ahead_s", "waited"), [(3600, 0), (20, 1)])
def test_until_when_a_limit_lasts(
    monkeypatch: pytest.MonkeyPatch, api: Graphql, waits: list[float], ahead_s: int, waited: int
) -> None:
    """An hour is not waited for, twenty seconds are; the headers say which, with status 200 as well."""
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + ahead_s)}
    limited = Refusal(200, "", headers=headers)
    limited.body = LIMITED
    _answer(monkeypatch, limited)
    if waited:
        assert api.login() == "cgins-tester"
        assert 15 < waits[0] <= 20
    else:
        with pytest.raises(GitHubError, match="API rate limit exceeded"):
            api.login()
    assert len(waits) == waited


def test_the_last_points_of_an_hour(
    monkeypatch: pytest.MonkeyPatch, api: Graphql, waits: list[float]
) -> None:
    """An answer that used up what was left is an answer."""
    last = Refusal(200, "", headers={"X-RateLimit-Remaining": "0"})
    last.body = {"data": {"viewer": {"login": "ada"}}}
    _answer(monkeypatch, last)
    assert (api.login(), waits) == ("ada", [])


# ---- trouble


TROUBLES = [
    {"type": "NOT_FOUND", "message": "Could not resolve to a node with the global id of 'R_1'."},
    {"message": "Something went wrong while executing your query. This may be the result of a timeout."},
    {"type": "INTERNAL", "message": "Something went wrong"},
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: str(one.get("type")))
def test_trouble_passes(
    monkeypatch: pytest.MonkeyPatch, place: Place, api: Graphql, waits: list[float], trouble: dict[str, str]
) -> None:
    """What was made a moment ago may not be known everywhere, and the server may stumble: asked again, all is well."""
    _answer(monkeypatch, *[{"data": None, "errors": [trouble]}] * 3)
    change = RefChange(branch="work", before=None, after=place.tip("main"))
    api.update_refs(place.twin.api.node_id, [change])
    assert place.tip("work") == place.tip("main")
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: str(one.get("type")))
def test_trouble_that_stays(
    monkeypatch: pytest.MonkeyPatch, place: Place, api: Graphql, waits: list[float], trouble: dict[str, str]
) -> None:
    """After four tries it is told in GitHub's words, and is none of the refusals after which another way is tried."""
    _answer(monkeypatch, *[{"data": None, "errors": [trouble]}] * 9)
    with pytest.raises(GitHubError, match=trouble["message"][:20]) as caught:
        api.login()
    assert (caught.value.status, caught.value.remedy) == (200, "run the command again later")
    assert len(waits) + 1 == len(place.twin.requests) == transports.TRIES


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([{"type": "UNPROCESSABLE", "message": "no"}], 422),
        ([{"message": "no", "extensions": {"code": "argumentNotAccepted"}}], 422),
        ([{"type": "INSUFFICIENT_SCOPES", "message": "no"}], 403),
        ([TROUBLES[0], {"type": "UNPROCESSABLE", "message": "no"}], 422),
    ],
)
def test_a_refusal_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
    place: Place,
    api: Graphql,
    waits: list[float],
    errors: list[Any],
    status: int,
) -> None:
    """What would be refused again is asked once; the status says what of."""
    _answer(monkeypatch, {"data": None, "errors": errors})
    with pytest.raises(GitHubError) as caught:
        api.login()
    assert (caught.value.status, waits, len(place.twin.requests)) == (status, [], 1)


# ---- refusals


@pytest.mark.parametrize("who", [READER, "an-apps"])
def test_forbidden(place: Place, who: str) -> None:
    """A token that may not write is told which permission it needs; it has status 403, as by REST."""
    place.twin.api.minted["an-apps"] = Minted({"metadata": "read", "contents": "read"}, time.time() + 60)
    change = RefChange(branch="work", before=None, after=place.tip("main"))
    with pytest.raises(GitHubError, match="Resource not accessible by") as caught:
        _client(place, who).update_refs(place.twin.api.node_id, [change])
    assert caught.value.status == 403
    assert "contents: write" in caught.value.remedy
    assert not isinstance(caught.value, UnavailableError | BranchMovedError)


def test_stale_data(place: Place, api: Graphql) -> None:
    """A ref or a branch that is not as expected is told, and nothing is changed."""
    tip = place.tip("main")
    changes = [
        RefChange(branch="work", before=None, after=tip),
        RefChange(branch="main", before="1" * 40, after=None),
    ]
    with pytest.raises(GitHubError, match="Expected refs/heads/main to point to") as caught:
        api.update_refs(place.twin.api.node_id, changes)
    assert (caught.value.status, place.tip("work"), place.tip("main")) == (200, "", tip)
    with pytest.raises(GitHubError, match="Expected branch to point to") as caught:
        api.create_commit("main", "1" * 40, "t", {"a": b"a"})
    assert (caught.value.status, place.tip("main")) == (200, tip)
    assert "run the command again" in caught.value.remedy


def test_several_errors(monkeypatch: pytest.MonkeyPatch, api: Graphql) -> None:
    """All are told, in one line, without the token; one of a kind that is known says what to do."""
    bad = [
        {"message": f"one\n{WRITER}"},
        "two",
        {"type": "FORBIDDEN"},
        {"extensions": None, "message": "three"},
    ]
    _answer(monkeypatch, {"data": None, "errors": bad})
    with pytest.raises(GitHubError) as caught:
        api.login()
    assert caught.value.what.endswith("/api/graphql: one ***; FORBIDDEN; three")
    assert caught.value.status == 403


@pytest.mark.parametrize(
    "said",
    [{}, {"data": None}, {"data": []}, {"data": "x"}, {"errors": []}, [], [{"data": {}}], "x", 1, None],
    ids=repr,
)
def test_an_answer_without_data(monkeypatch: pytest.MonkeyPatch, api: Graphql, said: Any) -> None:
    """JSON of something else: the address is probably wrong."""
    _answer(monkeypatch, said)
    with pytest.raises(GitHubError, match="the answer has no data") as caught:
        api.login()
    assert "GITHUB_GRAPHQL_URL" in caught.value.remedy


@pytest.mark.parametrize("errors", ["x", {"message": "x"}, ["x"], 1])
def test_errors_of_another_form(monkeypatch: pytest.MonkeyPatch, api: Graphql, errors: Any) -> None:
    """What is not a list of errors is an error all the same."""
    _answer(monkeypatch, {"data": {"viewer": {"login": "x"}}, "errors": errors})
    with pytest.raises(GitHubError, match="/api/graphql: an error"):
        api.login()
