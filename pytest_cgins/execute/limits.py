"""What a worker may take of the machine while it is waited for."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.errors import ConfigError
from pytest_cgins.kernels.cache_space import parse_size

MEMORY_VARIABLE = "CGINS_WORKER_MEMORY"
"""Environment variable with the limit of one worker's resident memory, as `8GiB` or `500MB`."""

_SHARE = 0.8
_LEAST_BYTES = 2 * 2**30
_FALLBACK_BYTES = 64 * 2**30  # where the system does not say how much there is


def memory_limit() -> int:
    """Bytes that a worker and its descendants may hold together.

    `$CGINS_WORKER_MEMORY`, else four fifths of what is free now, but no less than torch and a case need.

    Raises:
        ConfigError: the variable is not a size.
    """
    named = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not named:
        return max(_LEAST_BYTES, int(_SHARE * available_bytes()))
    try:
        return parse_size(named)
    except ValueError as error:
        raise ConfigError(
            f"{MEMORY_VARIABLE}: {error}", remedy="write bytes, or a number with a unit: 500MB, 8GiB"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Beyond any of these a worker is killed."""

    memory_bytes: int = field(default_factory=memory_limit)
    """Resident memory of the worker and all its descendants."""
    output_bytes: int = 64 * 2**20
    """What it prints to stdout and stderr during one request."""
    processes: int = 128
    """Its descendants that live at the same time."""
    threads: int = 8192
    """Threads of the worker and its descendants."""


def available_bytes() -> int:
    """Memory that could be taken now without swapping: of the machine, or of the container where that has less."""
    found = [_FALLBACK_BYTES]
    with suppress(OSError, ValueError, IndexError):
        found = [_named_kib("MemAvailable") * 1024]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(max(0, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return min(found)


def memory_kills() -> int:
    """How many processes of this machine the system has killed for memory so far; 0 where it does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _named_kib(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(name)
