"""The comment of a pull request, against the strict twin of GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.core.verdict import Status
from pytest_cgins.pull_request import post_comment
from pytest_cgins.report import document
from tests.evaluations import make_evaluation
from tests.pull_request.conftest import BROKEN, SOURCE, Place, commit
from tests.pull_request.twin import Fault
from tests.pull_request.twin_api import Comment, Pull
from tests.regenerate import proposals

MARKER = "<!-- cgins:comment:gate -->"
Write = Callable[..., int]


@pytest.fixture
def pull(place: Place) -> Pull:
    """An open pull request from a branch of a fork, which the twin serves; others are of other branches."""
    place.twin.api.login = post_comment.AUTHOR
    for number, (branch, owner) in enumerate((("other", ""), ("work", ""), ("work", "stranger")), 1):
        commit(place.other, {SOURCE: f"{BROKEN}// {number}\n"}, branch=branch)
        place.twin.api.pulls.append(Pull(number, "t", "", branch, "main", False, head_owner=owner))
    return place.twin.api.pulls[-1]


@pytest.fixture
def write(place: Place, pull: Pull, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Runs `cgins comment` on the event that ended a run of the fork's pull request."""
    monkeypatch.setenv("GITHUB_SERVER_URL", place.twin.remote.rpartition("/octo/")[0])
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/kernels")

    def write(*options: str, status: Status = Status.INCORRECT, message: str = "wrong", **run: Any) -> int:
        report = proposals.accepted(make_evaluation(status, message=message))
        document.write(report, tmp_path / "report.json")
        event = {
            "event": "pull_request",
            "head_sha": place.tip("work"),
            "head_branch": "work",
            "head_repository": {"owner": {"login": "stranger"}},
            "pull_requests": [],
        }
        (tmp_path / "event.json").write_text(json.dumps({"workflow_run": event | run}))
        return main(
            ["comment", str(tmp_path / "report.json"), "--event", str(tmp_path / "event.json"), *options]
        )

    return write


@pytest.mark.exam
def test_one_comment_is_written_and_rewritten(place: Place, write: Write, pull: Pull) -> None:
    """The first run writes it, a run that found the same leaves it, another one rewrites it."""
    comments = place.twin.api.comments
    assert write() == 0
    assert [(one.number, one.edits) for one in comments] == [(pull.number, 0)]
    assert comments[0].body.startswith(f"{MARKER}\n## cgins: 1 failed, 0 passed\n")
    assert comments[0].body.endswith(f"<sub>{place.tip('work')}</sub>\n")
    assert write() == 0
    assert [one.edits for one in comments] == [0]
    assert write(status=Status.PASSED) == 0
    assert [one.edits for one in comments] == [1]
    assert "1 passed" in comments[0].body
    assert write("--name", "gpu") == 0
    assert [one.body.partition("\n")[0] for one in comments] == [MARKER, "<!-- cgins:comment:gpu -->"]


@pytest.mark.exam
def test_run_without_a_report_withdraws_what_an_earlier_one_said(
    place: Place, write: Write, tmp_path: Path
) -> None:
    """A green comment of another commit must not stand; where there is none, none is written."""
    comments = place.twin.api.comments
    write("--dry-run")
    event = ["--event", str(tmp_path / "event.json")]
    assert main(["comment", "--no-report", *event]) == 0
    assert place.printed().out.splitlines()[-1] == "absent"
    assert comments == []
    assert write(status=Status.PASSED) == 0
    assert main(["comment", "--no-report", *event]) == 0
    (one,) = comments
    assert one.body.startswith(f"{MARKER}\n## cgins: no report\n")
    assert one.body.endswith(f"<sub>{place.tip('work')}</sub>\n")
    with pytest.raises(SystemExit):
        main(["comment", *event])


