"""`cgins pull-request status` and `close`: how the bot's pull requests stand, and their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cgins.app.cli import main
from tests.pull_request.conftest import BRANCH, BROKEN, CONFIG, FIXED, SOURCE, Place, commit, git
from tests.pull_request.twin import Request
from tests.pull_request.twin_api import Pull

MOVED = "int scale() { return 9; }\n"


def _status(place: Place, *options: str) -> list[dict[str, object]]:
    place.printed()
    assert main(["pull-request", "status", "--json", *options]) == 0
    found: list[dict[str, object]] = json.loads(place.printed().out)
    return found


def _person_commits(place: Place) -> str:
    place.stand_on_branch()
    return commit(place.other, {SOURCE: "int scale() { return 4; }\n"}, branch=BRANCH)


@pytest.mark.parametrize(
    ("files", "stands", "why"),
    [
        ({}, "current", ""),
        ({"README.md": "words"}, "behind", "main has moved on elsewhere"),
        ({SOURCE: MOVED}, "stale", f"main has changed {SOURCE}"),
        ({SOURCE: FIXED}, "moot", "main has these files"),
    ],
)
def test_how_it_stands(place: Place, files: dict[str, str], stands: str, why: str) -> None:
    """By what the base branch has become since."""
    place.open()
    if files:
        commit(place.other, files)
    [one] = _status(place)
    assert (one["stands"], one["why"]) == (stands, why)
    assert (one["number"], one["kernel"], one["branch"]) == (1, "scale-cpu-cpp", BRANCH)
    assert (one["proposal"], one["base"], one["draft"]) == ("run-1/scale-cpu-cpp", "main", True)


def test_a_person_has_committed(place: Place) -> None:
    """It is told, and no proposal is named."""
    place.open()
    _person_commits(place)
    [one] = _status(place)
    assert (one["stands"], one["proposal"]) == ("changed", "")
    assert "ada@team.example" in str(one["why"])


@pytest.mark.exam
def test_the_table_has_what_the_json_has(place: Place) -> None:
    """Number, kernel, how it stands, proposal and why; nothing where there is none."""
    assert main(["pull-request", "status"]) == 0
    assert place.printed().out == "no open pull request of a proposal\n"
    place.open()
    commit(place.other, {SOURCE: MOVED})
    [one] = _status(place)
    assert main(["pull-request", "status"]) == 0
    line = place.printed().out.splitlines()[-1]
    assert [part.strip() for part in line.split("  ") if part.strip()] == [
        f"#{one['number']}",
        one["kernel"],
        one["stands"],
        one["proposal"],
        one["why"],
    ]


def test_others_are_not_listed(place: Place) -> None:
    """A pull request of another branch, of a fork, or without the marker, is none of the bot's."""
    marker = "<!-- cgins:pr:scale-cpu-cpp -->"
    commit(place.other, {"a.txt": "a"}, branch="work")
    place.twin.api.pulls.append(Pull(1, "t", marker, "work", "main", False))
    place.open()
    place.twin.api.pulls[1].body = "words of a person"
    assert _status(place) == []
    place.twin.api.pulls[1].body = marker
    place.twin.api.pulls[1].head_owner = "stranger"
    assert _status(place) == []


@pytest.mark.exam
def test_stale_ones_are_marked_and_unmarked(place: Place) -> None:
    """--mark gives the label and one comment, however often; when the base is as before both are taken back."""
    place.open()
    commit(place.other, {SOURCE: MOVED})
    for _ in range(2):
        _status(place, "--mark")
    api = place.twin.api
    assert api.pulls[0].labels == ["cgins: stale"]
    assert [one.body.splitlines()[1] for one in api.comments] == [
        f"**Stale.** <code>main has changed {SOURCE}</code>"
    ]
    commit(place.other, {SOURCE: BROKEN})
    _status(place, "--mark")
    assert api.pulls[0].labels == []
    assert [one.body.splitlines()[1] for one in api.comments] == ["It was stale, and has another commit now."]


@pytest.mark.exam
def test_open_marks_what_it_finds_stale(place: Place) -> None:
    """A stale proposal marks its own pull request; when the next proposal comes the mark goes."""
    folder = place.propose()
    place.open(folder)
    commit(place.other, {SOURCE: MOVED})
    assert place.open(folder) == 1
    assert "marked #1 " in place.printed().out
    [pull] = place.twin.api.pulls
    assert (pull.labels, pull.state) == (["cgins: stale"], "open")
    better = place.propose({SOURCE: FIXED}, base={SOURCE: MOVED}, name="two", run_id="run-2")
    assert place.open(better) == 0
    assert (pull.labels, len(place.twin.api.pulls), len(place.twin.api.comments)) == ([], 1, 1)
    assert place.source == FIXED


@pytest.mark.exam
def test_a_later_one_that_is_stale_gives_way(place: Place) -> None:
    """An earlier proposal that fits the base branch takes the place of a later one that does not."""
    old = place.propose(base={SOURCE: MOVED})
    place.open(place.better())
    commit(place.other, {SOURCE: MOVED})
    assert place.open(old) == 0
    assert place.source == FIXED
    assert len(place.twin.api.pulls) == 1


