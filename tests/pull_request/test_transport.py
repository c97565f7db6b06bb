"""Requests on bad days, against the twin: what is sent again, how long is waited, and what is said at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import transport as transports
from pytest_cgins.pull_request.transport import Transport
from tests.pull_request import twin as twins
from tests.pull_request.conftest import Place
from tests.pull_request.twin import API, WRITER, Fault
from tests.pull_request.twin_api import Comment, Pull

REPOSITORY = "/repos/octo/kernels"
COMMENTS = f"{REPOSITORY}/issues/1/comments"
SECONDARY = "You have exceeded a secondary rate limit"


@pytest.fixture
def transport(place: Place) -> Iterator[Transport]:
    """A way to the twin."""
    with closing(Transport(place.twin.url + API, WRITER)) as made:
        yield made


# ---- trouble


def test_trouble_of_the_server_is_waited_out(place: Place, transport: Transport, waits: list[float]) -> None:
    """Three answers of 5xx, and then the right one."""
    place.twin.faults = [Fault(status=status) for status in (500, 502, 504)]
    assert transport.request("GET", REPOSITORY)["default_branch"] == "main"
    assert waits == [1.0, 2.0, 4.0]


def test_trouble_that_stays_is_told(place: Place, transport: Transport, waits: list[float]) -> None:
    """After four tries the error names the status."""
    place.twin.faults = [Fault(status=503, times=9, message="No server is available")]
    with pytest.raises(GitHubError, match="status 503: No server is available") as caught:
        transport.request("GET", REPOSITORY)
    assert caught.value.status == 503
    assert "run the command again later" in caught.value.remedy
    assert len(place.twin.requests) == transports.TRIES
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("kind", ["drop", "lost", "cut"])
def test_an_answer_that_does_not_come_whole(
    place: Place, transport: Transport, waits: list[float], kind: Literal["drop", "lost", "cut"]
) -> None:
    """A connection that ends before the answer does is made again."""
    place.twin.faults = [Fault(kind=kind, times=2)]
    assert transport.request("GET", REPOSITORY)["default_branch"] == "main"
    assert waits == [1.0, 2.0]


def test_a_server_that_answers_nothing(place: Place, transport: Transport, waits: list[float]) -> None:
    """When no try is left the error names the host and what the network said."""
    place.twin.faults = [Fault(kind="drop", times=9)]
    with pytest.raises(GitHubError, match=r"GitHub cannot be reached at 127\.0\.0\.1: \S+") as caught:
        transport.request("GET", REPOSITORY)
    assert caught.value.status == 0
    assert "proxies" in caught.value.remedy
    assert len(place.twin.requests) == transports.TRIES


def test_nobody_is_there(waits: list[float]) -> None:
    """No connection: tried again, and then told with the host."""
    with (
        closing(Transport("http://127.0.0.1:9/api/v3", WRITER)) as transport,
        pytest.raises(GitHubError, match=r"GitHub cannot be reached at 127\.0\.0\.1"),
    ):
        transport.request("GET", REPOSITORY)
    assert len(waits) == transports.TRIES - 1


def test_a_page_that_is_no_answer(place: Place, transport: Transport) -> None:
    """A proxy's login page with status 200."""
    place.twin.faults = [Fault(kind="html")]
    with pytest.raises(GitHubError, match="the answer is not JSON") as caught:
        transport.request("GET", REPOSITORY)
    assert "GITHUB_API_URL" in caught.value.remedy


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("ALL_PROXY", "no://ada:hunter2@proxy.example"),
        ("HTTP_PROXY", "http://ada:hunter2@proxy.example:none"),
        ("HTTPS_PROXY", "http://ada:hunter2/3@proxy.example"),
        ("", "https://api.example:none"),
    ],
)
def test_an_address_that_is_wrong(monkeypatch: pytest.MonkeyPatch, variable: str, address: str) -> None:
    """A proxy's, or the API's: what to look at is said, and no password."""
    if variable:
        monkeypatch.setenv(variable, address)
    with pytest.raises(GitHubError, match=r"the address of the API, or that of a proxy") as caught:
        Transport("https://api.example" if variable else address, WRITER)
    assert "HTTPS_PROXY" in caught.value.remedy
    assert "hunter" not in str(caught.value)
    assert caught.value.__suppress_context__


# ---- once


