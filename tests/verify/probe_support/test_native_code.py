"""Launchers that enter torch's code: `native_code_cases.py`, in a process that runs nothing else.

Torch's pages are closed while a call is watched; threads and libraries that other tests have left in a process enter them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.exam
def test_cases_hold_in_a_process_of_their_own() -> None:
    """All of them pass, and none is skipped on Linux."""
    cases = Path(__file__).with_name("native_code_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout
    if sys.platform == "linux":
        assert "skipped" not in done.stdout.splitlines()[-1]