@pytest.mark.exam
def test_a_stale_proposal_marks_no_other(place: Place) -> None:
    """The pull request carries a later proposal by now, which fits."""
    old = place.propose()
    commit(place.other, {SOURCE: MOVED})
    place.open(place.propose({SOURCE: FIXED}, base={SOURCE: MOVED}, name="two", run_id="run-2"))
    assert place.open(old) == 1
    assert place.twin.api.pulls[0].labels == []
    assert place.twin.api.comments == []


@pytest.mark.exam
@pytest.mark.parametrize(
    ("options", "closes"),
    [
        (("1",), True),
        (("#1",), True),
        (("--stale",), True),
        (("--moot",), False),
        (("1", "--dry-run"), False),
    ],
)
def test_close(place: Place, options: tuple[str, ...], closes: bool) -> None:
    """By number or by how they stand: a comment, closed, the branch gone; or nothing."""
    place.open()
    commit(place.other, {SOURCE: MOVED})
    assert main(["pull-request", "close", *options, "--reason", "@octo: the <op> is gone"]) == 0
    [pull] = place.twin.api.pulls
    assert (pull.state, place.tip(BRANCH) == "") == (("closed", True) if closes else ("open", False))
    assert len(place.twin.api.comments) == closes
    output = place.printed().out.splitlines()[1:]
    if closes:
        assert output == [f"closed #1 {place.twin.url}/octo/kernels/pull/1"]
        assert "@octo" not in place.twin.api.comments[0].body
        assert "<op>" not in place.twin.api.comments[0].body
    else:
        assert output == (
            [f"dry run: would close #1 {place.twin.url}/octo/kernels/pull/1"]
            if "--dry-run" in options
            else []
        )


def test_a_persons_branch_stays_when_closed(place: Place) -> None:
    """The pull request is closed as asked, and the commits are left."""
    place.open()
    mine = _person_commits(place)
    assert main(["pull-request", "close", "1"]) == 0
    assert place.twin.api.pulls[0].state == "closed"
    assert place.tip(BRANCH) == mine
    assert "; its branch was left: " in place.printed().out


@pytest.mark.exam
def test_close_deletes_what_it_looked_at(place: Place) -> None:
    """The branch is deleted at the commit that git fetched, whatever head REST shows, as GitHub does for a moment."""
    place.open()
    place.twin.api.pulls[0].frozen_sha = place.tip(BRANCH)
    place.open(place.better())
    assert main(["pull-request", "close", "1"]) == 0
    assert (place.twin.api.pulls[0].state, place.tip(BRANCH)) == ("closed", "")


def test_numbers_of_others(place: Place) -> None:
    """What is not an open pull request of the bot's is not closed, and the exit status says so."""
    place.open()
    place.twin.api.pulls[0].body = "mine"
    assert main(["pull-request", "close", "1", "7"]) == 1
    output = place.printed().err
    assert "#1 is not an open pull request of a proposal" in output
    assert "#7 is not an open pull request of a proposal" in output
    assert place.twin.api.pulls[0].state == "open"


def test_close_needs_a_name(place: Place) -> None:
    """Without numbers and without a group nothing is closed."""
    place.open()
    assert main(["pull-request", "close"]) == 2
    assert "give a NUMBER, --moot or --stale" in place.printed().err
    with pytest.raises(SystemExit):
        main(["pull-request", "close", "one"])


@pytest.mark.exam
def test_a_moot_one_is_closed_by_open(place: Place) -> None:
    """The base branch got these files by another way: closed with the reason, the branch deleted, and no more the next time."""
    folder = place.propose()
    place.open(folder)
    commit(place.other, {SOURCE: FIXED})
    assert place.open(folder, "--dry-run") == 0
    assert place.twin.api.pulls[0].state == "open"
    assert place.open(folder) == 0
    assert place.open(folder) == 0
    [pull] = place.twin.api.pulls
    assert (pull.state, place.tip(BRANCH), len(place.twin.api.comments)) == ("closed", "", 1)
    output = place.printed().out.splitlines()
    assert output[1].startswith("dry run: would close #1 ")
    assert output[2].startswith("main already has these files: closed #1 ")
    assert output[3] == "main already has these files: nothing was done"


@pytest.mark.exam
def test_a_moot_one_with_a_persons_commits(place: Place) -> None:
    """It is left open, and its branch is left."""
    folder = place.propose()
    place.open(folder)
    mine = _person_commits(place)
    git(place.other, "checkout", "--quiet", "main")
    commit(place.other, {SOURCE: FIXED})
    assert place.open(folder) == 0
    assert (place.twin.api.pulls[0].state, place.tip(BRANCH)) == ("open", mine)
    assert "commit that is not the bot's" in place.printed().err


