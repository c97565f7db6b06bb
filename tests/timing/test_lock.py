"""One timing at a time on a device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pytest_cgins.errors import InfrastructureError
from pytest_cgins.timing import lock

HOLDER = """
import sys, time
from pathlib import Path
from pytest_cgins.timing.lock import exclusive
with exclusive("gpu-1", wait_s=5, folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_another_process_waits_and_gives_up(tmp_path: Path) -> None:
    """While one process times, another waits no longer than told, and says what it waited for."""
    holder = hold(tmp_path)
    try:
        start = time.monotonic()
        with (
            pytest.raises(InfrastructureError) as caught,
            lock.exclusive("gpu-1", wait_s=0.1, folder=tmp_path),
        ):
            pass
        assert time.monotonic() - start < 5
        assert "another process has been timing on gpu-1 for 0.1 s" in caught.value.what
        assert "fewer processes" in caught.value.remedy
        with lock.exclusive("gpu-2", wait_s=0.1, folder=tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_a_process_that_dies_gives_the_device_back(tmp_path: Path) -> None:
    """No stale lock is left by a crash."""
    holder = hold(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lock.exclusive("gpu-1", wait_s=2, folder=tmp_path):
        pass


def test_the_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    """An arm that raises does not keep the device."""
    with pytest.raises(KeyError), lock.exclusive("cpu", wait_s=1, folder=tmp_path):
        raise KeyError
    with lock.exclusive("cpu", wait_s=0.1, folder=tmp_path):
        pass


def test_the_default_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock files lie where no other user can take them, and a folder that others can write is refused."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with lock.exclusive("cpu", wait_s=1):
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(InfrastructureError, match="only this user"), lock.exclusive("cpu", wait_s=1):
        pass
