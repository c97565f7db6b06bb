"""Each request of a run goes wrong in each way: the run, or the next one, ends with one right pull request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pull_request.conftest import Place
from tests.pull_request.scenes import SCENES
from tests.pull_request.twin import Fault

pytestmark = pytest.mark.exam

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
"""What is tried each time, of the requests that change something; `make test-exam` tries all."""


def _check(name: str, kind: str, place: Place, monkeypatch: pytest.MonkeyPatch, *, every: bool) -> None:
    scene, faults, survives = SCENES[name], FAULTS[kind], kind in ONCE
    folder, bring_back = scene.begin(place, monkeypatch)
    assert place.open(folder, *scene.options) == scene.code
    scene.check(place)
    numbers = range(place.twin.count) if every else place.changes()
    assert len(numbers) >= 3
    for at in numbers:
        bring_back()
        place.twin.faults = faults(at)
        code = place.open(folder, *scene.options)
        where = faults(at)[0], [f"{request.method} {request.path}" for request in place.twin.requests]
        assert code in (scene.code, 2), where
        if survives:
            assert code == scene.code, where
            scene.check(place)
        if every or not survives:
            place.twin.restart()
            assert place.open(folder, *scene.options) == scene.code, where
            scene.check(place)
        assert place.twin.violations == []


@pytest.mark.parametrize(("name", "kind"), QUICK)
def test_a_request_goes_wrong(name: str, kind: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever request that changes something it is, nothing is lost or doubled, and what passes by itself is survived.

    To lose an answer that was only read changes nothing: tests of the transport hold that it is asked for again.
    """
    _check(name, kind, place, monkeypatch, every=False)


@pytest.mark.parametrize(("name", "kind"), [(scene, fault) for scene in SCENES for fault in FAULTS])
def test_all_that_can_go_wrong(name: str, kind: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for each scene, each kind of trouble and each request."""
    _check(name, kind, place, monkeypatch, every=True)
