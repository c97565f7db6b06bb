"""What the gate's comment says of the proposal that a pull request carries, on events as GitHub sends them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.core.verdict import Status
from pytest_cgins.pull_request import post_comment
from pytest_cgins.report import document
from tests.action import events
from tests.evaluations import make_evaluation
from tests.pull_request.conftest import BRANCH, SOURCE, Place, commit, git
from tests.pull_request.twin import Fault
from tests.pull_request.twin_api import Pull
from tests.pull_request.twin_state import Minted
from tests.regenerate import proposals

CARRIES = "By its commit this pull request carries the proposal <code>run-1/scale-cpu-cpp</code> as it was made, of <code>20"
CHANGED = "This branch is the bot's, and people have committed to it"
MINE = "int scale() { return 4; }\n"
Say = Callable[..., str]


@pytest.fixture
def said(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Opens the bot's pull request; then runs `cgins comment` on an event, and gives back the one comment's text."""
    monkeypatch.setenv("GITHUB_SERVER_URL", place.twin.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/kernels")
    assert place.open() == 0
    place.twin.api.login = post_comment.AUTHOR
    evaluation = make_evaluation(Status.INCORRECT, message="wrong " * 40_000)
    document.write(proposals.accepted(evaluation), tmp_path / "report.json")

    def say(event: dict[str, Any], found: str = "") -> str:
        (tmp_path / "event.json").write_text(json.dumps(event))
        options = [found or str(tmp_path / "report.json"), "--event", str(tmp_path / "event.json")]
        assert main(["comment", *options]) == 0
        [one] = place.twin.api.comments
        assert len(one.body) <= post_comment.LIMIT_CHARACTERS
        assert one.body.endswith(f"<sub>{place.tip(place.twin.api.pull(one.number).head)}</sub>\n")
        return one.body

    return say


def _run(place: Place, branch: str = BRANCH, *, fork: bool = False) -> dict[str, Any]:
    """`workflow_run` for a pull request; GitHub leaves `pull_requests` empty for a fork, and so it is for all here."""
    payload = copy.deepcopy(events.event("workflow_run").payload)
    payload["workflow_run"] |= {
        "event": "pull_request", "head_branch": branch, "head_sha": place.tip(branch), "pull_requests": []
    }  # fmt: skip
    head = payload["workflow_run"]["head_repository"]
    head["owner"]["login"] = "stranger" if fork else "octo"
    head["id"] += fork
    return payload


def _pull(place: Place, branch: str = BRANCH, *, fork: bool = False) -> dict[str, Any]:
    """`pull_request` for the last one that the twin has."""
    payload = copy.deepcopy(events.event("fork" if fork else "pull_request").payload)
    payload["number"] = payload["pull_request"]["number"] = place.twin.api.pulls[-1].number
    payload["pull_request"]["head"] |= {"ref": branch, "sha": place.tip(branch)}
    return payload


EVENTS = pytest.mark.parametrize("event", [_run, _pull], ids=["workflow_run", "pull_request"])


# ---- what is said


@EVENTS
def test_the_proposal_is_named(place: Place, said: Say, event: Callable[..., dict[str, Any]]) -> None:
    """Below the verdicts, however long they are, with the time of its making."""
    body = said(event(place))
    about = json.loads((place.proposals / "one/proposal.json").read_text())
    made = about["created_at"].replace("+00:00", "Z")
    assert CARRIES in body
    assert f"of <code>{made}</code>. What its own gate measured then is in the description" in body
    assert CHANGED not in body
    assert body.index("1 failed") < body.index(CARRIES)


@EVENTS
def test_a_person_has_committed(place: Place, said: Say, event: Callable[..., dict[str, Any]]) -> None:
    """What the description tells was not measured on this: no proposal is named any more, and the comment is rewritten."""
    assert CARRIES in said(event(place))
    place.stand_on_branch()
    commit(place.other, {SOURCE: MINE}, branch=BRANCH)
    body = said(event(place))
    assert CHANGED in body
    assert "run-1" not in body


@pytest.mark.parametrize("how", ["amended", "merged", "merged in name", "rebased"])
def test_trailers_that_stayed(place: Place, said: Say, how: str) -> None:
    """A commit that still has the bot's trailers, and other files or parents than they say, is a person's."""
    commit(place.other, {"README.md": "words"})
    place.stand_on_branch()
    if how == "amended":
        (place.other / SOURCE).write_text(MINE)
        git(place.other, "commit", "--quiet", "--all", "--amend", "--no-edit")
    elif how.startswith("merged"):
        trailers = git(place.other, "log", "-1", "--format=%B", "HEAD")
        strategy = "ours" if how.endswith("name") else "ort"
        git(place.other, "merge", "--quiet", "-s", strategy, "-m", trailers, "origin/main")
    else:
        git(place.other, "rebase", "--quiet", "origin/main")
    place.push()
    assert "Cgins-Proposal: run-1/scale-cpu-cpp" in git(place.bare, "log", "-1", "--format=%B", BRANCH)
    assert CHANGED in said(_run(place))


def test_a_run_without_a_report(place: Place, said: Say) -> None:
    """What is withdrawn is the verdicts; which proposal it is stays."""
    said(_run(place))
    body = said(_run(place), "--no-report")
    assert "## cgins: no report" in body
    assert CARRIES in body


def test_words_of_who_may_push_stay_words(place: Place, said: Say) -> None:
    """A commit with trailers that fit it can name any proposal: nothing in it is more than text."""
    place.stand_on_branch()
    tree, parent = (git(place.other, "rev-parse", one) for one in ("HEAD^{tree}", "HEAD^"))
    bad = "</code></p><!--cgins:comment:gpu-->@octo/all#1<img/src=x>[x](javascript:1)"
    words = (
        "Repair scale (cpp on cpu)\n\nFound by a model, and accepted by the gate.\n\n"
        f"Cgins-Proposal: {bad}{'x' * 5000}\nCgins-Made: {bad}\nCgins-Base: {parent}\nCgins-Tree: {tree}"
    )
    made = git(place.other, "commit-tree", tree, "-p", parent, "-m", words)
    git(place.other, "checkout", "--quiet", made)
    place.push()
    body = said(_run(place))
    assert "&lt;/code&gt;" in body
    assert body.count("<!--") == 1
    assert not any(one in body for one in ("@octo", " #1", "<img", "x" * 1000))


# ---- what is not said


@EVENTS
def test_a_fork_with_the_same_branch(place: Place, said: Say, event: Callable[..., dict[str, Any]]) -> None:
    """Anybody can have a branch of that name, with the bot's own commit: nothing is said of it."""
    place.twin.api.pulls.append(Pull(2, "t", "", BRANCH, "main", False, head_owner="stranger"))
    body = said(event(place, fork=True))
    assert place.twin.api.comments[0].number == 2
    assert "proposal" not in body
    assert CHANGED not in body


@EVENTS
def test_a_plain_pull_request(place: Place, said: Say, event: Callable[..., dict[str, Any]]) -> None:
    """A branch of people's has no proposal, though its commit has the trailers; its commits are not asked for."""
    git(place.bare, "branch", "work", BRANCH)
    place.twin.api.pulls.append(Pull(2, "t", "<!-- cgins:pr:scale-cpu-cpp -->", "work", "main", False))
    place.twin.requests.clear()
    body = said(event(place, "work"))
    assert place.twin.api.comments[0].number == 2
    assert "proposal" not in body
    assert not any("/git/commits" in request.path for request in place.twin.requests)


@pytest.mark.parametrize(
    "branch", ["cgins/repair/a/b", "cgins/other/a", "xcgins/repair/a", "cgins/staging/a"]
)
def test_branches_that_are_not_the_bots(place: Place, said: Say, branch: str) -> None:
    """Only the names that the bot gives are its own."""
    git(place.bare, "branch", branch, BRANCH)
    place.twin.api.pulls.append(Pull(2, "t", "", branch, "main", False))
    assert "proposal" not in said(_run(place, branch))


def test_a_fork_that_is_gone(place: Place, said: Say) -> None:
    """GitHub shows no repository then, and nothing is said."""
    event = _pull(place)
    event["pull_request"]["head"]["repo"] = None
    assert "proposal" not in said(event)


@EVENTS
def test_an_event_without_a_repository(place: Place, said: Say, event: Callable[..., dict[str, Any]]) -> None:
    """Where the event does not say which repository it is of, a fork's branch must not pass for its own."""
    payload = event(place)
    del payload["repository"]
    head = payload.get("workflow_run", {}).get("head_repository") or payload["pull_request"]["head"]["repo"]
    del head["id"]
    assert "proposal" not in said(payload)


# ---- trouble


@pytest.mark.exam
def test_trouble_with_the_commit(place: Place, said: Say) -> None:
    """A server in trouble is asked again; if it stays so nothing is written rather than something wrong."""
    event = _run(place)
    place.twin.faults = [Fault("GET", "/git/commits", status=502, times=2)]
    assert CARRIES in said(event)
    before = place.twin.api.comments[0].edits
    place.twin.faults = [Fault("GET", "/git/commits", status=502, times=99)]
    with pytest.raises(AssertionError):
        said(event)
    assert "status 502" in place.printed().err
    assert place.twin.api.comments[0].edits == before


@pytest.mark.exam
def test_a_token_that_may_only_comment(place: Place, said: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pull-requests: write alone, which is what the command asks for, the verdicts are written."""
    place.twin.api.minted["only-comments"] = Minted({"metadata": "read", "pull_requests": "write"}, 1e12)
    monkeypatch.setenv("GITHUB_TOKEN", "only-comments")
    assert "1 failed" in said(_run(place))


@pytest.mark.exam
def test_the_bots_words_are_of_its_commit(place: Place, said: Say) -> None:
    """Another proposal on the same branch is named by the next run."""
    said(_run(place))
    place.twin.api.login = "cgins-tester"
    assert place.open(place.propose({SOURCE: MINE}, name="two", run_id="run-2")) == 0
    place.twin.api.login = post_comment.AUTHOR
    body = said(_run(place))
    assert "<code>run-2/scale-cpu-cpp</code> as it was made" in body
    assert "run-1" not in body
