"""A run is killed at each step: the next one ends with one right pull request, with nothing lost or doubled."""

from __future__ import annotations

import os
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.pull_request.conftest import Place
from tests.pull_request.scenes import SCENES, Scene
from tests.pull_request.twin import Request

pytestmark = pytest.mark.exam


def _killed(place: Place, scene: Scene, folder: Path, at: int) -> bool:
    """Run the command in a process, and kill that when the server has done one request and not yet answered it."""
    begin, begun = os.pipe()
    # A fork has all that the command imports.
    process = os.fork()
    if process == 0:
        try:
            os.setsid()
            os.read(begin, 1)
            with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                os._exit(place.open(folder, *scene.options))
        finally:
            os._exit(3)

    def hook(index: int, _: Request, when: str) -> None:
        if (index, when) == (at, "after"):
            os.killpg(process, signal.SIGKILL)

    place.twin.hook = hook
    os.write(begun, b"x")
    status = os.waitpid(process, 0)[1]
    os.close(begin)
    os.close(begun)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def _check(name: str, place: Place, monkeypatch: pytest.MonkeyPatch, *, every: bool) -> None:
    scene = SCENES[name]
    folder, bring_back = scene.begin(place, monkeypatch)
    assert place.open(folder, *scene.options) == scene.code
    numbers = range(place.twin.count) if every else place.changes()
    assert len(numbers) >= 3
    for at in numbers:
        bring_back()
        assert _killed(place, scene, folder, at)
        place.twin.restart()
        assert place.open(folder, *scene.options) == scene.code, at
        scene.check(place)


def test_killed_after_each_change(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server has done when a request is not answered yet is all that the next run finds."""
    _check("moved-person", place, monkeypatch, every=False)


@pytest.mark.parametrize("name", sorted(SCENES))
def test_killed_in_all_scenes(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for each request, and for what else a proposal can meet."""
    _check(name, place, monkeypatch, every=True)
