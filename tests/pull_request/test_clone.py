"""git past the working tree, the index and the settings of a clone."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pytest_cgins.core import git as core_git
from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.clone import TRIES, Clone, Identity
from pytest_cgins.pull_request.remote import parse
from tests.pull_request import twin as twins
from tests.pull_request.conftest import SOURCE, Place, commit, git
from tests.pull_request.twin import Fault

ADA = Identity(name="Ada", email="ada@team.example")


@pytest.fixture
def tool(place: Place) -> Clone:
    """For the clone, with a token for the twin."""
    return Clone(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))


def test_a_commit_has_the_given_bytes_on_the_given_base(place: Place, tool: Clone) -> None:
    """Carriage returns and settings of line ends change nothing, and all other files stay."""
    git(place.clone, "config", "core.autocrlf", "input")
    tip = tool.fetch(place.twin.remote, "main")
    assert tip == place.tip("main")
    content = b"a\r\nb\n\xc3\xa9"
    made = tool.commit(tool.tree(tip, {SOURCE: content, "new/x.cu": b"x"}), tip, "Words\n", ADA)
    entry = tool.entry(made, SOURCE)
    assert entry
    assert tool.read(entry[1]) == content
    tool.push(place.twin.remote, made, "work", expected=None)
    changed = git(place.bare, "diff", "--name-only", tip, made)
    assert changed.split() == [SOURCE, "new/x.cu"]


def test_a_push_needs_the_tip_that_was_seen(place: Place, tool: Clone) -> None:
    """A new branch must not exist, and one that exists must not have moved."""
    tip = str(tool.fetch(place.twin.remote, "main"))
    made = tool.commit(tool.tree(tip, {SOURCE: b"x"}), tip, "Words\n", ADA)
    tool.push(place.twin.remote, made, "work", expected=None)
    assert place.tip("work") == made
    with pytest.raises(GitHubError, match="git push failed") as caught:
        tool.push(place.twin.remote, tip, "work", expected=None)
    assert "changed by somebody else meanwhile" in caught.value.remedy
    tool.push(place.twin.remote, tip, "work", expected=made)
    assert place.tip("work") == tip


@pytest.mark.parametrize(
    "fault", [Fault(status=500), Fault(status=503), Fault(kind="drop"), Fault(kind="lost")]
)
def test_a_push_on_a_bad_day(place: Place, tool: Clone, fault: Fault) -> None:
    """Trouble of the server and answers that are lost are waited out, and the branch is set once."""
    tip = str(tool.fetch(place.twin.remote, "main"))
    made = tool.commit(tool.tree(tip, {SOURCE: b"x"}), tip, "Words\n", ADA)
    place.twin.faults = [replace(fault, method="POST", path="/git-receive-pack", times=2)]
    tool.push(place.twin.remote, made, "work", expected=None)
    assert place.tip("work") == made


def test_a_push_that_does_not_get_through(place: Place, tool: Clone) -> None:
    """Trouble that stays is told after three tries, and the branch is as it was; a refusal is told after one."""
    tip = str(tool.fetch(place.twin.remote, "main"))
    made = tool.commit(tool.tree(tip, {SOURCE: b"x"}), tip, "Words\n", ADA)
    place.twin.faults = [Fault("POST", "/git-receive-pack", status=502, times=99)]
    with pytest.raises(GitHubError, match="returned error: 502"):
        tool.push(place.twin.remote, made, "work", expected=None)
    assert (place.tip("work"), _pushes(place)) == ("", TRIES)
    place.twin.restart()
    place.twin.api.protected = ["work"]
    with pytest.raises(GitHubError, match="protected branch"):
        tool.push(place.twin.remote, made, "work", expected=None)
    assert (place.tip("work"), _pushes(place)) == ("", TRIES + 1)


def _pushes(place: Place) -> int:
    return sum(request.path.endswith("/git-receive-pack") for request in place.twin.requests)


def test_commits_of_a_branch_are_listed_with_their_messages(place: Place, tool: Clone) -> None:
    """Newest first, without those of the base."""
    commit(place.other, {"a": "1"}, branch="work", message="One\n\nKey: no\n\nmore words")
    commit(place.other, {"a": "2"}, branch="work", message="Two\n\nWords\n\nKey: yes\nOther: a: b")
    tip, base = tool.fetch(place.twin.remote, "work"), tool.fetch(place.twin.remote, "main")
    two, one = tool.commits(str(tip), str(base))
    assert (two.message, one.message) == (
        "Two\n\nWords\n\nKey: yes\nOther: a: b",
        "One\n\nKey: no\n\nmore words",
    )
    assert (two.id, two.parents) == (tip, (one.id,))
    assert two.author == two.committer == "ada@team.example"


def test_what_is_not_there(place: Place, tool: Clone, tmp_path: Path) -> None:
    """No such branch, file, remote, repository or folder."""
    assert tool.fetch(place.twin.remote, "nowhere") is None
    assert tool.entry(place.tip("main"), "no/such.cpp") is None
    with pytest.raises(GitHubError, match='"kernels": "kernels" is a folder on the base branch'):
        tool.entry(place.tip("main"), "kernels")
    with pytest.raises(GitHubError, match='git knows no remote "upstream"'):
        tool.remote_url("upstream")
    with pytest.raises(GitHubError, match="not a git repository"):
        Clone(tmp_path).prefix()
    with pytest.raises(GitHubError, match="no such folder"):
        Clone(tmp_path / "none")


def test_the_token_goes_to_one_repository(place: Place) -> None:
    """Another repository of the same server gets none, and git does not ask for one."""
    tool = Clone(place.clone, token=twins.WRITER, remote=parse(f"{place.twin.url}/octo/another"))
    with pytest.raises(GitHubError, match="git ls-remote failed"):
        tool.fetch(place.twin.remote, "main")
    assert {request.authorization for request in place.twin.requests} == {""}


def test_variables_of_git_do_not_interfere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook's own GIT_DIR and GIT_INDEX_FILE, or a user's settings that send addresses elsewhere, are not heeded."""
    tip = place.tip("main")
    monkeypatch.setenv("GIT_DIR", os.devnull)
    monkeypatch.setenv("GIT_INDEX_FILE", os.devnull)
    settings = place.clone.parent / "home/.gitconfig"
    settings.parent.mkdir()
    settings.write_text(f'[url "https://elsewhere.example/"]\n  insteadOf = {place.twin.url}/\n')
    monkeypatch.setenv("HOME", str(settings.parent))
    tool = Clone(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))
    assert tool.fetch(place.twin.remote, "main") == tip