def test_own_comment_is_found_behind_a_hundred_others(place: Place, write: Write, pull: Pull) -> None:
    """All pages are read; a comment of somebody else with the marker in it is not touched."""
    api = place.twin.api
    api.comments += [Comment(number, pull.number, "ada", f"{MARKER}\nmine") for number in range(1, 151)]
    api.comments.append(Comment(151, pull.number, post_comment.AUTHOR, f"{MARKER}\nbefore"))
    assert write() == 0
    assert [one.id for one in api.comments if one.edits] == [151]
    assert len(api.comments) == 151


@pytest.mark.parametrize(
    "run",
    [
        {"head_sha": "0" * 40},
        {"event": "push"},
        {"head_branch": "gone"},
        {"head_repository": {"owner": {"login": "nobody"}}},
    ],
)
def test_nothing_is_written_where_the_run_is_not_the_pull_requests(
    place: Place, write: Write, run: dict[str, Any]
) -> None:
    """A run of an older commit, of a push, or of a branch without a pull request comments nowhere."""
    assert write(**run) == 0
    assert "nothing was written" in place.printed().out
    assert place.twin.api.comments == []


def test_nothing_is_written_where_two_pull_requests_have_one_head(
    place: Place, write: Write, pull: Pull
) -> None:
    """A branch that goes into two others: the event does not say whose run it was."""
    place.twin.api.pulls.append(Pull(9, "t", "", "work", "release", False, head_owner="stranger"))
    assert write() == 0
    assert "several open pull requests have" in place.printed().out
    assert place.twin.api.comments == []


@pytest.mark.parametrize("event", ["{}", "[]", "x", '{"workflow_run": {"event": "pull_request"}}'])
def test_other_events_are_refused(write: Write, place: Place, tmp_path: Path, event: str) -> None:
    """What names no pull request, or is not an event, is an error."""
    write("--dry-run")
    (tmp_path / "event.json").write_text(event)
    assert main(["comment", str(tmp_path / "report.json"), "--event", str(tmp_path / "event.json")]) == 2
    assert "event" in place.printed().err
    assert place.twin.api.comments == []


def test_hostile_words_stay_words(place: Place, write: Write) -> None:
    """Nothing that a report says ends the comment's own elements, mentions anybody or is a marker."""
    message = (
        "</code></table>\n\n# forged\n@octo/all <!-- cgins:comment:gpu --> [x](javascript:1) ![i](//evil)"
    )
    assert write(message=message) == 0
    (one,) = place.twin.api.comments
    lines = [line for line in one.body.splitlines() if "forged" in line or "octo/all" in line]
    assert lines
    assert all(line.startswith("<") for line in lines)
    assert one.body.count("<!--") == 1


@pytest.mark.exam
def test_trouble_is_retried_and_refusals_are_told(place: Place, write: Write) -> None:
    """A server error is tried again; a token that may not write is an error with the remedy."""
    place.twin.faults.append(Fault("POST", "/comments", status=502))
    assert write() == 0
    assert len(place.twin.api.comments) == 1
    place.twin.faults.append(
        Fault("PATCH", "/comments", status=403, message="Resource not accessible", times=9)
    )
    assert write(status=Status.PASSED) == 2
    assert "pull-requests: write" in place.printed().err


def test_damaged_report_comments_nothing(place: Place, write: Write, tmp_path: Path) -> None:
    """An artifact that is not a report is refused before GitHub is asked anything."""
    write("--dry-run")
    asked = len(place.twin.requests)
    (tmp_path / "report.json").write_text('{"number": 1, "version": 2}')
    assert main(["comment", str(tmp_path / "report.json"), "--event", str(tmp_path / "event.json")]) == 2
    assert len(place.twin.requests) == asked
    assert place.twin.api.comments == []


@pytest.mark.parametrize("name", ["", "a--b", "-->", "a b", "x" * 101])
def test_name_that_would_end_the_marker_is_refused(name: str) -> None:
    """Two dashes would end the comment that hides it."""
    with pytest.raises(post_comment.GitHubError, match="cannot name a comment"):
        post_comment.marker(name)
