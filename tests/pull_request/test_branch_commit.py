"""The commit on a kernel's branch: by the API and signed where it can be, by git where not, and the same files either way."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cgins.pull_request.rest import Rest
from tests.pull_request import twin as twins
from tests.pull_request import twin_graphql
from tests.pull_request.conftest import BETTER, BRANCH, FIXED, SOURCE, Place, commit, git
from tests.pull_request.graphql_oracle import Judged
from tests.pull_request.twin import Fault, Request

STAGING = "cgins/staging/repair-scale-cpu-cpp"


@pytest.fixture
def bot(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is an App's."""
    monkeypatch.setenv("GITHUB_TOKEN", twins.BOT)


def _mutations(place: Place) -> list[str]:
    asked = [request.body["query"] for request in place.twin.requests if request.path.endswith("/graphql")]
    names = ("updateRefs", "createCommitOnBranch")
    return [name for query in asked for name in names if f"{name}(" in query]


def _fail(monkeypatch: pytest.MonkeyPatch, mutation: str, error: dict[str, Any], times: int) -> None:
    """The server's first answers to a mutation are an error."""
    real, left = twin_graphql.answer, [error] * times

    def answer(api: Any, body: Any, **named: Any) -> Judged:
        if f"{mutation}(" in body["query"] and left:
            return Judged({"data": None, "errors": [left.pop()]})
        return real(api, body, **named)

    monkeypatch.setattr(twin_graphql, "answer", answer)


def _check_branch(place: Place, source: str = FIXED) -> None:
    assert place.source == source
    assert git(place.bare, "rev-parse", f"{BRANCH}^") == place.tip("main")
    assert git(place.bare, "diff", "--name-only", "main", BRANCH) == SOURCE
    assert place.tip(STAGING) == ""


@pytest.mark.usefixtures("bot")
def test_an_apps_commit_is_made_before_the_branch_is_set(place: Place) -> None:
    """Tree and commit by REST, signed, and one change of the branch; git pushes nothing."""
    assert place.open() == 0
    _check_branch(place)
    assert [one.path.rpartition("/")[2] for one in place.rest_calls("POST")][:2] == ["trees", "commits"]
    assert _mutations(place) == ["updateRefs"]
    assert not any("receive-pack" in request.path + request.query for request in place.twin.requests)
    assert "note:" not in place.printed().err
    assert git(place.bare, "log", "-1", "--format=%an", BRANCH) == "cgins-app[bot]"


def test_a_persons_commit_goes_over_a_staging_branch(place: Place) -> None:
    """createCommitOnBranch signs for a person; its branch is gone when the kernel's is set."""
    assert place.open() == 0
    _check_branch(place)
    assert _mutations(place) == ["updateRefs", "createCommitOnBranch", "updateRefs"]
    assert "note:" not in place.printed().err
    assert git(place.bare, "log", "-1", "--format=%an", BRANCH) == "cgins-tester"


@pytest.mark.exam
@pytest.mark.parametrize("token", [twins.BOT, twins.WRITER])
def test_the_branch_is_set_anew_on_a_moved_base(
    place: Place, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another proposal on another tip replaces the commit, which is no fast-forward."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    place.open()
    commit(place.other, {"README.md": "words"})
    assert place.open(place.better()) == 0
    _check_branch(place, BETTER)
    assert [one.state for one in place.twin.api.pulls] == ["open"]


def test_a_staging_branch_that_was_left(place: Place) -> None:
    """One of a run that was killed, with its commit, is set back and used."""
    commit(place.other, {SOURCE: BETTER}, branch=STAGING)
    assert place.open() == 0
    _check_branch(place)


@pytest.mark.parametrize("token", [twins.BOT, twins.WRITER])
def test_a_server_without_graphql(place: Place, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The App's branch is set by REST; for a person git pushes, and it is told that nobody signed."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    place.twin.api.graphql = False
    assert place.open() == 0
    _check_branch(place)
    pushed = any(request.path.endswith("git-receive-pack") for request in place.twin.requests)
    assert pushed == (token == twins.WRITER)
    output = place.printed().err
    assert ("note: the commit is not signed: the API did not take it: " in output) == pushed


NOT_YET = {"type": "NOT_FOUND", "message": f"Could not resolve to a branch with the name '{STAGING}'."}
WRONG = {"message": "Something went wrong while executing your query."}
LIMITED = {"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 1."}


@pytest.mark.parametrize(("error", "times"), [(NOT_YET, 3), (WRONG, 3), (LIMITED, 1)])
def test_trouble_that_passes(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: dict[str, str], times: int
) -> None:
    """A branch that is not known everywhere yet, a stumble, a limit: waited out, and the commit is signed."""
    _fail(monkeypatch, "createCommitOnBranch", error, times)
    assert place.open() == 0
    _check_branch(place)
    assert _mutations(place).count("createCommitOnBranch") == times + 1
    assert "note:" not in place.printed().err


@pytest.mark.parametrize("mutation", ["createCommitOnBranch", "updateRefs"])
@pytest.mark.parametrize("error", [NOT_YET, WRONG, LIMITED], ids=lambda one: str(one.get("type")))
def test_trouble_is_no_reason_for_an_unsigned_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch, mutation: str, error: dict[str, str]
) -> None:
    """Trouble that stays is told, and git pushes nothing: later the commit will be signed."""
    _fail(monkeypatch, mutation, error, 99)
    assert place.open() == 2
    assert error["message"] in (said := place.printed().err)
    assert "run the command again later" in said
    assert (place.tip(BRANCH), place.twin.api.pulls) == ("", [])
    assert not any("receive-pack" in request.path + request.query for request in place.twin.requests)


@pytest.mark.parametrize(
    "error",
    [
        {"type": "UNPROCESSABLE", "message": "A path was requested that is malformed"},
        {"message": "Field 'x' doesn't exist", "extensions": {"code": "undefinedField"}},
    ],
    ids=["unprocessable", "undefined"],
)
def test_what_the_api_will_never_take(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: dict[str, Any]
) -> None:
    """A refusal that would come again leaves the commit to git, and is the reason in the note."""
    _fail(monkeypatch, "createCommitOnBranch", error, 99)
    assert place.open() == 0
    _check_branch(place)
    assert f"the API did not take it: POST {place.twin.url}/api/graphql: {error['message']}" in (
        place.printed().err
    )


@pytest.mark.exam
@pytest.mark.usefixtures("bot")
def test_files_that_the_api_refuses(place: Place) -> None:
    """With --commit-with api the refusal is told, and git is not asked; else git pushes them."""
    place.twin.faults = [Fault("POST", "/git/trees", status=422, message="too much", times=2)]
    assert place.open(None, "--commit-with", "api") == 2
    assert "status 422: too much" in place.printed().err
    assert place.tip(BRANCH) == ""
    assert place.open() == 0
    _check_branch(place)
    assert "note: the commit is not signed: the API did not take it: " in place.printed().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--commit-with", "push"), "--commit-with push was given"),
        (("--author", "Cgins <cgins@team.example>"), "--author was given"),
    ],
)
def test_git_pushes_what_is_asked_for(place: Place, options: tuple[str, ...], why: str) -> None:
    """The API names no author of ours; the note says why nobody signed."""
    assert place.open(None, *options) == 0
    _check_branch(place)
    assert f"note: the commit is not signed: {why}" in place.printed().err
    who = "Cgins" if "--author" in options else "pytest-cgins[bot]"
    assert git(place.bare, "log", "-1", "--format=%an", BRANCH) == who


