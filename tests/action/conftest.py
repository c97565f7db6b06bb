"""A project to run the action in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "project"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with its trace pack, in a folder whose name has a blank."""
    folder = tmp_path_factory.mktemp("recorded") / "my project"
    shutil.copytree(SOURCE, folder)
    # Under its own name, the conftest of the repository under test would be one of this test suite.
    (folder / "hostile_conftest.py").rename(folder / "conftest.py")
    subprocess.run([sys.executable, "record_tiny.py"], cwd=folder, check=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


@pytest.fixture
def workspace(recorded: Path, tmp_path: Path) -> Path:
    """A checkout with a copy of the project in its folder `my project`."""
    checkout = tmp_path / "check out"
    shutil.copytree(recorded, checkout / "my project")
    return checkout
