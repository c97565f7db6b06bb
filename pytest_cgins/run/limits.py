"""What a worker may take of the machine while it is waited for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.building.cache.space import named_size

MEMORY_VARIABLE = "CGINS_WORKER_MEMORY"
"""Environment variable with the limit of one worker's resident memory, as `8GiB` or `500MB`."""

_SHARE = 0.8
_LEAST_BYTES = 2 * 2**30
_FALLBACK_BYTES = 64 * 2**30  # where the system does not say how much there is
_CGROUP = Path("/sys/fs/cgroup")


def memory_limit() -> int:
    """Bytes that a worker and its descendants may hold together.

    `$CGINS_WORKER_MEMORY`, else four fifths of what is free now, but no less than torch and a case need.

    Raises:
        ConfigError: the variable is not a size.
    """
    named = named_size(MEMORY_VARIABLE)
    return max(_LEAST_BYTES, int(_SHARE * available_bytes())) if named is None else named


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Beyond any of these a worker is killed."""

    memory_bytes: int = field(default_factory=memory_limit)
    """Resident memory of the worker and all its descendants."""
    output_bytes: int = 64 * 2**20
    """What it prints to stdout and stderr during one request."""
    processes: int = 128
    """Most descendants of the worker that live at the same time."""
    threads: int = 8192
    """Threads of the worker and its descendants."""


def available_bytes() -> int:
    """Memory that could be taken now without swapping: of the machine, or of the container where that has less."""
    found = [_FALLBACK_BYTES]
    with suppress(OSError, ValueError, IndexError):
        found = [named_number(Path("/proc/meminfo"), "MemAvailable:") * 1024]
    for limit, used, stat, prefix in (
        ("memory.max", "memory.current", "memory.stat", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
    ):
        with suppress(OSError, ValueError):  # "max": no limit
            most, taken = int((_CGROUP / limit).read_text()), int((_CGROUP / used).read_text())
            # Files in the page cache count as used, and go as soon as anybody needs their place.
            cached = _cached_bytes(_CGROUP / stat, prefix)
            found.append(max(0, most - max(0, taken - cached)))
    return min(found)


def memory_kills() -> int:
    """How many processes of this machine the system has killed for memory so far; 0 where it does not say."""
    with suppress(OSError, ValueError):
        return named_number(Path("/proc/vmstat"), "oom_kill ")
    return 0


def _cached_bytes(stat: Path, prefix: str) -> int:
    """Page cache of files in a cgroup's `memory.stat`; 0 if it does not say."""
    wanted = {f"{prefix}inactive_file", f"{prefix}active_file"}
    with suppress(OSError, ValueError):
        pairs = (line.split() for line in stat.read_text().splitlines())
        return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in wanted)
    return 0


def named_number(file: Path, name: str) -> int:
    """The number of the first line that begins so.

    Raises:
        OSError, ValueError, IndexError: there is none.
    """
    for line in file.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise ValueError(name)
