"""A GitHub App's own token: made for one repository and two permissions, taken back at the end, and never shown."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from jwt.algorithms import RSAAlgorithm

from pytest_cgins.app.cli import main
from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import app_token
from tests.pull_request import twin_app
from tests.pull_request.conftest import BRANCH, FIXED, Place
from tests.pull_request.twin import API, Fault, Request
from tests.pull_request.twin_state import Minted

VARIABLE = "CGINS_APP_PRIVATE_KEY"
APP = "4242"
PERMISSIONS = {"contents": "write", "pull_requests": "write"}
MINTS = "/app/installations/77/access_tokens"
REVOKES = "/installation/token"
INSTALL = "install the App in the repository, with contents: write and pull requests: write"


@pytest.fixture(scope="module")
def keys() -> tuple[str, str]:
    """A private key and its public half, PEM."""
    return twin_app.make_key()


@dataclass
class Installed:
    """A repository in which an App is installed, and what was said there."""

    place: Place
    key: str
    """The App's private key."""
    printed: str = ""
    """By all commands."""
    tokens: tuple[str, ...] = ()
    """That the App got, whether they are still good or not."""
    minted: tuple[Minted, ...] = ()
    """The same, as the twin knows them."""

    def run(self, *words: str) -> int:
        code = main([*words, "--app", APP])
        self._read()
        return code

    def open(self, *options: str) -> int:
        code = self.place.open(None, "--app", APP, *options)
        self._read()
        return code

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.place.twin.requests if request.path == API + path]

    def _read(self) -> None:
        output = self.place.printed()
        self.printed += output.out + output.err


@pytest.fixture
def app(place: Place, keys: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """An App with the key in its variable and no other token; at the end no key and no token was shown or sent."""
    place.twin.api.app_key = keys[1]
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.setenv(VARIABLE, keys[0])
    made = Installed(place, keys[0])

    def keep(_: int, __: Request, ___: str) -> None:
        made.tokens += tuple(one for one in place.twin.api.minted if one not in made.tokens)
        made.minted += tuple(one for one in place.twin.api.minted.values() if one not in made.minted)

    place.twin.hook = keep
    yield made
    made._read()
    _check_secrets(made)
    assert place.twin.api.minted == {}


def _check_secrets(app: Installed) -> None:
    """The key is nowhere, a signature goes only where it must, and no word of either is printed."""
    lines = [line for line in app.key.splitlines() if line and "-----" not in line]
    signed = [_bearer(one) for one in app.asked("/repos/octo/kernels/installation") + app.asked(MINTS)]
    for secret in (*lines, *signed, *app.tokens):
        assert secret not in app.printed
    for request in app.place.twin.requests:
        sent = _everything(request)
        assert not any(line in sent for line in lines)
        if request.path not in (f"{API}/repos/octo/kernels/installation", API + MINTS):
            assert not any(token in sent for token in signed)


def _everything(request: Request) -> str:
    """All of a request, with what git has in base64."""
    scheme, _, value = request.authorization.partition(" ")
    basic = base64.b64decode(value).decode() if scheme == "Basic" else ""
    return f"{request.path} {request.query} {request.authorization} {basic} {request.body}"


def _bearer(request: Request) -> str:
    return request.authorization.removeprefix("Bearer ")


# ---- what is done


@pytest.mark.exam
def test_an_app_opens_one(app: Installed) -> None:
    """The App is the author, the commit is signed, and the token is taken back at the end."""
    assert app.open() == 0
    [pull] = app.place.twin.api.pulls
    assert (pull.login, pull.head) == ("cgins-app[bot]", BRANCH)
    assert app.place.source == FIXED
    assert "note:" not in app.printed
    last = app.place.twin.requests[-1]
    assert (last.method, last.path, _bearer(last)) == ("DELETE", API + REVOKES, app.tokens[0])


@pytest.mark.exam
def test_the_token_is_for_one_repository_and_two_permissions(app: Installed) -> None:
    """However much the App may do, in however many repositories, more is not asked for; git gets the same token."""
    app.place.twin.api.app_permissions |= {"administration": "write", "issues": "read"}
    assert app.open("--commit-with", "push") == 0
    [asked] = app.asked(MINTS)
    assert asked.body == {"repositories": ["kernels"], "permissions": PERMISSIONS}
    [minted] = app.minted
    assert minted.permissions == {"metadata": "read", **PERMISSIONS}
    [token] = app.tokens
    others = [request for request in app.place.twin.requests if _bearer(request) != token]
    assert {one.path for one in others if "/octo/kernels.git/" not in one.path} == {
        f"{API}/repos/octo/kernels/installation",
        API + MINTS,
    }
    pushed = [request for request in app.place.twin.requests if request.path.endswith("/git-receive-pack")]
    assert [f"x-access-token:{token}" in _everything(one) for one in pushed] == [True]


@pytest.mark.exam
@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ({"members": "read"}, {"members": "read"}),
        ({"issues": "write"}, {"issues": "write"}),
        ({"members": "write", "issues": "write"}, {"members": "read", "issues": "write"}),
    ],
)
def test_what_is_welcome_is_asked_for_where_it_is_granted(
    app: Installed, granted: dict[str, str], asked: dict[str, str]
) -> None:
    """To ask teams for a review, and to make labels, the token may read members and write issues, if the App may."""
    app.place.twin.api.app_permissions |= granted
    assert app.open() == 0
    [minted] = app.minted
    assert minted.permissions == {"metadata": "read", **PERMISSIONS, **asked}


