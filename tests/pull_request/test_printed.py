"""What `cgins pull-request` prints: texts of anybody's, of which a terminal or a runner that reads the log obeys none."""

from __future__ import annotations

import json

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.pull_request import open_proposal, upkeep
from pytest_cgins.pull_request.clone import BranchMovedError
from pytest_cgins.pull_request.open_proposal import OpenResult
from tests.pull_request.conftest import BRANCH, SOURCE, Place, git

HOSTILE = "kernels/\x1b[31mX\n::error::hi\r##[group]\u202e.h"


def _check(said: str) -> None:
    """Fails if anything in it would be obeyed."""
    assert "hi" in said
    assert all(line.isprintable() for line in said.split("\n"))
    assert not any(line.lstrip().startswith("::") for line in said.split("\n"))
    assert "##[" not in said


@pytest.mark.parametrize("state", ["moved", "superseded"])
def test_open(place: Place, monkeypatch: pytest.MonkeyPatch, state: open_proposal.State) -> None:
    """Names of files, of others' proposals, and notes; JSON has them as they are, and its own escapes."""
    opened = OpenResult(state=state, branch=BRANCH, number=1, url="u", why=HOSTILE, notes=(HOSTILE,))
    monkeypatch.setattr(open_proposal, "open_pull_request", lambda *_: opened)
    place.open()
    output = place.printed()
    _check(output.out)
    _check(output.err)
    place.open(None, "--json")
    output = place.printed()
    told = json.loads(output.out)
    assert told["notes"] == [HOSTILE]
    assert HOSTILE in told["line"]
    assert output.out.rstrip("\n").isprintable()
    _check(output.err)


@pytest.mark.exam
def test_status_and_close(place: Place) -> None:
    """Addresses of those who have committed to the branch."""
    place.open()
    place.stand_on_branch()
    (place.other / SOURCE).write_text("int scale() { return 4; }\n")
    git(place.other, "commit", "--quiet", "--all", "-m", "Mine", "--author", "Ada <a\x1b[31mhi##[group]@b>")
    place.push()
    place.printed()
    for words in (["status"], ["close", "1", "--dry-run"], ["close", "1"]):
        assert main(["pull-request", *words]) == 0
        _check(place.printed().out)


@pytest.mark.exam
def test_close_that_is_too_late(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server said of a branch that has moved."""

    def close(*_: object, **__: object) -> None:
        raise BranchMovedError(HOSTILE)

    place.open()
    place.printed()
    monkeypatch.setattr(upkeep, "close", close)
    assert main(["pull-request", "close", "1"]) == 1
    _check(place.printed().err)


def test_notes_of_status(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be marked, and why."""
    monkeypatch.setattr(upkeep, "mark", lambda *_: [HOSTILE])
    assert main(["pull-request", "status", "--mark"]) == 0
    _check(place.printed().err)
