"""A run is killed at each step: the next one ends with one right pull request, with nothing lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pull_request.conftest import Place, Places
from tests.pull_request.scenes import SCENES, Scene
from tests.pull_request.twin import Request

QUICK = ("moved-person",)
_RUN = "import sys; from pytest_cgins.app.cli import main; sys.exit(main(sys.argv[1:]))"


def _killed(place: Place, scene: Scene, folder: Path, at: int) -> bool:
    """Run the command in a process, and kill that when the server has done one request and not yet answered it."""
    command = [sys.executable, "-c", _RUN, "pull-request", "open", "--proposal", str(folder), *scene.options]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )

    def hook(index: int, _: Request, when: str) -> None:
        if (index, when) == (at, "after"):
            os.killpg(process.pid, signal.SIGKILL)

    # The process takes longer to start than this line.
    place.twin.hook = hook
    process.communicate()
    return process.returncode == -signal.SIGKILL


def _each_step(places: Places, scene: Scene) -> None:
    with places() as place:
        folder = scene.prepare(place)
        place.twin.restart()
        assert place.open(folder, *scene.options) == scene.code
        requests = place.twin.count
    assert requests > 8
    for at in range(requests):
        with places() as place:
            folder = scene.prepare(place)
            place.twin.restart()
            assert _killed(place, scene, folder, at)
            place.twin.restart()
            assert place.open(folder, *scene.options) == scene.code, at
            scene.check(place)


@pytest.mark.parametrize("name", QUICK)
def test_killed_after_each_request(name: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server has done when a request is not answered yet is all that the next run finds."""
    monkeypatch.setenv("GITHUB_TOKEN", SCENES[name].token)
    _each_step(places, SCENES[name])


@pytest.mark.exam
@pytest.mark.parametrize("name", sorted(set(SCENES) - set(QUICK)))
def test_killed_in_all_scenes(name: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for what else a proposal can meet."""
    monkeypatch.setenv("GITHUB_TOKEN", SCENES[name].token)
    _each_step(places, SCENES[name])
