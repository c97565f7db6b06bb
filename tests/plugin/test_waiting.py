"""A run that waits says so at once, past capture and out of xdist's workers, and sums it up at its end."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.forked_python import gate_python

pytestmark = pytest.mark.exam

# Has the CPU to itself until it is told to go on.
HOLDER = """
import sys
from pytest_cgins.timing import lock
with lock.timing("cpu", wait_s=60):
    print("held", flush=True)
    sys.stdin.readline()
"""
LINE = r"cgins: waiting for cpu: process (\d+) of \S+ has been timing since .+"
CASE = "relu and right and 2x3"


class Holder:
    """A process that times on the CPU."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def go_on(self) -> None:
        self.process.communicate("\n")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Locks of its own, for a run of pytest with our plugin and no other."""
    folder = tmp_path / "locks"
    folder.mkdir()
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_XDIST") and name != "CI"
    }
    return {**found, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "240", "CGINS_LOCK_DIR": str(folder)}


def command(*options: str) -> list[str]:
    base = [str(gate_python().executable()), "-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins"]
    return [*base, "--cgins-no-timing", "-k", CASE, *options]


def read_until_free(stream: int, holder: Holder) -> str:
    """All that a run prints; the device is given up 1.5 s after the run has said that it waits for it."""
    said = ""
    while True:
        try:
            data = os.read(stream, 65536)
        except OSError:  # a terminal that nobody has open any more
            break
        if not data:
            break
        said += data.decode(errors="replace")
        if "waiting for cpu" in said and holder.process.returncode is None:
            time.sleep(1.5)
            holder.go_on()
    return said


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_a_device_that_is_taken(project: Path, environment: dict[str, str], options: list[str]) -> None:
    """The line comes while the device is still held, on a line of its own though it is no terminal; so does the sum."""
    holder = Holder(environment)
    # If it is not said live, this ends the test, whose first assertion fails.
    late = threading.Timer(60, holder.process.kill)
    late.start()
    with subprocess.Popen(
        command(*options), cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        said = read_until_free(process.stdout.fileno(), holder)
    late.cancel()
    lines = said.splitlines()
    (line,) = [found for one in lines if (found := re.fullmatch(LINE, one))]
    assert int(line[1]) == holder.process.pid
    assert holder.process.returncode == 0
    (total,) = [
        found
        for one in lines
        if (found := re.match(r"cgins: waited (\d+) s for cpu.* \(process (\d+) of", one))
    ]
    assert 3 <= int(total[1]) <= 20
    assert int(total[2]) == holder.process.pid
    assert " passed" in lines[-1], said


def test_nothing_is_said_of_a_free_device(project: Path, environment: dict[str, str]) -> None:
    """A run that is alone waits for no device."""
    done = subprocess.run(
        command(), cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert " passed" in done.stdout
    assert "for cpu" not in done.stdout + done.stderr


def test_the_line_on_a_terminal(project: Path, environment: dict[str, str]) -> None:
    """There it begins a line, clears what is drawn below, and the run goes on after it."""
    holder = Holder(environment)
    late = threading.Timer(60, holder.process.kill)
    late.start()
    master, slave = pty.openpty()
    with subprocess.Popen(
        command(), cwd=project, env={**environment, "TERM": "xterm"}, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        said = read_until_free(master, holder)
    os.close(master)
    late.cancel()
    assert process.returncode == 0, said
    assert len(re.findall(r"cgins\.yaml \x1b\[J\r\n" + LINE + r"\r\n", said)) == 1, said