@pytest.mark.parametrize(
    "fault",
    [Fault(kind="lost"), Fault(kind="drop"), Fault(kind="cut"), Fault(status=500), Fault(status=502)],
    ids=lambda fault: fault.kind + str(fault.status),
)
def test_what_must_not_be_done_twice(
    place: Place, transport: Transport, waits: list[float], fault: Fault
) -> None:
    """Sent once, it is not sent again where it may have been done although no answer came."""
    place.twin.faults = [fault]
    with pytest.raises(GitHubError):
        transport.request("POST", COMMENTS, content={"body": "words"}, once=True)
    assert [request.method for request in place.twin.requests] == ["POST"]
    assert waits == []


@pytest.mark.exam
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=403, headers={"Retry-After": "7"}, message=SECONDARY),
        Fault(status=429, headers={"Retry-After": "7"}),
    ],
    ids=lambda fault: str(fault.status),
)
def test_what_was_certainly_not_done(
    place: Place, transport: Transport, waits: list[float], fault: Fault
) -> None:
    """A request that is sent once is sent again where the server said that it was asked too much."""
    place.open()
    place.twin.restart()
    place.twin.faults = [fault]
    transport.request("POST", COMMENTS, content={"body": "words"}, once=True)
    assert [one.body for one in place.twin.api.comments] == ["words"]
    assert 7.0 in waits


# ---- limits


def test_a_secondary_limit_is_waited_for(place: Place, transport: Transport, waits: list[float]) -> None:
    """Retry-After is heeded, on 403 and on 429; without it a minute is waited, as GitHub asks for."""
    place.twin.faults = [
        Fault(status=403, headers={"Retry-After": "7"}, message=SECONDARY),
        Fault(status=429, headers={"Retry-After": "9"}),
        Fault(status=403, message=SECONDARY),
    ]
    transport.request("GET", REPOSITORY)
    assert waits == [7.0, 9.0, 60.0]


@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_that_does_not_say_how_long(
    place: Place, transport: Transport, waits: list[float], status: int
) -> None:
    """A minute once, whatever else went wrong before; that the next would be two minutes is an error at once."""
    limit = Fault(status=status, times=9, message=SECONDARY)
    place.twin.faults = [Fault(status=502, times=2), limit]
    with pytest.raises(GitHubError, match=f"status {status}: {SECONDARY}") as caught:
        transport.request("GET", REPOSITORY)
    assert waits == [1.0, 2.0, 60.0]
    assert "run the command again later" in caught.value.remedy


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 60.0, 60.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20"}, 17.0, 20.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-20"}, 1.0, 1.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, 60.0, 60.0),
        ({"X-RateLimit-Remaining": "0"}, 60.0, 60.0),
    ],
)
def test_how_long_a_limit_is_waited_for(
    place: Place, transport: Transport, waits: list[float], headers: dict[str, str], low: float, high: float
) -> None:
    """Until the reset that the server names, at least a second; a minute where it names none."""
    reset = headers.get("X-RateLimit-Reset", "")
    if reset.removeprefix("-").isdecimal():
        headers = {**headers, "X-RateLimit-Reset": str(int(time.time()) + int(reset))}
    place.twin.faults = [Fault(status=403, headers=headers, message="API rate limit exceeded")]
    transport.request("GET", REPOSITORY)
    [waited] = waits
    assert low <= waited <= high


@pytest.mark.parametrize("status", [403, 429, 503])
@pytest.mark.parametrize("reset", [False, True])
def test_a_long_limit_is_not(
    place: Place, transport: Transport, waits: list[float], status: int, reset: bool
) -> None:
    """A pause of an hour is an error at once, with what to do."""
    later = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3600)}
    headers = later if reset else {"Retry-After": "3600"}
    place.twin.faults = [Fault(status=status, headers=headers, message="API rate limit exceeded")]
    with pytest.raises(GitHubError, match=f"status {status}: API rate limit exceeded") as caught:
        transport.request("GET", REPOSITORY)
    assert waits == []
    assert "later" in caught.value.remedy


@pytest.mark.parametrize("name", ["kernels", "graphql-kernels"])
def test_words_of_others_are_no_limit(settled: None, template: Path, name: str) -> None:
    """What anybody wrote about limits, in an answer with status 200, is an answer, whatever the repository's name."""
    said = ['{"errors": [{"type": "RATE_LIMITED"}]}', "API rate limit exceeded"]
    comments = [Comment(number, 1, "ada", body) for number, body in enumerate(said, 1)]
    pulls = [Pull(1, "t", "", "work", "main", False)]
    with (
        twins.serve(template / "bare.git", name=name, pulls=pulls, comments=comments) as twin,
        closing(Transport(twin.url + API, WRITER)) as transport,
    ):
        found = transport.request("GET", f"/repos/octo/{name}/issues/1/comments")
        assert [one["body"] for one in found] == said
        assert len(twin.requests) == 1


