"""Commands that are suspended, resumed and killed with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_cgins.building.compilers.running import Compilers
from pytest_cgins.core.errors import InfrastructureError
from tests.building.processes import ended, state, until

NOWHERE = open(os.devnull, "wb")  # noqa: SIM115, PTH123
# As ninja does it: the child has a process group of its own. Both count upwards in a file.
COUNTS = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    name = "child"
else:
    name = "parent"
open(name + ".pid", "w").write(str(os.getpid()))
for index in range(4000):
    with open(name, "w") as file:
        file.write(str(index))
    time.sleep(0.005)
"""


Started = tuple[Compilers, subprocess.Popen[bytes], list[int]]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """A command with a child in another process group, and the pids of both."""
    compilers = Compilers()
    process = compilers.start(
        [sys.executable, "-c", COUNTS], folder=tmp_path, environment=dict(os.environ), log=NOWHERE
    )
    until(lambda: all((tmp_path / name).exists() for name in ("child", "parent")))
    pids = [int((tmp_path / f"{name}.pid").read_text()) for name in ("child", "parent")]
    return compilers, process, pids


def test_nothing_runs_while_suspended(started: Started, tmp_path: Path) -> None:
    """A command and its child in another process group are stopped, and go on afterwards."""
    compilers, process, pids = started
    with compilers.suspended():
        until(lambda: [state(pid) for pid in pids] == ["T", "T"])
        before = [(tmp_path / name).read_text() for name in ("child", "parent")]
        time.sleep(0.1)
        assert [(tmp_path / name).read_text() for name in ("child", "parent")] == before
    until(lambda: "T" not in [state(pid) for pid in pids])
    compilers.end(process)


def test_ending_reaches_other_process_groups(
    started: Started,
) -> None:
    """What ninja started is killed with ninja."""
    compilers, process, pids = started
    compilers.end(process)
    until(lambda: ended(*pids))


def test_nothing_starts_while_suspended(tmp_path: Path) -> None:
    """Commands and compilations in this process wait until nothing is timed."""
    compilers = Compilers()
    order: list[str] = []

    def compile_twice() -> None:
        process = compilers.start(["true"], folder=tmp_path, environment={}, log=NOWHERE)
        order.append("command")
        assert compilers.wait(process, time.monotonic() + 20)
        compilers.end(process)
        with compilers.in_process():
            order.append("library")

    thread = threading.Thread(target=compile_twice)
    with compilers.suspended():
        thread.start()
        time.sleep(0.05)
        order.append("timed")
    thread.join()
    assert order == ["timed", "command", "library"]


def test_timing_waits_for_a_library() -> None:
    """A compilation in this process cannot be stopped, so it is waited for."""
    compilers = Compilers()
    order: list[str] = []
    inside = threading.Event()

    def compile_() -> None:
        with compilers.in_process():
            inside.set()
            time.sleep(0.05)
            order.append("compiled")

    thread = threading.Thread(target=compile_)
    thread.start()
    inside.wait()
    with compilers.suspended():
        order.append("timed")
    thread.join()
    assert order == ["compiled", "timed"]


def test_suspension_does_not_count_for_the_deadline(
    started: Started,
) -> None:
    """A limit of 0.3 s is not over after 0.5 s of which 0.4 s were spent suspended."""
    compilers, process, _ = started
    found: list[tuple[bool, float]] = []
    began = time.monotonic()
    thread = threading.Thread(
        target=lambda: found.append((compilers.wait(process, began + 0.3), time.monotonic() - began))
    )
    thread.start()
    with compilers.suspended():
        time.sleep(0.4)
    thread.join()
    compilers.end(process)
    ((ended, seconds),) = found
    assert not ended
    assert seconds >= 0.7


def test_an_exception_while_suspending_leaves_nothing_suspended(
    started: Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pytest-timeout may raise anywhere: what was stopped by then goes on, and later commands start."""
    compilers, process, pids = started
    kill = os.kill

    def interrupted(pid: int, number: int) -> None:
        kill(pid, number)
        raise TimeoutError

    monkeypatch.setattr(os, "kill", interrupted)
    with pytest.raises(TimeoutError), compilers.suspended():
        pass
    monkeypatch.undo()
    until(lambda: "T" not in [state(pid) for pid in pids])
    later = threading.Thread(
        target=compilers.start,
        args=(["true"],),
        kwargs={"folder": tmp_path, "environment": {}, "log": NOWHERE},
        daemon=True,
    )
    later.start()
    later.join(20)
    assert not later.is_alive()
    compilers.end(process)


def test_the_end_of_a_command_is_seen_at_once(tmp_path: Path) -> None:
    """A command of 70 ms is not waited for in growing steps."""
    compilers = Compilers()
    late_s = []
    for _ in range(5):
        process = compilers.start(
            ["/bin/sh", "-c", "sleep 0.07; date +%s%N > ended"], folder=tmp_path, environment=dict(os.environ),
            log=NOWHERE,
        )  # fmt: skip
        assert compilers.wait(process, time.monotonic() + 20)
        late_s.append(time.time() - int((tmp_path / "ended").read_text()) / 1e9)
        compilers.end(process)
    assert min(late_s) < 0.02


def test_closing_kills_and_refuses(started: Started, tmp_path: Path) -> None:
    """After the end of a run no compiler is left, stopped ones included, and none starts."""
    compilers, process, pids = started
    with compilers.suspended():
        compilers.close()
        until(lambda: ended(*pids))
    assert compilers.wait(process, time.monotonic() + 20)
    with pytest.raises(InfrastructureError, match="the run ended"):
        compilers.start(["true"], folder=tmp_path, environment={}, log=NOWHERE)
    with pytest.raises(InfrastructureError, match="the run ended"), compilers.in_process():
        pass


def test_a_killed_run_leaves_nothing_suspended(tmp_path: Path) -> None:
    """When this process is killed in the middle of a timing, its compilers are not left stopped: they end."""
    script = """
        import os, sys, time
        from pathlib import Path
        from pytest_cgins.building.compilers.running import Compilers
        compilers = Compilers()
        compilers.start(["sleep", "30"], folder=Path("."), environment=dict(os.environ), log=open("log", "wb"))
        with compilers.suspended():
            print(*compilers._running, flush=True)
            time.sleep(60)
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    try:
        until(lambda: state(pid) in ("T", "D"))  # D: a shell whose child was stopped between vfork and exec
        run.kill()
        run.wait()
        until(lambda: ended(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        run.stdout.close()
