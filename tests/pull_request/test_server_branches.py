"""Branches on the server change only from what they were seen at, whichever API does it, and each change is done once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

import pytest

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import remote
from pytest_cgins.pull_request.clone import BranchMovedError
from pytest_cgins.pull_request.graphql import RefChange
from pytest_cgins.pull_request.server import Server, connect
from tests.pull_request import twin as twins
from tests.pull_request.conftest import Place, git
from tests.pull_request.twin import Fault, Request


@pytest.fixture(params=["graphql", "no mutation", "no graphql"])
def server(place: Place, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The twin, with GraphQL, or as an old server; `old`, `new` and `other` are commits that it has."""
    place.twin.api.graphql = request.param != "no graphql"
    place.twin.api.update_refs = request.param == "graphql"
    for name, parent in (("old", "main"), ("new", "has-old"), ("other", "main")):
        made = git(place.bare, "commit-tree", f"{parent}^{{tree}}", "-p", parent, "-m", name)
        git(place.bare, "update-ref", f"refs/heads/has-{name}", made)
    with connect(remote.parse(place.twin.remote), place.clone, twins.WRITER, os.environ) as server:
        yield server


def _commit(place: Place, name: str | None) -> str | None:
    return None if name is None else place.tip(f"has-{name}")


def _change(place: Place, before: str | None, after: str | None, branch: str = "work") -> RefChange:
    return RefChange(branch=branch, before=_commit(place, before), after=_commit(place, after))


def _set(place: Place, name: str | None, branch: str = "work") -> None:
    """As somebody else does."""
    if name is None:
        git(place.bare, "update-ref", "-d", f"refs/heads/{branch}")
    else:
        git(place.bare, "update-ref", f"refs/heads/{branch}", place.tip(f"has-{name}"))


def _at(place: Place, branch: str = "work") -> str | None:
    return place.tip(branch) or None


def _wrote(place: Place) -> list[str]:
    """Requests that change a branch."""
    return [
        request.method
        for request in place.twin.requests
        if ("/git/refs" in request.path and request.method != "GET") or "updateRefs" in str(request.body)
    ]


STEPS = pytest.mark.parametrize(
    ("before", "after"),
    [(None, "new"), ("old", "new"), ("new", "old"), ("old", None)],
    ids=["created", "moved", "set back", "deleted"],
)


@STEPS
def test_a_branch_is_changed(place: Place, server: Server, before: str | None, after: str | None) -> None:
    """Made, moved on, set back to an older commit, or deleted."""
    _set(place, before)
    server.change_branches([_change(place, before, after)])
    assert _at(place) == _commit(place, after)


@STEPS
def test_another_tip_is_left_alone(
    place: Place, server: Server, before: str | None, after: str | None
) -> None:
    """Where the branch is not as it was seen it stays, and the error names both commits."""
    _set(place, "other")
    with pytest.raises(BranchMovedError) as caught:
        server.change_branches([_change(place, before, after)])
    assert _at(place) == _commit(place, "other")
    other = place.tip("has-other")[:12]
    seen = (_commit(place, before) or "nothing")[:12]
    assert caught.value.what == f"work is at {other} on the server, and was at {seen}"
    assert "run the command again" in caught.value.remedy


@pytest.mark.parametrize("after", ["new", None])
def test_a_branch_that_is_gone(place: Place, server: Server, after: str | None) -> None:
    """It is not made again where it should have been moved; where it should have been deleted all is well."""
    changes = [_change(place, "old", after)]
    if after is None:
        server.change_branches(changes)
    else:
        with pytest.raises(BranchMovedError, match="work is at nothing on the server"):
            server.change_branches(changes)
    assert _at(place) is None


@STEPS
def test_what_is_there_is_done(place: Place, server: Server, before: str | None, after: str | None) -> None:
    """A change that an earlier run made, and did not live to know of, is no error."""
    _set(place, after)
    server.change_branches([_change(place, before, after)])
    assert _at(place) == _commit(place, after)


@STEPS
@pytest.mark.parametrize("kind", ["lost", "drop"])
def test_a_lost_answer(
    place: Place, server: Server, before: str | None, after: str | None, kind: Literal["lost", "drop"]
) -> None:
    """Whether the request was done or not before the connection ended, the branch is as wanted, without an error."""
    _set(place, before)
    wanted = [_change(place, before, after)]
    path = "graphql" if place.twin.api.update_refs else "/git/refs"
    place.twin.faults = [Fault(path=path, kind=kind)]
    server.change_branches(wanted)
    assert _at(place) == _commit(place, after)
    assert len(_wrote(place)) >= 2


def test_a_person_is_faster_than_the_answer(place: Place, server: Server) -> None:
    """The change was done, its answer lost, and then a person pushed: that is told, and the person's commit stays."""
    _set(place, "old")
    wanted = [_change(place, "old", "new")]

    def push(_: int, __: Request, when: str) -> None:
        if when == "after" and _at(place) == _commit(place, "new"):
            _set(place, "other")

    place.twin.hook = push
    path = "graphql" if place.twin.api.update_refs else "/git/refs"
    place.twin.faults = [Fault(path=path, kind="lost", times=9)]
    with pytest.raises(BranchMovedError, match=f"work is at {place.tip('has-other')[:12]}"):
        server.change_branches(wanted)
    assert _at(place) == _commit(place, "other")


@pytest.mark.parametrize("after", ["new", None])
def test_a_refusal_is_told(place: Place, server: Server, after: str | None) -> None:
    """A branch that rules keep is as it was: what GitHub said is the error, and not that somebody moved it."""
    _set(place, "old")
    place.twin.api.protected = ["work"]
    with pytest.raises(GitHubError, match="rule violations") as caught:
        server.change_branches([_change(place, "old", after)])
    assert not isinstance(caught.value, BranchMovedError)
    assert _at(place) == _commit(place, "old")


# ---- several


def test_several_change_together(place: Place, server: Server) -> None:
    """One is made, one moved, one deleted; with updateRefs in one request."""
    _set(place, "old", "moves")
    _set(place, "old", "goes")
    changes = [
        _change(place, None, "new", "comes"),
        _change(place, "old", "new", "moves"),
        _change(place, "old", None, "goes"),
    ]
    server.change_branches(changes)
    new = _commit(place, "new")
    assert [_at(place, one) for one in ("comes", "moves", "goes")] == [new, new, None]
    if place.twin.api.update_refs:
        assert _wrote(place) == ["POST"]
    # Done again it finds all done.
    server.change_branches(changes)
    assert [_at(place, one) for one in ("comes", "moves", "goes")] == [new, new, None]


@pytest.mark.parametrize("server", ["graphql"], indirect=True)
def test_all_or_none(place: Place, server: Server) -> None:
    """Where one of them is not as expected none is changed; the error names that one."""
    _set(place, "old", "first")
    _set(place, "other", "second")
    changes = [_change(place, "old", "new", "first"), _change(place, "old", None, "second")]
    with pytest.raises(BranchMovedError, match="second is at"):
        server.change_branches(changes)
    assert _at(place, "first") == _commit(place, "old")
    assert _at(place, "second") == _commit(place, "other")


# ---- delete


def test_only_what_was_seen_is_deleted(place: Place, server: Server) -> None:
    """At another commit the branch stays; at this one it goes; once gone it is not asked for again."""
    _set(place, "other")
    old, other = place.tip("has-old"), place.tip("has-other")
    with pytest.raises(BranchMovedError):
        server.delete_branch("work", old)
    assert _at(place) == other
    server.delete_branch("work", other)
    server.delete_branch("work", other)
    assert _at(place) is None
