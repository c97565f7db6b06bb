"""Labels, reviewers and assignees: from cgins.yaml of the base branch, once, and not against a person's will."""

from __future__ import annotations

import pytest

from tests.pull_request.conftest import CONFIG, Place, commit
from tests.pull_request.twin import Fault

WANTED = """\
pull_request:
  labels: [cgins, speed]
  reviewers: [ada, cgins-tester]
  team_reviewers: [kernels]
  assignees: [ada]
"""


@pytest.fixture
def asking(place: Place) -> Place:
    """A base branch that asks for people, whom the server knows."""
    commit(place.other, {"cgins.yaml": CONFIG + WANTED})
    place.twin.api.collaborators = ["ada", "bea"]
    place.twin.api.teams = ["kernels"]
    return place


def _given(place: Place) -> tuple[list[str], list[str], list[str], list[str]]:
    [pull] = place.twin.api.pulls
    return pull.labels, pull.reviewers, pull.teams, pull.assignees


def _posts(place: Place) -> list[str]:
    return [
        one.path.rpartition("/")[2]
        for one in place.rest_calls("POST")
        if "/issues/" in one.path or "reviewers" in one.path
    ]


def test_all_are_given(asking: Place) -> None:
    """The author of the pull request is not asked for a review: GitHub would refuse all of them."""
    assert asking.open() == 0
    assert _given(asking) == (["cgins", "speed"], ["ada"], ["kernels"], ["ada"])
    assert "note:" not in asking.printed().err


def test_the_clones_file_asks_for_nothing(place: Place) -> None:
    """Only what is on the base branch counts."""
    (place.clone / "cgins.yaml").write_text(CONFIG + WANTED)
    assert place.open() == 0
    assert _given(place) == ([], [], [], [])


@pytest.mark.exam
def test_once(asking: Place) -> None:
    """A second run asks nobody again."""
    folder = asking.propose()
    asking.open(folder)
    before = _posts(asking)
    asking.open(folder)
    assert _posts(asking) == before


@pytest.mark.exam
def test_what_was_taken_away_stays_away(asking: Place) -> None:
    """A person removed a label, an assignee, a reviewer and a team: another proposal does not bring them back."""
    asking.open()
    api, [pull] = asking.twin.api, asking.twin.api.pulls
    api.unlabel(pull, "speed", "bea")
    api.unassign(pull, "ada", "bea")
    api.unrequest(pull, "ada", "bea")
    api.unrequest(pull, "kernels", "bea")
    assert asking.open(asking.better()) == 0
    assert _given(asking) == (["cgins"], [], [], [])


@pytest.mark.exam
def test_a_run_that_was_ended_before(asking: Place) -> None:
    """The pull request is there without anything: the next run gives it."""
    folder = asking.propose()
    commit(asking.other, {"cgins.yaml": CONFIG}, message="Nobody")
    asking.open(folder)
    commit(asking.other, {"cgins.yaml": CONFIG + WANTED}, message="All")
    assert asking.open(folder) == 0
    assert _given(asking) == (["cgins", "speed"], ["ada"], ["kernels"], ["ada"])


def test_strangers_spoil_nothing(asking: Place) -> None:
    """Whom GitHub does not know is named in a note; the others are asked."""
    asking.twin.api.collaborators = ["bea"]
    wanted = WANTED.replace("[ada, cgins-tester]", "[ada, bea]")
    commit(asking.other, {"cgins.yaml": CONFIG + wanted})
    assert asking.open() == 0
    assert _given(asking) == (["cgins", "speed"], ["bea"], ["kernels"], [])
    output = asking.printed().err
    assert "note: ada cannot be assigned here: correct assignees in cgins.yaml" in output
    assert "note: the reviewers ada were not taken: " in output


@pytest.mark.exam
def test_ready_by_the_base_branch(place: Place) -> None:
    """draft: false opens it ready for review, and --draft is stronger."""
    commit(place.other, {"cgins.yaml": CONFIG + "pull_request:\n  draft: false\n"})
    folder = place.propose()
    assert place.open(folder, "--draft") == 0
    place.twin.api.set_state(place.twin.api.pulls[0], "closed")
    assert place.open(place.better()) == 0
    assert [one.draft for one in place.twin.api.pulls] == [True, False]


@pytest.mark.exam
def test_events_that_cannot_be_read(asking: Place) -> None:
    """A new pull request is given all without them; what is asked for later may have been taken away: a note says so."""
    asking.twin.faults = [Fault(path="/events", status=404, times=99)]
    folder = asking.propose()
    assert asking.open(folder) == 0
    assert _given(asking) == (["cgins", "speed"], ["ada"], ["kernels"], ["ada"])
    assert "what was taken away" not in asking.printed().err
    commit(asking.other, {"cgins.yaml": CONFIG + WANTED.replace("speed", "later")})
    assert asking.open(folder) == 0
    assert _given(asking)[0] == ["cgins", "speed"]
    assert "note: what was taken away cannot be known, and later were not taken: GET " in asking.printed().err
