"""A process that a kernel has stopped goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.run import worker
from pytest_cgins.run.pool import WorkerPool
from tests.building.processes import state, until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def _stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state(process.pid) == "T")


def test_a_stopped_process_goes_on(sleeper: subprocess.Popen[bytes]) -> None:
    """However often it is stopped; whoever looks after it ends with it."""
    _stop(sleeper)
    thread = worker.keep_running(sleeper.pid, look_s=0.005)
    for _ in range(2):
        until(lambda: state(sleeper.pid) != "T")
        _stop(sleeper)
    sleeper.kill()
    sleeper.wait()
    thread.join(60)
    assert not thread.is_alive()


def test_a_process_that_a_shell_has_in_hand_is_left_alone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-Z the terminal's foreground is another group's."""
    _stop(sleeper)
    assert worker._is_stopped(sleeper.pid) is True
    taken = Path(f"/proc/{sleeper.pid}/stat").read_text().split()
    taken[7] = str(os.getpid())  # tpgid
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: " ".join(taken))
    assert worker._is_stopped(sleeper.pid) is False


def test_trusted_workers_alone_are_told_whom_to_look_after() -> None:
    """What runs a kernel learns nothing of pytest's process."""
    toy = "tests.run.toys:Toy"
    with WorkerPool(services={"reference": toy, "verification": toy}) as pool:
        told = {
            role: "cgins-resume" in pool.call(role, "thread_names", {}, timeout_s=60).result
            for role in ("reference", "verification")
        }
    assert told == {"reference": True, "verification": False}
