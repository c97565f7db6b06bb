"""Two runs with a proposal each for one kernel: one pull request, with commit and words of the later proposal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pull_request import twin as twins
from tests.pull_request.conftest import BETTER, BRANCH, FIXED, SOURCE, Place, git
from tests.pull_request.scenes import MOVED
from tests.pull_request.twin import Request

pytestmark = pytest.mark.exam

TOKENS = pytest.mark.parametrize("token", [twins.BOT, twins.WRITER])


def _check(place: Place) -> None:
    [pull] = place.twin.api.pulls
    assert pull.state == "open"
    assert "the later words" in str(pull.body)
    assert place.source == BETTER
    assert git(place.bare, "rev-list", "--count", f"main..{BRANCH}") == "1"
    heads = git(place.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads/").split()
    assert sorted(heads) == [BRANCH, "main"]


def _two(place: Place) -> tuple[Path, Path]:
    old = place.propose({SOURCE: FIXED}, message="the earlier words")
    new = place.better(message="the later words")
    return old, new


def _within(place: Place, folder: Path, at: int, codes: list[int]) -> Callable[[int, Request, str], None]:
    """A hook that opens a proposal before one request of another run, and keeps the exit status."""

    def hook(index: int, _: Request, when: str) -> None:
        if (index, when) == (at, "before"):
            place.twin.hook = None
            codes.append(place.open(folder))

    return hook


@pytest.mark.parametrize(
    ("first", "there", "token", "every"),
    [
        ("earlier", False, twins.WRITER, False),
        pytest.param("earlier", False, twins.WRITER, True, marks=pytest.mark.exam),
        pytest.param("later", False, twins.BOT, True, marks=pytest.mark.exam),
        pytest.param("earlier", True, twins.BOT, True, marks=pytest.mark.exam),
        pytest.param("later", True, twins.WRITER, True, marks=pytest.mark.exam),
    ],
)
def test_one_within_the_other(
    first: str, there: bool, token: str, every: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a request of the one, that changes something or any, the whole of the other happens: the later proposal
    stays, or its text is said to be wrong."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    if there:
        place.open(place.propose({SOURCE: MOVED}, name="zero", run_id="run-0"))
    old, new = _two(place)
    outer, inner = (old, new) if first == "earlier" else (new, old)
    bring_back = place.keep()
    place.twin.restart()
    place.open(outer)
    numbers = range(place.twin.count) if every else place.changes()
    assert len(numbers) >= 3
    wrong = 0
    for at in numbers:
        codes: list[int] = []
        bring_back()
        place.printed()
        place.twin.hook = _within(place, inner, at, codes)
        code = place.open(outer)
        assert len(codes) == 1
        if "the later words" not in str(place.twin.api.pulls[0].body):
            # Between the look at the branch and the change of the words, which GitHub cannot do in one step.
            wrong += 1
            assert code == 1, at
            assert (
                "has the commit of run-2/scale-cpu-cpp, but the description of another" in place.printed().out
            )
        else:
            assert code == 0, at
            # Inside of the later one the earlier may see its commit before its words.
            assert codes[0] in (0, first == "later"), at
        assert place.open(new) == 0
        _check(place)
    assert wrong <= 1


@TOKENS
def test_both_at_once(token: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the machine has it: what the one cannot do since the other was faster, its next run does."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    folders = _two(place)
    threads = [threading.Thread(target=place.open, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [place.open(folder) for folder in folders] == [0, 0]
    _check(place)


def test_an_earlier_proposal_comes_late(place: Place) -> None:
    """It leaves the later one where it is, and says so."""
    old, new = _two(place)
    place.open(new)
    before = place.tip(BRANCH)
    assert place.open(old) == 0
    assert place.tip(BRANCH) == before
    assert place.printed().out.splitlines()[1] == (
        f"#1 {place.twin.url}/octo/kernels/pull/1 has a later proposal, run-2/scale-cpu-cpp: nothing was done"
    )
    _check(place)
