"""Each request of a run goes wrong in each way: the run, or the next one, ends with one right pull request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pull_request.conftest import Place, Places
from tests.pull_request.scenes import SCENES, Scene
from tests.pull_request.twin import Fault

SECONDARY = "You have exceeded a secondary rate limit"
STEPS = 100
"""More requests than any run sends."""
RETRY = {"Retry-After": "1"}

Faults = Callable[[int], list[Fault]]

ONCE: dict[str, Faults] = {
    "dropped": lambda at: [Fault(kind="drop", at=at)],
    "lost": lambda at: [Fault(kind="lost", at=at)],
    "cut": lambda at: [Fault(kind="cut", at=at)],
    "502": lambda at: [Fault(status=502, at=at)],
    "429": lambda at: [Fault(status=429, at=at, headers=RETRY)],
    "secondary": lambda at: [Fault(status=403, at=at, headers=RETRY, message=SECONDARY)],
}
"""Trouble that passes."""
REFUSED: dict[str, Faults] = {
    str(status): (lambda at, status=status: [Fault(status=status, at=at)])  # type: ignore[misc]
    for status in (401, 403, 404, 409, 422)
}
"""What a run cannot go on with, or must find another way around."""
GONE: dict[str, Faults] = {"gone": lambda at: [Fault(kind="drop", at=one) for one in range(at, at + STEPS)]}
"""Nothing is answered from there on."""
FAULTS = {**ONCE, **REFUSED, **GONE}
QUICK = [("new-person", "lost"), ("moved-app", "gone")]
"""What is tried each time; `make test-exam` tries them all."""
ALL = [(scene, fault) for scene in SCENES for fault in FAULTS if (scene, fault) not in QUICK]


def _each_request(places: Places, scene: Scene, fault: Faults, *, survives: bool) -> None:
    with places() as place:
        folder = scene.prepare(place)
        bring_back = place.keep()
        place.twin.restart()
        assert place.open(folder, *scene.options) == scene.code
        scene.check(place)
        requests = place.twin.count
        assert requests > 8
        for at in range(requests):
            bring_back()
            _request_fails(place, folder, scene, fault(at), survives=survives)
            assert place.twin.violations == []


def _request_fails(place: Place, folder: Path, scene: Scene, faults: list[Fault], *, survives: bool) -> None:
    place.twin.faults = faults
    code = place.open(folder, *scene.options)
    where = [f"{one.method} {one.path}" for one in place.twin.requests]
    assert code in (scene.code, 2), where
    if survives:
        assert code == scene.code, (faults[0], where)
        scene.check(place)
    place.twin.restart()
    assert place.open(folder, *scene.options) == scene.code, (faults[0], where)
    scene.check(place)


def _check(name: str, kind: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SCENES[name]
    monkeypatch.setenv("GITHUB_TOKEN", scene.token)
    _each_request(places, scene, FAULTS[kind], survives=kind in ONCE)


@pytest.mark.parametrize(("name", "kind"), QUICK)
def test_a_request_goes_wrong(name: str, kind: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever request it is, nothing is lost or doubled, and what passes by itself is survived by the run itself."""
    _check(name, kind, places, monkeypatch)


@pytest.mark.exam
@pytest.mark.parametrize(("name", "kind"), ALL)
def test_all_that_can_go_wrong(name: str, kind: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for each scene and each kind of trouble."""
    _check(name, kind, places, monkeypatch)
