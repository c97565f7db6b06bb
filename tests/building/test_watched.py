"""Compilers end with the process that started them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from pytest_cgins.building.compilers.process import run_stages

BUILDER = """
import sys, time
from pathlib import Path
from pytest_cgins.building.compilers.process import run_stages
child = "import os, time; os.setpgid(0, 0); open(f'{os.getpid()}.pid', 'w'); time.sleep(99)"
command = ["sh", "-c", f'"{sys.executable}" -c "{child}" & "{sys.executable}" -c "{child}"']
run_stages([[command, command]], Path(sys.argv[1]), "k", time.monotonic() + 60)
"""


def test_offspring_of_a_killed_builder_ends(tmp_path: Path) -> None:
    """Compilers of a builder that was killed end with it, those in process groups of their own too."""
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, str(tmp_path)])
    deadline = time.monotonic() + 20
    while len(list(tmp_path.glob("*.pid"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    places = [Path("/proc") / file.stem for file in tmp_path.glob("*.pid")]
    assert [place.exists() for place in places] == [True] * 4
    builder.kill()
    builder.wait()
    while any(alive(place) for place in places) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(alive(place) for place in places)


def alive(place: Path) -> bool:
    try:
        return (place / "stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_status_and_input_are_the_command_s(tmp_path: Path) -> None:
    """A command's exit status comes back, a signal as 128 and its number, and it finds nothing to read."""

    def status(script: str) -> int | None:
        return run_stages([[["sh", "-c", script]]], tmp_path, "k", time.monotonic() + 20).status

    assert [status("exit 3"), status("kill -9 $$"), status("read -r x"), status("true")] == [3, 137, 1, 0]
