"""A run that is resumed does with its proposals what it was begun with."""

from __future__ import annotations

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.regenerate.journal.journal import Journal
from tests.pull_request.conftest import BRANCH, FIXED, SOURCE, Place, git
from tests.regenerate import journals, proposals


@pytest.fixture
def accepted(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A server that is known as one of GitHub's."""
    monkeypatch.setenv("GITHUB_SERVER_URL", place.twin.url)
    return place


def _run(place: Place, choice: str) -> Journal:
    """A run that accepted a kernel, and was ended before it opened anything."""
    target = journals.target("scale")
    run = journals.journal(place.clone / "cgins.yaml", target, pull_requests=choice)
    journals.settle(run, target, "accepted", {SOURCE: FIXED})
    run.proposal(target).rmdir()
    place.propose().rename(run.proposal(target))
    measured_on = git(place.clone, "rev-parse", "HEAD")
    proposals.forge(run.proposal(target), lambda data: data.update(base_commit=measured_on))
    return run


@pytest.mark.exam
def test_a_resumed_run_opens_its_pull_requests(accepted: Place) -> None:
    """With --cgins-pr=auto at its begin the proposal becomes a draft, once, however often the run is resumed."""
    _run(accepted, "auto")
    assert main(["runs", "resume"]) == 0
    [pull] = accepted.twin.api.pulls
    assert (pull.head, pull.draft) == (BRANCH, True)
    assert f"cgins: opened #1 {accepted.twin.url}/octo/kernels/pull/1: " in accepted.printed().err
    assert main(["runs", "resume"]) == 0
    assert len(accepted.twin.api.pulls) == 1
    assert "cgins: unchanged: #1 " in accepted.printed().err


def test_a_run_without_pull_requests_opens_none(accepted: Place) -> None:
    """With off nothing is asked of the server, though there is a token."""
    _run(accepted, "off")
    assert main(["runs", "resume"]) == 0
    assert accepted.twin.requests == []
    assert "pull request" not in accepted.printed().err


def test_why_a_resumed_run_opens_none(accepted: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a token the reason is said, and the run's exit code stays."""
    monkeypatch.delenv("GITHUB_TOKEN")
    _run(accepted, "draft")
    assert main(["runs", "resume"]) == 0
    output = accepted.printed().err
    assert "cgins: no pull request: " in output
    assert "(--cgins-pr=draft was given)" in output