@pytest.mark.exam
@pytest.mark.usefixtures("bot")
def test_a_tree_that_is_another(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What GitHub makes of the files must be what was checked; else git pushes what was."""
    real = Rest.create_tree

    def other(self: Rest, base: str, entries: list[dict[str, str]]) -> str:
        return real(self, base, [{**one, "mode": "100755"} for one in entries])

    monkeypatch.setattr(Rest, "create_tree", other)
    assert place.open() == 0
    _check_branch(place)
    assert git(place.bare, "ls-tree", BRANCH, SOURCE).startswith("100644 ")
    assert "was checked" in place.printed().err


@pytest.mark.exam
@pytest.mark.parametrize("token", [twins.BOT, twins.WRITER])
def test_a_protected_branch(place: Place, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rules keep the bot from its branch it says so, and makes no pull request."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    place.twin.api.protected = [BRANCH]
    assert place.open() == 2
    assert "protected" in place.printed().err
    assert place.tip(BRANCH) == place.tip(STAGING) == ""
    assert place.twin.api.pulls == []


@pytest.mark.exam
@pytest.mark.parametrize("how", ["bot", "person", "push"])
def test_a_person_commits_in_between(place: Place, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came after the look at the branch is not overwritten, whichever way the commit goes."""
    place.open(place.propose(), *(["--commit-with", "push"] if how == "push" else []))
    monkeypatch.setenv("GITHUB_TOKEN", twins.BOT if how == "bot" else twins.WRITER)
    place.stand_on_branch("--allow-empty", "-m", "Mine")
    mine = place.push("mine")
    last = {"bot": "updateRefs", "person": "createCommitOnBranch", "push": "git-receive-pack"}[how]

    def late(_: int, request: Request, when: str) -> None:
        text = f"{request.path}{request.query}{request.body}"
        if when == "before" and last in text and place.tip(BRANCH) != mine:
            git(place.bare, "update-ref", f"refs/heads/{BRANCH}", mine)

    place.twin.hook = late
    options = ["--commit-with", "push"] if how == "push" else []
    assert place.open(place.better(), *options) == 1
    assert place.tip(BRANCH) == mine
    assert place.tip(STAGING) == ""
    assert "1 commit that is not the bot's" in place.printed().out


@pytest.mark.exam
def test_why_a_commit_that_is_there_is_not_signed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the API made is not called one that git pushed, and one that git pushed is."""
    monkeypatch.setattr(twin_graphql, "SIGNATURE", "")
    folder = place.propose()
    assert place.open(folder) == 0
    assert "the server signs no commits of this token" in place.printed().err
    assert place.open(folder) == 0
    output = place.printed().err
    assert "the commit is not signed: GitHub says of it: unsigned" in output
    other = place.better()
    assert place.open(other, "--commit-with", "push") == 0
    place.printed()
    assert place.open(other) == 0
    assert "the commit is not signed: it was pushed with git" in place.printed().err
