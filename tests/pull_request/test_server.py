"""To which server a command speaks with the token: not to a stranger's, whatever the clone's remote is."""

from __future__ import annotations

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.app.session import publish
from tests.pull_request import twin as twins
from tests.pull_request.conftest import Place
from tests.pull_request.twin import API

OPEN = ("open", "--proposal", "{proposal}")
COMMANDS = pytest.mark.parametrize("command", [OPEN, ("status",), ("close", "1")], ids=lambda words: words[0])


def _run(place: Place, command: tuple[str, ...], *options: str) -> int:
    words = [word.format(proposal=place.propose()) for word in command]
    return main(["pull-request", *words, *options])


@COMMANDS
def test_a_strangers_server(place: Place, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    """Where nothing but the remote names the server it is not spoken to, and the error says what to set."""
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    assert _run(place, command) == 2
    output = place.printed().err
    assert "the remote is on 127.0.0.1, which is not GitHub's" in output
    assert "set GITHUB_SERVER_URL to https://127.0.0.1" in output
    assert place.twin.requests == []


def test_a_run_that_publishes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """--cgins-pr finds the same, without starting anything."""
    environment = {"GITHUB_TOKEN": twins.WRITER, "GITHUB_API_URL": "https://api.github.com"}
    assert publish.obstacle(place.clone, environment).startswith("the remote is on 127.0.0.1, which is not")
    assert publish.obstacle(place.clone, {**environment, "GITHUB_API_URL": place.twin.url + API}) == ""
    assert publish.obstacle(place.clone, {**environment, "GITHUB_SERVER_URL": place.twin.url}) == ""


@pytest.mark.exam
@pytest.mark.parametrize("how", ["--token-variable", "--api-url", "GITHUB_API_URL", "GITHUB_SERVER_URL"])
def test_a_server_that_somebody_named(place: Place, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The server itself, its API, or the token that is meant for it."""
    monkeypatch.delenv("GITHUB_SERVER_URL")
    monkeypatch.setenv("MINE", twins.WRITER)
    api = place.twin.url + API
    value = {"--token-variable": "MINE", "--api-url": api, "GITHUB_API_URL": api}.get(how, place.twin.url)
    if not how.startswith("--"):
        monkeypatch.setenv(how, value)
    assert _run(place, OPEN, *([how, value] if how.startswith("--") else [])) == 0
    assert len(place.twin.api.pulls) == 1
