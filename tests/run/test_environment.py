"""Secrets stay out of workers."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cgins.run import environment
from pytest_cgins.run.process import WorkerProcess


def test_a_worker_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ours without secrets, with what is added, and a mark."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hush")
    monkeypatch.setenv("HARMLESS", "1")
    assert environment.has_secrets()
    made = environment.worker_environment("abc", {"ADDED": "2"})
    assert "DEPLOY_TOKEN" not in made
    assert (made["HARMLESS"], made["ADDED"], made[environment.WORKER_MARK]) == ("1", "2", "abc")
    assert (made["TORCHINDUCTOR_COMPILE_THREADS"], made["OMP_WAIT_POLICY"]) == ("1", "passive")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "5")
    assert environment.worker_environment("abc")["TORCHINDUCTOR_COMPILE_THREADS"] == "5"


@pytest.mark.exam
def test_nothing_tells_a_kernel_that_it_is_gated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the command nor a variable of a worker names pytest, us or a CI, forked or not."""
    for name in ("CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST", "CGINS_CACHE_DIR"):
        monkeypatch.setenv(name, "/tmp")
    for fork in (True, False):
        worker = WorkerProcess.start(
            "pytest_cgins.run.verification_service:VerificationService", name="v", fork=fork
        )
        try:
            worker.wait_until_started()
            command = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
            variables = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
        finally:
            worker.close()
        names = {one.partition(b"=")[0] for one in variables}
        assert b"INVOCATION_ID" in names
        assert command.split(b"\0")[1:-1] == [b"-u", b"-"]
        assert not [one for one in names if re.match(rb"CI$|GITHUB|PYTEST|CGINS", one)]


def test_withheld_are_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """At debug level, the names and no values."""
    monkeypatch.setenv("ONLY_HERE_TOKEN", "hush")
    with caplog.at_level(logging.DEBUG, logger=environment.__name__):
        environment.worker_environment("a")
        environment.worker_environment("b")
    (message,) = caplog.messages
    assert message.startswith("variables that no worker gets: ")
    assert "ONLY_HERE_TOKEN" in message
    assert "hush" not in message


SHIELDED = """
import ctypes
from pytest_cgins.run.environment import shield
prctl = ctypes.CDLL(None).prctl
PR_GET_DUMPABLE = 3
print(prctl(PR_GET_DUMPABLE))
shield()
print(prctl(PR_GET_DUMPABLE))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the switch is Linux's")
def test_a_shielded_process_cannot_be_looked_into() -> None:
    """The system's switch, which others' access to memory, descriptors and environment hangs on, is off."""
    done = subprocess.run([sys.executable, "-c", SHIELDED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