def test_what_is_signed_is_good_for_minutes(app: Installed) -> None:
    """It names the App, begins before now, as clocks differ, and ends within GitHub's ten minutes; nothing else is in it."""
    before = int(time.time())
    assert app.open("--dry-run") == 0
    requests = app.asked("/repos/octo/kernels/installation") + app.asked(MINTS)
    assert len(requests) == 2
    for one in requests:
        claims: dict[str, Any] = jwt.decode(_bearer(one), options={"verify_signature": False})
        assert claims.keys() == {"iat", "exp", "iss"}
        assert claims["iss"] == APP
        assert before - 120 <= claims["iat"] < before
        assert before + 60 <= claims["exp"] <= time.time() + 600
        assert jwt.get_unverified_header(_bearer(one)) == {"alg": "RS256", "typ": "JWT"}


def test_status_and_close_take_it_too(app: Installed) -> None:
    """Each command has a token of its own, and takes it back."""
    app.open()
    assert app.run("pull-request", "status", "--json") == 0
    assert '"stands": "current"' in app.printed
    assert app.run("pull-request", "close", "1") == 0
    assert app.place.twin.api.pulls[0].state == "closed"
    assert len(set(app.tokens)) == len(app.asked(REVOKES)) == 3


@pytest.mark.exam
def test_other_tokens_are_left_alone(app: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --app what GITHUB_TOKEN and GH_TOKEN have is not sent."""
    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        monkeypatch.setenv(name, "a-token-of-others")
    assert app.open() == 0
    assert not any("a-token-of-others" in _everything(request) for request in app.place.twin.requests)


# ---- taken back


@pytest.mark.parametrize(
    "fault",
    [Fault("POST", "/pulls", status=403, message="no"), Fault("POST", "/pulls", kind="drop", times=99)],
    ids=lambda fault: fault.kind,
)
def test_it_is_taken_back_after_an_error(app: Installed, fault: Fault) -> None:
    """Whatever went wrong, the token is no more."""
    app.place.twin.faults = [fault]
    assert app.open() == 2
    assert app.place.twin.api.pulls == []
    assert len(app.tokens) == len(app.asked(REVOKES)) == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_it_is_taken_back_when_interrupted(app: Installed, stop: type[BaseException]) -> None:
    """Also where a person ends the command."""
    with pytest.raises(stop), app_token.installed(app.place.twin.url + API, APP, app.key, "octo/kernels"):
        raise stop
    assert len(app.asked(REVOKES)) == 1


@pytest.mark.parametrize("kind", ["status", "drop"])
def test_one_that_cannot_be_taken_back(app: Installed, kind: Any) -> None:
    """What was done stays done, and is told: the token ends by itself."""
    app.place.twin.faults = [Fault("DELETE", REVOKES, kind=kind, times=99)]
    assert app.open() == 0
    assert app.printed.startswith("opened #1 ")
    assert len(app.asked(REVOKES)) == 1
    app.place.twin.api.minted.clear()


def test_servers_that_repeat_secrets(app: Installed) -> None:
    """A refusal with the token in it is told without the token, of the App's signature as of the App's token."""
    for path in ("/installation$", "/pulls$"):
        fault = Fault(path=path.replace("$", r"\?$"), status=403, message="")

        def repeat(index: int, request: Request, when: str, fault: Fault = fault) -> None:
            app.tokens += tuple(one for one in app.place.twin.api.minted if one not in app.tokens)
            fault.message = f"I know {_bearer(request)}"

        app.place.twin.hook = repeat
        app.place.twin.faults = [fault]
        assert app.open() == 2
        assert app.printed.count("status 403: I know ***") == (1 if path == "/installation$" else 2)


# ---- what can be wrong


def test_no_key(app: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, and nothing is asked of the server; another token does not stand in."""
    monkeypatch.setenv("GITHUB_TOKEN", "a-token-of-others")
    for value in ("", " \n"):
        monkeypatch.setenv(VARIABLE, value)
        assert app.open() == 2
    monkeypatch.delenv(VARIABLE)
    assert app.open() == 2
    assert app.printed.count(f"{VARIABLE} is not set") == 3
    assert "set it to the private key of the App, as PEM" in app.printed
    assert app.place.twin.requests == []


@pytest.mark.parametrize("how", ["half", "escaped", "words", "public"])
def test_a_key_that_is_none(
    app: Installed, keys: tuple[str, str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is refused without being shown, and nothing is asked of the server."""
    key = app.key
    damaged = {
        "half": key[: len(key) // 2],
        "escaped": key.replace("\n", "\\n"),
        "words": "four words of it",
        "public": keys[1],
    }
    monkeypatch.setenv(VARIABLE, damaged[how])
    assert app.open() == 2
    assert "the App's private key cannot be read" in app.printed
    assert "give the whole PEM file" in app.printed
    assert "four words" not in app.printed
    assert app.place.twin.requests == []


@pytest.mark.parametrize(("before", "after"), [("\n", "\r\n"), ("\n", " "), ("-----BEGIN", "\n  -----BEGIN")])
def test_a_key_that_travelled(
    app: Installed, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """Line ends of another system or none, and blanks around it, are no harm."""
    monkeypatch.setenv(VARIABLE, app.key.replace(before, after))
    assert app.open("--dry-run") == 0


def test_the_key_of_another_app(app: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub does not know who signs."""
    monkeypatch.setenv(VARIABLE, twin_app.make_key()[0])
    assert app.open() == 2
    assert "/installation: status 401: A JSON web token could not be decoded" in app.printed
    assert "look at the App's ID and key, and at this machine's clock" in app.printed


def test_a_clock_that_is_wrong(app: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is signed a quarter of an hour ahead of GitHub is refused, and the remedy names the clock."""
    real = time.time
    monkeypatch.setattr(twin_app, "time", SimpleNamespace(time=real))
    monkeypatch.setattr("time.time", lambda: real() + 900)
    assert app.open() == 2
    assert "status 401: " in app.printed
    assert "this machine's clock" in app.printed


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"app_id": 1}, 404),
        ({"installation": None}, 404),
        ({"app_permissions": {"contents": "write", "metadata": "read"}}, 422),
        ({"app_permissions": {"contents": "read", "pull_requests": "write"}}, 422),
    ],
    ids=["another ID", "not installed", "no pull requests", "contents read only"],
)
def test_an_app_that_may_not(app: Installed, wrong: dict[str, Any], status: int) -> None:
    """Which request was refused is said, and how the App must be installed; no token comes of it, and no change."""
    for name, value in wrong.items():
        setattr(app.place.twin.api, name, value)
    assert app.open() == 2
    assert f"status {status}: " in app.printed
    assert INSTALL in app.printed
    assert (app.tokens, app.asked(REVOKES), app.place.tip(BRANCH)) == ((), [], "")


def test_another_repository(app: Installed) -> None:
    """Where the App is not installed it has no token, though it is known."""
    assert app.open("--repository", "octo/others") == 2
    assert "GET /repos/octo/others/installation: status 404" in app.printed
    assert INSTALL in app.printed


def test_github_has_trouble(app: Installed) -> None:
    """Trouble that stays is not the App's: later it may work."""
    app.place.twin.faults = [Fault("POST", MINTS, status=502, times=99)]
    assert app.open() == 2
    assert f"POST {MINTS}: status 502" in app.printed
    assert "run the command again later" in app.printed


def test_a_token_that_is_lost_on_the_way(app: Installed) -> None:
    """An answer that is lost costs one token, which nobody has and which ends by itself."""
    app.place.twin.faults = [Fault("POST", MINTS, kind="lost")]
    assert app.open() == 0
    assert len(app.asked(MINTS)) == 2
    lost, known = app.tokens
    assert list(app.place.twin.api.minted) == [lost]
    assert _bearer(app.place.twin.requests[-1]) == known
    app.place.twin.api.minted.clear()


def test_the_library_is_missing(app: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named that has it, and nothing is asked of the server."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert app.open() == 2
    assert "an App's token needs the package pyjwt" in app.printed
    assert "pip install pytest-cgins[app]" in app.printed
    assert app.place.twin.requests == []


def test_half_of_the_library_is_missing(app: Installed) -> None:
    """Other packages bring pyjwt without what it signs with: the same extra is named."""
    jwt.unregister_algorithm("RS256")
    try:
        code = app.open()
    finally:
        jwt.register_algorithm("RS256", RSAAlgorithm(RSAAlgorithm.SHA256))
    assert code == 2
    assert "pip install pytest-cgins[app]" in app.printed


def test_errors_do_not_have_the_key(keys: tuple[str, str]) -> None:
    """Nor do the errors that they come from, which a traceback would show."""
    half = keys[0][: len(keys[0]) // 2]
    with pytest.raises(GitHubError) as caught, app_token.installed("http://127.0.0.1:9", APP, half, "octo/k"):
        pass
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert half.splitlines()[1] not in json.dumps([str(caught.value), repr(caught.value)])
