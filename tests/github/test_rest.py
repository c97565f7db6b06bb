"""The REST client on bad days, against the twin."""

from __future__ import annotations

import time

import pytest

from pytest_cgins.errors import GitHubError
from pytest_cgins.github import rest
from pytest_cgins.github.rest import Rest
from tests.github.conftest import Place
from tests.github.twin import API, WRITER, Fault


@pytest.fixture
def api(place: Place) -> Rest:
    """A client of the twin's repository."""
    return Rest(place.twin.url + API, WRITER, "octo/kernels")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, place: Place) -> list[float]:
    """How long the client would have waited, in seconds."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def test_trouble_of_the_server_is_waited_out(place: Place, api: Rest, waits: list[float]) -> None:
    """Three answers of 5xx, and then the right one."""
    place.twin.faults = [Fault("GET", "kernels", status=502, times=3)]
    assert api.repository()["default_branch"] == "main"
    assert waits == [1.0, 2.0, 4.0]


def test_trouble_that_stays_is_told(place: Place, api: Rest, waits: list[float]) -> None:
    """After four tries the error names the status."""
    place.twin.faults = [Fault("GET", "kernels", status=503, times=9, message="No server is available")]
    with pytest.raises(GitHubError, match="status 503: No server is available") as caught:
        api.repository()
    assert caught.value.status == 503
    assert "run the command again later" in caught.value.remedy
    assert len(place.rest_calls("GET")) == rest.TRIES


def test_a_secondary_limit_is_waited_for(place: Place, api: Rest, waits: list[float]) -> None:
    """Retry-After is heeded, on 403 and on 429."""
    place.twin.faults = [
        Fault(
            "GET",
            "kernels",
            status=403,
            headers={"Retry-After": "7"},
            message="You have exceeded a secondary rate limit",
        ),
        Fault("GET", "kernels", status=429, headers={"Retry-After": "9"}),
    ]
    api.repository()
    assert waits == [7.0, 9.0]


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "3600"}, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}]
)  # fmt: skip
def test_a_long_limit_is_not(place: Place, api: Rest, waits: list[float], headers: dict[str, str]) -> None:
    """A pause of an hour is an error at once, with what to do."""
    place.twin.faults = [
        Fault("GET", "kernels", status=403, headers=headers, message="API rate limit exceeded")
    ]
    with pytest.raises(GitHubError, match="API rate limit exceeded") as caught:
        api.repository()
    assert waits == []
    assert "later" in caught.value.remedy


@pytest.mark.parametrize(
    ("status", "said"), [(401, "token"), (403, "pull-requests: write"), (404, "OWNER/NAME"), (301, "renamed")]
)
def test_refusals_come_with_a_remedy(
    place: Place, api: Rest, waits: list[float], status: int, said: str
) -> None:
    """Asked once, and told what to do."""
    place.twin.faults = [Fault("GET", "kernels", status=status, message=f"No, {WRITER}")]
    with pytest.raises(GitHubError) as caught:
        api.repository()
    assert (caught.value.status, waits) == (status, [])
    assert said in caught.value.remedy
    assert str(caught.value).startswith(f"GET /repos/octo/kernels: status {status}: No, ***")


def test_a_page_that_is_no_answer(place: Place, api: Rest) -> None:
    """A proxy's login page with status 200."""
    place.twin.faults = [Fault("GET", "kernels", kind="html")]
    with pytest.raises(GitHubError, match="the answer is not JSON"):
        api.repository()


def test_nobody_is_there(waits: list[float]) -> None:
    """No connection: tried again, and then told with the host."""
    with pytest.raises(GitHubError, match=r"GitHub cannot be reached at 127\.0\.0\.1"):
        Rest("http://127.0.0.1:9/api/v3", WRITER, "octo/kernels").repository()
    assert len(waits) == rest.TRIES - 1


def test_tokens_are_read_from_the_environment_alone() -> None:
    """GITHUB_TOKEN before GH_TOKEN, or the variable that is named; what cannot be one is refused without being shown."""
    assert rest.token({"GITHUB_TOKEN": " a ", "GH_TOKEN": "b"}) == "a"
    assert rest.token({"GH_TOKEN": "b"}) == "b"
    assert rest.token({"GITHUB_TOKEN": "a", "MINE": "c"}, "MINE") == "c"
    with pytest.raises(GitHubError, match="there is no token: MINE is not set"):
        rest.token({"GITHUB_TOKEN": "a"}, "MINE")
    with pytest.raises(GitHubError) as caught:
        rest.token({"GH_TOKEN": "two words"})
    assert "two words" not in str(caught.value)