# ---- refusals


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (301, "Moved Permanently", "renamed"),
        (401, "Bad credentials", "token"),
        (403, "Resource not accessible by integration", "pull-requests: write"),
        (403, "GitHub Actions is not permitted to create or approve pull requests.", "Workflow permissions"),
        (404, "Not Found", "OWNER/NAME"),
        (409, "Git Repository is empty.", "empty"),
        (422, "Draft pull requests are not supported in this repository.", "--ready"),
    ],
)
def test_refusals_come_with_a_remedy(
    place: Place, transport: Transport, waits: list[float], status: int, message: str, said: str
) -> None:
    """Asked once, and told in GitHub's words and with what to do; the token is not in it, whoever repeats it."""
    place.twin.faults = [Fault(status=status, message=f"{message} {WRITER}\n\x1b[31m")]
    with pytest.raises(GitHubError) as caught:
        transport.request("GET", REPOSITORY)
    assert (caught.value.status, waits) == (status, [])
    assert said in caught.value.remedy
    assert caught.value.what == f"GET {REPOSITORY}: status {status}: {message} ***  [31m"


def test_details_of_a_refusal_are_told(place: Place, transport: Transport) -> None:
    """Which field is wrong, or what is said of it, stands in `errors`."""
    with pytest.raises(GitHubError, match="Validation Failed; base invalid"):
        transport.request(
            "POST", f"{REPOSITORY}/pulls", content={"title": "t", "head": "main", "base": "gone"}
        )
    with pytest.raises(GitHubError, match="Validation Failed; No commits between main and main"):
        transport.request(
            "POST", f"{REPOSITORY}/pulls", content={"title": "t", "head": "main", "base": "main"}
        )


def test_long_words_are_cut(place: Place, transport: Transport) -> None:
    """A server may say much: the message stays readable."""
    place.twin.faults = [Fault(status=404, message="x" * 100_000)]
    with pytest.raises(GitHubError) as caught:
        transport.request("GET", REPOSITORY)
    assert len(caught.value.what) < 1000


WORKFLOW = "refusing to allow a %s to create or update workflow `.github/workflows/ci.yml` without `%s`"


@pytest.mark.parametrize(
    "message",
    [
        WORKFLOW % ("GitHub App", "workflows` permission"),
        WORKFLOW % ("Personal Access Token", "workflow` scope"),
        WORKFLOW % ("OAuth App", "workflow` scope"),
    ],
)
@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_refusal_for_a_workflows_file_names_that_permission(
    place: Place, transport: Transport, status: int, message: str
) -> None:
    """Whatever its status: no other permission is asked for."""
    place.twin.faults = [Fault(status=status, message=message)]
    with pytest.raises(GitHubError) as caught:
        transport.request("PATCH", f"{REPOSITORY}/git/refs/heads/x", content={"sha": "0" * 40})
    assert "needs workflows: write" in caught.value.remedy
    assert "contents" not in caught.value.remedy


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_renamed_repository(place: Place, transport: Transport, status: int) -> None:
    """GitHub sends requests on to its new address, by GET and by others: what to set is told."""
    there = f"{place.twin.url}{API}/repositories/7/pulls"
    place.twin.faults = [Fault(status=status, headers={"Location": f"{there}?token=x"}, message="Moved")]
    with pytest.raises(GitHubError) as caught:
        transport.request("POST", f"{REPOSITORY}/pulls", content={"title": "t", "head": "x", "base": "main"})
    assert caught.value.what.endswith(f"status {status}: Moved, to {there}")
    assert "renamed or moved" in caught.value.remedy
    assert len(place.twin.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_token_goes_nowhere_else(place: Place, transport: Transport, template: Path, status: int) -> None:
    """A redirect is an error, and is not followed to where it points."""
    with twins.serve(template / "bare.git") as elsewhere:
        place.twin.faults = [Fault(status=status, headers={"Location": f"{elsewhere.url}{API}/user"})]
        with pytest.raises(GitHubError, match=f"status {status}") as caught:
            transport.request("GET", REPOSITORY)
        assert caught.value.status == status
        assert "GITHUB_API_URL" in caught.value.remedy
        assert elsewhere.requests == []
