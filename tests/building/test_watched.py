"""Compilers as processes: they end with the process that started them, and get no secrets."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_cgins.building.compilers.process import run_stages
from tests.building.processes import ended, until

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
    until(lambda: len(list(tmp_path.glob("*.pid"))) == 4)
    pids = [file.stem for file in tmp_path.glob("*.pid")]
    assert not any(ended(pid) for pid in pids)
    builder.kill()
    builder.wait()
    until(lambda: ended(*pids))


def test_status_and_input_are_the_command_s(tmp_path: Path) -> None:
    """A command's exit status comes back, a signal as 128 and its number, and it finds nothing to read."""

    def status(script: str) -> int | None:
        return run_stages([[["sh", "-c", script]]], tmp_path, "k", time.monotonic() + 20).status

    assert [status("exit 3"), status("kill -9 $$"), status("read -r x"), status("true")] == [3, 137, 1, 0]


def test_compilers_get_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that includes /proc/self/environ finds no token there; other variables are passed on."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hush")
    monkeypatch.setenv("HARMLESS", "1")
    done = run_stages([[["env"]]], tmp_path, "k", time.monotonic() + 20, {"ADDED": "2"})
    lines = done.log.splitlines()
    assert done.status == 0
    assert {"HARMLESS=1", "ADDED=2", "LC_ALL=C"} <= set(lines)
    assert not any(line.startswith("DEPLOY_TOKEN") for line in lines)
