"""The processes of a worker, where /proc tells of others."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pytest_cgins.run import process_tree
from pytest_cgins.run.process_tree import ProcessTree

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
IN_NAMESPACE = """
import subprocess, sys
from pytest_cgins.run.process_tree import ProcessTree
sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
worker = ProcessTree(sleeper.pid, "no-such-mark")
print(worker.look().processes, worker.is_exiting())
worker.kill()
print(sleeper.wait(timeout=30))
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_proc_of_another_namespace_is_not_believed() -> None:
    """Where /proc shows the host's processes under other numbers, the worker dies and nobody else does."""
    if not shutil.which("unshare") or subprocess.call([*UNSHARE, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", IN_NAMESPACE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.returncode) == (["0", "True", "-9"], 0), done.stderr


def test_kill_spares_its_own_group(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever group a member claims, that of pytest, 0 and -1 are not signalled."""
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))
    monkeypatch.setattr(process_tree, "_send", lambda process, number: sleeper.kill())
    read = process_tree._read

    def claims(pid: int) -> process_tree._Process | None:
        process = read(pid)
        if process is None or pid != sleeper.pid:
            return process
        group = (os.getpgrp(), 0, -1)[len(signalled) % 3]
        return process_tree._Process(
            pid, process.parent, group, process.session, process.started, 1, 0, process.is_zombie
        )

    monkeypatch.setattr(process_tree, "_read", claims)
    ProcessTree(sleeper.pid, "no-such-mark").kill()
    assert set(signalled) == {sleeper.pid}


def test_a_process_that_survives_is_told(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What hangs in a driver does not die of SIGKILL: a warning has its number."""
    monkeypatch.setattr(process_tree, "_KILL_S", 0.05)
    monkeypatch.setattr(process_tree, "_send", lambda process, number: None)
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    with caplog.at_level(logging.WARNING, logger=process_tree.__name__):
        ProcessTree(sleeper.pid, "no-such-mark").kill()
    assert caplog.messages == [f"0.05 s after SIGKILL these processes of a worker still run: {sleeper.pid}"]


def test_strangers_are_read_twice_in_a_kill(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes are looked at when it begins and when it ends, and not in every round between."""
    reads: list[int] = []
    rounds: list[int] = []
    read = process_tree._read

    def counted(pid: int) -> process_tree._Process | None:
        reads.append(pid)
        return read(pid)

    def kill(process: process_tree._Process, number: int) -> None:
        rounds.append(process.pid)
        if len(rounds) == 5:
            sleeper.kill()

    monkeypatch.setattr(process_tree, "_read", counted)
    monkeypatch.setattr(process_tree, "_send", kill)
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    ProcessTree(sleeper.pid, "no-such-mark").kill()
    assert len(rounds) >= 5
    assert reads.count(os.getpid()) == 2
