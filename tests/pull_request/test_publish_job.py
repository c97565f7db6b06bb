"""The job that publishes: what becomes of it where a person has worked on the bot's branch, or a proposal is stale."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.action.hub import Hub, zipped
from tests.pull_request import twin as twins
from tests.pull_request.conftest import BRANCH, SOURCE, Place, commit

pytestmark = pytest.mark.exam

OTHER = "int shift() { return 5; }\n"


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A machine with a `gh`."""
    (tmp_path / "hub").mkdir()
    return Hub(tmp_path / "hub")


def _publish(place: Place, hub: Hub, *proposals: Path) -> tuple[int, str]:
    files = {
        f"run/proposals/{folder.name}/{file.relative_to(folder)}": file.read_bytes()
        for folder in proposals
        for file in folder.rglob("*")
        if file.is_file()
    }
    hub.add(12, zipped(files), name="cgins-proposals")
    variables = {"GITHUB_TOKEN": twins.WRITER, "GITHUB_SERVER_URL": os.environ["GITHUB_SERVER_URL"]}
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=str(place.clone), **variables)
    return done.returncode, done.stdout


@pytest.mark.parametrize("how", ["person", "stale"])
def test_what_people_did_does_not_make_the_job_fail(place: Place, hub: Hub, how: str) -> None:
    """It is told, and the other proposal is published."""
    place.open()
    if how == "person":
        place.stand_on_branch()
        mine = commit(place.other, {SOURCE: "int scale() { return 4; }\n"}, branch=BRANCH)
    else:
        commit(place.other, {SOURCE: "int scale() { return 4; }\n"})
        mine = place.tip(BRANCH)
    first = place.better(name="a")
    base = {"kernels/shift.cpp": "int shift() { return 0; }\n"}
    second = place.propose({"kernels/shift.cpp": OTHER}, base=base, name="b", run_id="run-2", kernel="shift")
    code, said = _publish(place, hub, first, second)
    assert code == 0, said
    assert ("not opened: " if how == "person" else "the proposal is stale") in said
    assert place.tip(BRANCH) == mine
    assert [pull.head for pull in place.twin.api.pulls] == [BRANCH, "cgins/repair/shift-cpu-cpp"]


def test_a_refusal_does(place: Place, hub: Hub) -> None:
    """A clone without its remote is an error, and the job fails."""
    folder = place.propose()
    (place.clone / ".git/config").write_text("")
    code, said = _publish(place, hub, folder)
    assert code == 1
    assert 'git knows no remote "origin"' in said