@pytest.mark.exam
def test_a_merged_one_is_left(place: Place) -> None:
    """A person merged it: nothing to do, also if it was taken back since."""
    folder = place.propose()
    place.open(folder)
    place.twin.api.merge(place.twin.api.pulls[0])
    assert place.open(folder) == 0
    git(place.other, "pull", "--quiet", "origin", "main")
    commit(place.other, {SOURCE: BROKEN})
    assert place.open(folder) == 0
    assert place.printed().out.splitlines()[1:] == [
        "main already has these files: nothing was done",
        (
            f"#1 {place.twin.url}/octo/kernels/pull/1 with this proposal was merged, "
            "but main no longer has its files: nothing was done"
        ),
    ]
    assert len(place.twin.api.pulls) == 1


@pytest.mark.exam
def test_config_is_not_needed_on_the_base(place: Place) -> None:
    """The list rests on git alone, so that it also shows those whose kernel is no more."""
    place.open()
    commit(place.other, {"cgins.yaml": CONFIG.replace("  scale:", "  other:")})
    [one] = _status(place)
    assert one["stands"] == "behind"


@pytest.mark.exam
def test_the_action_looks_after_them(place: Place) -> None:
    """The script of regenerate.yml closes what is moot and labels what is stale, and its lines are no commands."""
    place.open()
    other = {"kernels/shift.cpp": "int shift() { return 1; }\n"}
    base = {"kernels/shift.cpp": "int shift() { return 0; }\n"}
    place.open(place.propose(other, base=base, name="two", kernel="shift"))
    commit(place.other, {SOURCE: FIXED, "kernels/shift.cpp": "int shift() { return 9; }\n"})
    script = Path(__file__).parents[2] / "action/upkeep.sh"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FOLDER": str(place.clone)}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [(one.state, one.labels) for one in place.twin.api.pulls] == [
        ("closed", []),
        ("open", ["cgins: stale"]),
    ]
    first, *_, last = [line for line in done.stdout.splitlines() if line]
    assert first.startswith("::stop-commands::")
    assert last == f"::{first.rpartition('::')[2]}::"


@pytest.mark.exam
def test_an_earlier_proposal_that_was_merged(place: Place) -> None:
    """Opened again it closes nothing: the later one is open, and is not what the base branch has."""
    first = place.propose()
    commit(place.other, {SOURCE: FIXED})
    better = place.propose({SOURCE: MOVED}, base={SOURCE: FIXED}, name="two", run_id="run-2")
    place.open(better)
    assert place.open(first) == 0
    assert place.printed().out.splitlines()[1] == "main already has these files: nothing was done"
    assert (place.twin.api.pulls[0].state, place.twin.api.comments) == ("open", [])
    assert place.source == MOVED


@pytest.mark.exam
def test_what_the_bot_closed_may_come_again(place: Place) -> None:
    """The base had these files, and somebody took them back: no person closed the pull request."""
    folder = place.propose()
    place.open(folder)
    commit(place.other, {SOURCE: FIXED})
    place.open(folder)
    commit(place.other, {SOURCE: BROKEN})
    assert place.open(folder) == 0
    assert [one.state for one in place.twin.api.pulls] == ["closed", "open"]


@pytest.mark.exam
def test_one_odd_one_does_not_hide_the_others(place: Place) -> None:
    """Where a folder lies in the way on the base branch the pull request is stale, and the list goes on."""
    place.open()
    other, base = {"kernels/shift.cpp": "int shift() { return 1; }\n"}, "int shift() { return 0; }\n"
    place.open(place.propose(other, base={"kernels/shift.cpp": base}, name="two", kernel="shift"))
    git(place.other, "rm", "--quiet", SOURCE)
    commit(place.other, {f"{SOURCE}/inside.cpp": BROKEN})
    assert [(one["kernel"], one["stands"]) for one in _status(place)] == [
        ("shift-cpu-cpp", "behind"),
        ("scale-cpu-cpp", "stale"),
    ]


@pytest.mark.exam
def test_a_person_commits_while_it_is_closed(place: Place) -> None:
    """The branch is not what it was: the pull request stays open, and the comment says so."""
    place.open()
    place.stand_on_branch("--allow-empty", "-m", "Mine")
    mine = place.push("mine")

    def late(_: int, request: Request, when: str) -> None:
        if when == "after" and request.method == "POST" and request.path.endswith("/comments"):
            git(place.bare, "update-ref", f"refs/heads/{BRANCH}", mine)

    place.twin.hook = late
    assert main(["pull-request", "close", "1"]) == 1
    assert (place.twin.api.pulls[0].state, place.tip(BRANCH)) == ("open", mine)
    assert "somebody committed meanwhile" in place.twin.api.comments[0].body
    assert "#1 was left: " in place.printed().err


@pytest.mark.exam
def test_a_label_that_nobody_may_make(place: Place) -> None:
    """The comment is written, the missing label is a note, and the exit status is that of a stale proposal."""
    folder = place.propose()
    place.open(folder)
    place.twin.api.creates_labels = False
    commit(place.other, {SOURCE: MOVED})
    assert place.open(folder) == 1
    assert 'note: there is no label "cgins: stale": make it once' in place.printed().err
    assert main(["pull-request", "status", "--mark"]) == 0
    assert "note: there is no label" in place.printed().err
    assert len(place.twin.api.comments) == 1
