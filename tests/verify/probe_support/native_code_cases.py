"""Launchers that enter torch's code, and those that have no need of it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from pytest_cgins.verify.probe_support.native_code import MOST_CALLS, TORCH, Guarded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torch's code is found in /proc/self/maps")
LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def _told(function: object, calls: int = 1) -> list[str]:
    told: list[str] = []
    guarded = Guarded(function, told.append)
    for _ in range(calls):
        guarded()
    return told


def test_torch_s_code_is_named_and_still_runs() -> None:
    """Its answer is its own, and torch computes as before afterwards."""
    function = ctypes.CDLL(str(LIBRARY)).aoti_torch_grad_mode_is_enabled
    function.restype = ctypes.c_bool
    told: list[str] = []
    assert Guarded(function, told.append)() == 1
    assert told == [f"{TORCH}aoti_torch_grad_mode_is_enabled"]
    assert torch.equal(torch.ones(3) + 1, torch.full((3,), 2.0))


def test_other_code_is_not() -> None:
    """Of C's library, and Python's own in another thread meanwhile."""
    assert _told(ctypes.CDLL(None).getpid, MOST_CALLS + 1) == []
    thread = threading.Thread(target=lambda: sum(range(100_000)))
    thread.start()
    assert _told(lambda: 0) == []
    thread.join()


def test_a_thread_of_the_function_is_seen() -> None:
    """Whoever enters it, while the function runs."""

    def run() -> int:
        thread = threading.Thread(target=torch.ones, args=(3,))
        thread.start()
        thread.join()
        return 0

    assert _told(run)


BEGIN = f"""
import ctypes, os, signal
import torch
from pytest_cgins.verify.probe_support.native_code import Guarded
torch_code = ctypes.CDLL({str(LIBRARY)!r}).aoti_torch_grad_mode_is_enabled
"""


@pytest.mark.parametrize(
    ("function", "status"),
    [
        ("ctypes.CDLL(None).memset", -11),  # its own fault, as without a guard
        ("lambda *_: os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1])", 0),
    ],
)
def test_faults_end_who_causes_them(function: str, status: int) -> None:
    """The process of a kernel that faults, and the child that computes by torch for it."""
    text = f"""{BEGIN}
def child():
    number = os.fork()
    if number == 0:
        torch_code()
        os._exit(0)
    return number
result = Guarded({function}, print)(0, 0, 1)
assert result == -signal.SIGSEGV, result
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr
