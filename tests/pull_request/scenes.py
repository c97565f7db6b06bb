"""What a proposal can meet on the server, and how it must be afterwards, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pull_request import twin as twins
from tests.pull_request.conftest import BETTER, BRANCH, CONFIG, FIXED, SOURCE, Place, commit, git

WANTED = "pull_request:\n  labels: [cgins]\n  reviewers: [ada]\n  assignees: [ada]\n"
MOVED = "int scale() { return 9; }\n"


@dataclass(frozen=True)
class Scene:
    """A state of the server, a proposal, and what must come of it."""

    token: str
    """Whose run it is."""
    prepare: Callable[[Place], Path]
    """Makes the state; the proposal."""
    check: Callable[[Place], None]
    """Fails if it is not as it must be."""
    code: int = 0
    """Exit status of a run that nothing disturbs."""
    options: tuple[str, ...] = ()
    """Of the command."""

    def begin(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], None]]:
        """Make the state, which the function brings back; with the proposal."""
        monkeypatch.setenv("GITHUB_TOKEN", self.token)
        folder = self.prepare(place)
        bring_back = place.keep()
        place.twin.restart()
        return folder, bring_back


def _asking(place: Place) -> None:
    commit(place.other, {"cgins.yaml": CONFIG + WANTED})
    place.twin.api.collaborators = ["ada"]


def _new(place: Place) -> Path:
    _asking(place)
    return place.propose()


def _moved(place: Place) -> Path:
    place.open(_new(place))
    commit(place.other, {"README.md": "words"})
    return place.better(message="other words")


def _stale(place: Place) -> Path:
    folder = _new(place)
    place.open(folder)
    commit(place.other, {SOURCE: MOVED})
    return folder


def _refreshed(place: Place) -> Path:
    place.open(_stale(place))
    base = {SOURCE: MOVED}
    return place.better(base=base, message="other words")


def _moot(place: Place) -> Path:
    folder = _new(place)
    place.open(folder)
    commit(place.other, {SOURCE: FIXED})
    return folder


def _one_open(place: Place, source: str, words: str, labels: list[str]) -> None:
    [pull] = place.twin.api.pulls
    assert (pull.head, pull.base, pull.state, pull.draft) == (BRANCH, "main", "open", True)
    assert words in str(pull.body)
    assert (pull.labels, pull.reviewers, pull.assignees) == (labels, ["ada"], ["ada"])
    assert place.source == source
    assert git(place.bare, "rev-list", "--count", f"main..{BRANCH}") == "1"
    assert git(place.bare, "diff", "--name-only", f"{BRANCH}^", BRANCH) == SOURCE
    _no_other_branch(place, [BRANCH])


def _no_other_branch(place: Place, known: list[str]) -> None:
    found = git(place.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads/").split()
    assert sorted(found) == sorted(["main", *known])


def _check_new(place: Place) -> None:
    _one_open(place, FIXED, "wrong answer", ["cgins"])
    assert place.twin.api.comments == []


def _check_moved(place: Place) -> None:
    _one_open(place, BETTER, "other words", ["cgins"])
    assert git(place.bare, "rev-parse", f"{BRANCH}^") == place.tip("main")
    assert place.twin.api.comments == []


def _check_stale(place: Place) -> None:
    _one_open(place, FIXED, "wrong answer", ["cgins", "cgins: stale"])
    [said] = place.twin.api.comments
    assert "**Stale.**" in said.body


def _check_refreshed(place: Place) -> None:
    _one_open(place, BETTER, "other words", ["cgins"])
    [said] = place.twin.api.comments
    assert "It was stale" in said.body


def _check_moot(place: Place) -> None:
    [pull] = place.twin.api.pulls
    assert pull.state == "closed"
    [said] = place.twin.api.comments
    assert "**Moot.**" in said.body
    _no_other_branch(place, [])


SCENES = {
    "new-app": Scene(twins.BOT, _new, _check_new),
    "new-person": Scene(twins.WRITER, _new, _check_new),
    "new-push": Scene(twins.WRITER, _new, _check_new, options=("--commit-with", "push")),
    "moved-app": Scene(twins.BOT, _moved, _check_moved),
    "moved-person": Scene(twins.WRITER, _moved, _check_moved),
    "stale": Scene(twins.BOT, _stale, _check_stale, code=1),
    "refreshed": Scene(twins.BOT, _refreshed, _check_refreshed),
    "moot": Scene(twins.BOT, _moot, _check_moot),
}
