"""A project to run the action in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.action.github_parsers import Parsers, Unavailable, serve
from tests.action.local_runner import Runner

SOURCE = Path(__file__).parent / "project"


@pytest.fixture(scope="session")
def recorded(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The project with its trace pack, in a folder whose name has a blank."""

    def make(place: Path) -> None:
        folder = place / "my project"
        shutil.copytree(SOURCE, folder)
        # Under its own name, the conftest of the repository under test would be one of this test suite.
        (folder / "hostile_conftest.py").rename(folder / "conftest.py")
        subprocess.run([sys.executable, "record_tiny.py"], cwd=folder, check=True)
        (folder / "pytest.ini").write_text("[pytest]\n")

    return made_once("action-recorded", make) / "my project"


@pytest.fixture
def workspace(recorded: Path, tmp_path: Path) -> Path:
    """A checkout with a copy of the project in its folder `my project`."""
    checkout = tmp_path / "check out"
    shutil.copytree(recorded, checkout / "my project")
    return checkout


@pytest.fixture(scope="session")
def parsers() -> Iterator[Parsers]:
    """GitHub's own parsers; without npm's packages there is nothing to test with."""
    try:
        with serve() as found:
            yield found
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def runner(parsers: Parsers) -> Runner:
    """What runs the action."""
    return Runner(parsers)
