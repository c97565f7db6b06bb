"""The bot's pull requests where REST is answered by an emulator of GitHub that others wrote.

It has no GraphQL, so that branches are changed by REST. It differs from GitHub in more: `KNOWN`, and the docstrings of
tests, say in what. Tests with the twin hold the same, and `make test` has these alone.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.pull_request.transport import Transport
from tests.pull_request import emulator
from tests.pull_request.conftest import BETTER, BRANCH, BROKEN, CONFIG, FIXED, SOURCE, Place, commit, git
from tests.pull_request.emulator import BOT, PERSON, Front, Mirror
from tests.pull_request.twin import Twin

pytestmark = pytest.mark.exam
MARKER = "<!-- cgins:notice:scale-cpu-cpp -->"
STALE = "cgins: stale"
PEOPLE = """\
pull_request:
  draft: false
  labels: [gpu, "needs: review"]
  reviewers: [ada, grace]
  team_reviewers: [members]
  assignees: [grace]
"""
_URLS = "(followers|following|gists|organizations|received_events|starred|subscriptions)_url"
KNOWN = (
    rf".* \S+\.(owner|user): '(gravatar_id|{_URLS})' is a required property",
    r".* \S+\.labels\[\*\]\.description: None is not of type 'string'",
    r".* \S+\.requested_teams\[\*\]: '\w+' is a required property",
    r"GET /repos/{owner}/{repo} 200 \$: '(network|subscribers)_count' is a required property",
    r"GET /repos/{owner}/{repo} 200 \$\.pushed_at: None is not of type 'string'",
    r"GET /repos/{owner}/{repo}/installation 200 \$: 'target_id' is a required property",
    r"GET /repos/{owner}/{repo}/installation 200 \$\.account: fits no choice",
    r"POST /app/installations/{installation_id}/access_tokens 201 \$\.repositories\[\*\]: '\w+' is a required property",
)
"""Patterns of what the emulator answers otherwise than GitHub's description says; nothing that the bot reads."""


class Emulated(Place):
    """A place whose server is the front of an emulator."""

    @property
    def front(self) -> Front:
        return cast(Front, self.twin)

    def branches(self) -> dict[str, str]:
        return self.front.emulated.branches()

    def git(self, *arguments: str) -> str:
        """Git in the bare repository, after a look at the emulator's branches."""
        self.front.mirror.fetch()
        return git(self.bare, *arguments)


@pytest.fixture
def emulated(
    tmp_path: Path,
    template: Path,
    settled: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Emulated]:
    """A clone in which the test stands, of a repository that the emulator has; `other` pushes there as a person."""
    bare, clone, other = tmp_path / "bare.git", tmp_path / "clone", tmp_path / "other"
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    shutil.copytree(clone, other)
    monkeypatch.setenv("GITHUB_TOKEN", BOT)
    monkeypatch.chdir(clone)
    with emulator.serve(bare) as front:
        monkeypatch.setenv("GITHUB_SERVER_URL", front.url)
        git(clone, "remote", "set-url", "origin", front.remote)
        person = front.remote.replace("://", f"://x-access-token:{PERSON}@")
        git(other, "remote", "set-url", "origin", person)
        yield Emulated(bare, clone, other, cast(Twin, front), tmp_path / "proposals", capfd)
        assert front.violations == []
        assert [one for one in front.deviations if not any(re.fullmatch(known, one) for known in KNOWN)] == []


# ---- open


def test_a_proposal_becomes_a_draft(emulated: Emulated) -> None:
    """A bot's commit is made of git's objects by REST, on the tip of the base, and no git is pushed; again nothing is."""
    folder = emulated.propose()
    assert emulated.open(folder) == 0
    pull = emulated.front.pull()
    assert (pull["draft"], pull["state"], pull["title"]) == (True, "open", "Repair scale (cpp on cpu)")
    assert (pull["head"]["ref"], pull["base"]["ref"], pull["user"]["login"]) == (BRANCH, "main", "cgins[bot]")
    assert pull["body"].startswith("<!-- cgins:pr:scale-cpu-cpp -->\n")
    assert [one for one, _ in emulated.front.answered("POST")] == ["/git/trees", "/git/commits", "/git/refs", "/pulls"]  # fmt: skip
    assert not any("receive-pack" in request.path + request.query for request in emulated.front.requests)
    assert pull["head"]["sha"] == emulated.git("rev-parse", BRANCH)
    assert emulated.git("rev-parse", f"{BRANCH}^") == emulated.branches()["main"]
    assert emulated.git("diff", "--name-only", "main", BRANCH) == SOURCE
    assert emulated.git("show", f"{BRANCH}:{SOURCE}") + "\n" == FIXED
    output = emulated.printed()
    assert output.out == f"opened #1 {emulated.front.url}/octo/kernels/pull/1: {pull['title']}\n"
    assert output.err == "note: the commit is not signed: the server signs no commits of this token\n"
    emulated.front.requests.clear()
    emulated.front.statuses.clear()
    assert emulated.open(folder) == 0
    assert {request.method for request in emulated.front.requests if "/api/v3/" in request.path} == {"GET"}
    assert emulated.printed().out.startswith("unchanged: #1 ")


