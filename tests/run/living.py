"""What tests of workers ask: of a worker, and whether its process lives."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pytest_cgins.run.pool import WorkerPool

LIMIT_S = 30.0


def ask(pool: WorkerPool, method: str, role: str = "toy", **params: Any) -> Any:
    """What a worker answers."""
    return pool.call(role, method, params, timeout_s=LIMIT_S).result


def open_descriptors() -> int:
    """How many this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> bool:
    """Whether it ends within five seconds."""
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)
