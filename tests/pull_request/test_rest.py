"""What is read through the REST API, page after page; and the token that it is read with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import credentials
from pytest_cgins.pull_request.rest import PAGE, Rest
from pytest_cgins.pull_request.transport import Transport
from tests.pull_request.conftest import BRANCH, Place
from tests.pull_request.twin import API, WRITER, Fault
from tests.pull_request.twin_api import Comment, Pull
from tests.pull_request.twin_state import Event


@pytest.fixture
def api(place: Place) -> Iterator[Rest]:
    """The twin's repository."""
    with closing(Transport(place.twin.url + API, WRITER)) as transport:
        yield Rest(transport, "octo/kernels")


def _pages(place: Place) -> list[str]:
    return [request.query for request in place.twin.requests]


# ---- pages


@pytest.mark.parametrize(
    ("there", "asked"), [(0, 1), (1, 1), (PAGE - 1, 1), (PAGE, 2), (PAGE + 1, 2), (2 * PAGE + 1, 3)]
)
def test_all_comments_are_read(place: Place, api: Rest, there: int, asked: int) -> None:
    """Oldest first, and no more pages than there are; a full one may be the last."""
    place.twin.api.pulls = [Pull(1, "t", "", "work", "main", False)]
    place.twin.api.comments = [Comment(number, 1, "ada", "words") for number in range(1, there + 1)]
    assert [one["id"] for one in api.comments(1)] == list(range(1, there + 1))
    assert _pages(place) == [f"per_page={PAGE}&page={number}" for number in range(1, asked + 1)]


@pytest.mark.exam
def test_pulls_are_read_as_they_are_asked_for(place: Place, api: Rest) -> None:
    """Newest first; the second page is asked for only by who reads on."""
    place.twin.api.pulls = [
        Pull(number, "t", "", f"work-{number}", "main", False) for number in range(1, PAGE + 21)
    ]
    found = api.pulls()
    assert next(found)["number"] == PAGE + 20
    assert len(place.twin.requests) == 1
    assert [one["number"] for one in found] == list(range(PAGE + 19, 0, -1))
    assert _pages(place) == [f"state=open&per_page={PAGE}&page={number}" for number in (1, 2)]


def test_pulls_are_chosen_by_the_server(place: Place, api: Rest) -> None:
    """By the owner and the name of their head, by their base, and by their state."""
    place.twin.api.pulls = [
        Pull(1, "t", "", "work", "main", False),
        Pull(2, "t", "", "work", "release", False, state="closed"),
        Pull(3, "t", "", "work", "main", False, head_owner="stranger"),
        Pull(4, "t", "", "other", "main", False),
    ]

    def numbers(**chosen: str) -> list[int]:
        return [one["number"] for one in api.pulls(**chosen)]

    assert numbers() == [4, 3, 1]
    assert numbers(head="octo:work") == [1]
    assert numbers(head="octo:work", state="all") == [2, 1]
    assert numbers(state="closed") == [2]
    assert numbers(head="stranger:work", base="main") == [3]
    assert numbers(base="release") == []


def test_all_events_are_read(place: Place, api: Rest) -> None:
    """What was done to a pull request long ago is on the first page, and what was done now on the last."""
    place.twin.api.pulls = [Pull(1, "t", "", "work", "main", False)]
    place.twin.api.events = [Event(1, "labeled", "ada", f"label-{number}") for number in range(PAGE + 1)]
    assert [one["label"]["name"] for one in api.events(1)] == [
        f"label-{number}" for number in range(PAGE + 1)
    ]


def test_trouble_in_the_middle_of_a_list(place: Place, api: Rest) -> None:
    """A page that fails is asked for again, and none is read twice; one that stays away is an error, not an end."""
    place.twin.api.pulls = [Pull(1, "t", "", "work", "main", False)]
    place.twin.api.comments = [Comment(number, 1, "ada", "words") for number in range(1, PAGE + 2)]
    place.twin.faults = [Fault(path="&page=2", status=502)]
    assert len([one["id"] for one in api.comments(1)]) == PAGE + 1
    place.twin.faults = [Fault(path="&page=2", status=404)]
    with pytest.raises(GitHubError, match="status 404"):
        list(api.comments(1))


# ---- branches


def test_a_branch_has_a_tip_or_is_not_there(place: Place, api: Rest) -> None:
    """None for 404, also where a longer name begins so; all other refusals are errors."""
    assert api.branch("main") == place.tip("main")
    assert api.branch("mai") is None
    assert api.branch("main/more") is None
    place.twin.faults = [Fault(path="/git/ref/", status=403, message="no")]
    with pytest.raises(GitHubError, match="status 403: no"):
        api.branch("main")


@pytest.mark.parametrize("name", [BRANCH, "cgins/repair/a.b_c-d", "odd/ü#%20&x"])
def test_a_branch_is_made_moved_and_deleted(place: Place, api: Rest, name: str) -> None:
    """Slashes stay slashes, and all else in a name is escaped."""
    tip = place.tip("main")
    api.create_branch(name, tip)
    assert api.branch(name) == place.tip(name) == tip
    made = api.create_commit("words", place.twin.api.git("rev-parse", "main^{tree}"), tip)["sha"]
    api.move_branch(name, made)
    assert api.branch(name) == made
    api.delete_branch(name)
    assert api.branch(name) is None
    with pytest.raises(GitHubError, match="status 422"):
        api.delete_branch(name)


def test_a_label_is_escaped(place: Place, api: Rest) -> None:
    """A label's name is one part of a path, whatever is in it."""
    name = "cgins: a/b?#%2F ü"
    place.twin.api.pulls = [Pull(1, "t", "", "work", "main", False)]
    api.add_labels(1, [name, "kept"])
    api.remove_label(1, name)
    assert place.twin.requests[-1].path.rpartition("/labels/")[2] == quote(name, safe="")
    assert place.twin.api.pulls[0].labels == ["kept"]


# ---- whose token


@pytest.mark.parametrize(
    ("environment", "variable", "found"),
    [
        ({"GITHUB_TOKEN": " a\n", "GH_TOKEN": "b"}, "", "a"),
        ({"GH_TOKEN": "b"}, "", "b"),
        ({"GITHUB_TOKEN": " ", "GH_TOKEN": "b"}, "", "b"),
        ({"GITHUB_TOKEN": "a", "MINE": "c"}, "MINE", "c"),
    ],
)
def test_tokens_are_read_from_the_environment_alone(
    environment: dict[str, str], variable: str, found: str
) -> None:
    """GITHUB_TOKEN before GH_TOKEN, or the variable that is named; an empty one is none."""
    assert credentials.token(environment, variable) == found


def test_no_token() -> None:
    """Of a variable that is named, that one alone is looked at."""
    with pytest.raises(GitHubError, match="there is no token: MINE is not set"):
        credentials.token({"GITHUB_TOKEN": "a"}, "MINE")


@pytest.mark.parametrize("token", ["two words", "a\x00b", "tökén", "a\nb"])
def test_what_cannot_be_a_token_is_not_shown(token: str) -> None:
    """It is refused before it could become a header, and without being shown."""
    with pytest.raises(GitHubError) as caught:
        credentials.token({"GH_TOKEN": token})
    assert token not in str(caught.value)