def test_a_persons_token_commits_by_git(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GraphQL a person's commit is pushed; the staging branch is gone, and a note says why it is unsigned."""
    monkeypatch.setenv("GITHUB_TOKEN", PERSON)
    assert emulated.open() == 0
    assert emulated.front.pull()["user"]["login"] == "ada"
    assert emulated.branches().keys() == {"main", BRANCH}
    assert emulated.git("log", "-1", "--format=%an", BRANCH) == "pytest-cgins[bot]"
    assert "the commit is not signed: the API did not take it: POST " in emulated.printed().err


def test_an_app_opens_one(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator takes the App's signature, and gives a token with the two permissions that are asked for.

    Gap: `GET /user` with that token is 404, not 403 as on GitHub, so that git commits.
    """
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.setenv("CGINS_APP_PRIVATE_KEY", emulated.front.emulated.keys[str(emulator.APP)])
    assert emulated.open(None, "--app", str(emulator.APP)) == 0
    assert emulated.front.pull()["user"]["login"] == "cgins-app[bot]"
    assert "GET /user: status 404" in emulated.printed().err


@pytest.mark.parametrize("token", [BOT, PERSON])
def test_another_proposal_takes_the_same_pull_request(
    emulated: Emulated, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """It gets the new commit, which stands on the base alone, and the new words.

    Gap: the emulator would open a second one, where GitHub says 422; the bot looks first.
    """
    monkeypatch.setenv("GITHUB_TOKEN", token)
    emulated.open()
    assert emulated.open(emulated.better(message="other words")) == 0
    assert "other words" in emulated.front.pull()["body"]
    assert emulated.git("show", f"{BRANCH}:{SOURCE}") + "\n" == BETTER
    assert emulated.git("rev-list", "--count", f"main..{BRANCH}") == "1"
    assert len(emulated.front.emulated.call("GET", "/pulls?state=all")) == 1


def test_a_moot_pull_request_is_closed(emulated: Emulated) -> None:
    """The base branch has the files: a comment says so, and the branch is gone."""
    folder = emulated.propose()
    emulated.open(folder)
    tip = commit(emulated.other, {SOURCE: FIXED})
    assert emulated.open(folder) == 0
    assert emulated.front.pull()["state"] == "closed"
    assert emulated.branches() == {"main": tip}
    [(author, text)] = emulated.front.comments()
    assert (author, text.partition("\n")[0]) == ("cgins[bot]", MARKER)
    assert tip[:12] in text
    assert "main already has these files: closed #1 " in emulated.printed().out


# ---- stale


def test_a_stale_pull_request_is_marked_and_unmarked(emulated: Emulated) -> None:
    """A label and a comment come with a change of the kernel on the base, and go with a proposal that is made on it."""
    folder = emulated.propose()
    emulated.open(folder)
    changed = "int scale() { return 9; }\n"
    commit(emulated.other, {SOURCE: changed})
    assert emulated.open(folder) == 1
    assert [one["name"] for one in emulated.front.pull()["labels"]] == [STALE]
    assert emulated.front.comments()[0][1].startswith(f"{MARKER}\n**Stale.** ")
    anew = emulated.better(base={SOURCE: changed})
    assert emulated.open(anew) == 0
    assert emulated.front.pull()["labels"] == []
    [(_, text)] = emulated.front.comments()
    assert text.startswith(f"{MARKER}\nIt was stale, ")


def test_one_comment_among_many(emulated: Emulated) -> None:
    """Behind a hundred of others the bot's own is found and rewritten, and a person's with its marker is not."""
    folder = emulated.propose()
    emulated.open(folder)
    theirs = [("ada", f"{MARKER}\nmine"), *(("ada", f"words {number}") for number in range(100))]
    for _, text in theirs:
        emulated.front.emulated.call("POST", "/issues/1/comments", {"body": text})
    texts = []
    for source, code in ((BETTER, 1), (BROKEN, 0)):
        commit(emulated.other, {SOURCE: source})
        assert emulated.open(folder) == code
        *others, own = emulated.front.comments()
        assert others == theirs
        texts.append(own[1].removeprefix(f"{MARKER}\n").split()[0])
        assert own[0] == "cgins[bot]"
    assert texts == ["**Stale.**", "It"]
    asked = [
        request.query
        for request in emulated.front.requests
        if request.path.endswith("/comments") and request.query
    ]
    assert asked == ["per_page=100&page=1", "per_page=100&page=2"] * 2


# ---- people


def test_labels_and_reviewers_are_given_once(emulated: Emulated) -> None:
    """What cgins.yaml asks for is given, and a label that a person took away stays away.

    Gaps: the emulator assigns nobody to a pull request (404), of which a note tells; and it tells no events, which are
    the test's own.
    """
    commit(emulated.other, {"cgins.yaml": CONFIG + PEOPLE})
    emulated.front.events = []
    folder = emulated.propose()
    assert emulated.open(folder) == 0
    pull = emulated.front.pull()
    assert pull["draft"] is False
    assert [one["name"] for one in pull["labels"]] == ["gpu", "needs: review"]
    assert [one["login"] for one in pull["requested_reviewers"]] == ["ada", "grace"]
    assert [one["slug"] for one in pull["requested_teams"]] == ["members"]
    assert "note: the assignees grace were not taken: POST " in emulated.printed().err
    emulated.front.emulated.call("DELETE", "/issues/1/labels/gpu")
    emulated.front.events = [{"event": "labeled", "label": {"name": "gpu"}}]
    assert emulated.open(folder) == 0
    assert [one["name"] for one in emulated.front.pull()["labels"]] == ["needs: review"]


# ---- status and close


def test_status_lists(emulated: Emulated) -> None:
    """How the pull request stands follows its base: current, behind, stale, moot."""
    emulated.open()
    emulated.front.emulated.call(
        "POST", "/pulls", {"title": "Another's", "body": "", "head": "theirs", "base": "main"}
    )
    stands = []
    for files in ({}, {"README.md": "words"}, {SOURCE: BETTER}, {SOURCE: FIXED}):
        if files:
            commit(emulated.other, files)
        emulated.printed()
        assert main(["pull-request", "status", "--json"]) == 0
        [found] = json.loads(emulated.printed().out)
        assert (found["number"], found["branch"], found["proposal"]) == (1, BRANCH, "run-1/scale-cpu-cpp")
        stands.append(found["stands"])
    assert stands == ["current", "behind", "stale", "moot"]


def test_close_closes(emulated: Emulated) -> None:
    """With a reason in a comment, and without the branch; of a number that is none it says so."""
    emulated.open()
    assert main(["pull-request", "close", "1", "7", "--reason", "enough"]) == 1
    assert emulated.front.pull()["state"] == "closed"
    assert emulated.branches().keys() == {"main"}
    [(_, text)] = emulated.front.comments()
    assert text.startswith(f"{MARKER}\n**Closed.** ")
    assert "enough" in text
    assert "#7 is not an open pull request of a proposal" in emulated.printed().err


def test_close_deletes_what_it_looked_at(emulated: Emulated) -> None:
    """The branch is deleted at the commit that git fetched, whatever head REST shows.

    Gap: the emulator shows the head that a pull request was opened with for ever, as GitHub does for a moment.
    """
    emulated.open()
    emulated.open(emulated.better())
    assert emulated.front.pull()["head"]["sha"] != emulated.branches()[BRANCH]
    emulated.printed()
    assert main(["pull-request", "close", "1"]) == 0
    assert emulated.front.pull()["state"] == "closed"
    assert emulated.branches().keys() == {"main"}
    assert emulated.printed().out == f"closed #1 {emulated.front.url}/octo/kernels/pull/1\n"


# ---- the emulator itself


def test_known_deviations_are_there(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pattern of `KNOWN` fits what the emulator answers, so that the list has nothing that is not so."""
    folder = emulated.propose()
    monkeypatch.setenv("CGINS_APP_PRIVATE_KEY", emulated.front.emulated.keys[str(emulator.APP)])
    emulated.open(folder, "--app", str(emulator.APP))
    emulated.front.emulated.call("POST", "/issues/1/labels", {"labels": ["gpu"]})
    emulated.front.emulated.call("POST", "/pulls/1/requested_reviewers", {"team_reviewers": ["members"]})
    emulated.open(folder)
    unseen = [one for one in KNOWN if not any(re.fullmatch(one, seen) for seen in emulated.front.deviations)]
    assert unseen == []


def test_requests_are_judged(emulated: Emulated) -> None:
    """A request that GitHub does not describe is a violation, whatever the emulator makes of it."""
    with closing(Transport(f"{emulated.front.url}/api/v3", BOT)) as transport:
        transport.request("GET", "/repos/octo/kernels/pulls", query={"heads": "octo:main"})
    assert emulated.front.violations == [
        "GET /repos/octo/kernels/pulls?heads=octo%3Amain: there is no query parameter heads"
    ]
    emulated.front.violations.clear()


def test_ids_agree(emulated: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes, links, folders, names and time zones come through the emulator and back with the ids that git gave."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_DATE", "2026-01-31T12:00:00-0330")
    (emulated.other / "run.sh").write_text("#!/bin/sh\n")
    (emulated.other / "run.sh").chmod(0o755)
    (emulated.other / "link").symlink_to("run.sh")
    files = {"a/b/c.txt": "c", "a.txt": "", "a-b": "x", "ä ö.txt": "\u2028"}
    tip = commit(emulated.other, files, branch="odd", message="Änderung\n\nwith a body")
    assert emulated.branches()["odd"] == tip
    git(tmp_path, "init", "--quiet", "--bare", "second.git")
    Mirror(tmp_path / "second.git", emulated.front.emulated).fetch()
    assert git(tmp_path / "second.git", "rev-parse", "odd") == tip
    assert git(tmp_path / "second.git", "fsck", "--strict", "--full") == ""