# ---- proxies


PASSWORD = "hunter/2"


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Place of a proxy that lets nobody through, and what it heard from those who said who they are."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = self.headers.get("Proxy-Authorization", "")
            heard.extend([said] if said else [])
            self.send_response(502 if said else 407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            return

    for name in ("no_proxy", "NO_PROXY", *core_git.PROXIES):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", heard
        server.shutdown()


def test_a_proxy_with_a_password(
    place: Place, monkeypatch: pytest.MonkeyPatch, proxied: tuple[str, list[str]]
) -> None:
    """git says to the proxy who it is, and no message has it."""
    at, heard = proxied
    monkeypatch.setenv("http_proxy", f"http://ada:{PASSWORD.replace('/', '%2F')}@{at}")
    with pytest.raises(GitHubError, match="error: 502") as caught:
        Clone(place.clone).tip(place.twin.remote, "main")
    assert set(heard) == {f"Basic {base64.b64encode(f'ada:{PASSWORD}'.encode()).decode()}"}
    assert place.twin.requests == []
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("address", ["ada:hunter%2F2@127.0.0.1:none", "no://ada:hunter%2F2@127.0.0.1:none"])
def test_a_proxys_address_that_is_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch, proxied: tuple[str, list[str]], address: str
) -> None:
    """git quotes it, and the message has no password all the same."""
    monkeypatch.setenv("http_proxy", address)
    with pytest.raises(GitHubError, match="proxy") as caught:
        Clone(place.clone).tip(place.twin.remote, "main")
    assert "hunter" not in str(caught.value)
