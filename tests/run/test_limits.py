"""What a worker may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.run import limits


@pytest.mark.parametrize(("free_gib", "limit_gib"), [(100, 80), (1, 2)])
def test_memory_is_limited_by_the_free(
    monkeypatch: pytest.MonkeyPatch, free_gib: int, limit_gib: int
) -> None:
    """By default four fifths of what is available when the limit is asked for, and enough for torch."""
    monkeypatch.delenv(limits.MEMORY_VARIABLE, raising=False)
    monkeypatch.setattr(limits, "available_bytes", lambda: free_gib * 2**30)
    assert limits.Limits().memory_bytes == limit_gib * 2**30


def test_available_memory_is_plausible() -> None:
    """It is more than nothing, and no more than the machine has."""
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < limits.available_bytes() <= total


@pytest.mark.parametrize(
    ("limit", "used", "stat", "prefix"),
    [
        ("memory.max", "memory.current", "memory.stat", ""),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_"),
    ],
)
def test_a_container_s_page_cache_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, used: str, stat: str, prefix: str
) -> None:
    """Files that were read, a checkpoint or a library, take nothing from a worker in a container with a limit."""
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("8000000\n")
    (tmp_path / used).write_text("7900000\n")
    (tmp_path / stat).write_text(f"anon 900000\n{prefix}inactive_file 5000000\n{prefix}active_file 2000000\n")
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    assert limits.available_bytes() == 7_100_000


def test_memory_limit_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """CGINS_WORKER_MEMORY takes sizes with units."""
    monkeypatch.setenv(limits.MEMORY_VARIABLE, "1.5GiB")
    assert limits.Limits().memory_bytes == 3 * 2**29


def test_what_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the variable, its value and an example."""
    monkeypatch.setenv(limits.MEMORY_VARIABLE, "much")
    with pytest.raises(ConfigError) as caught:
        limits.Limits()
    assert str(caught.value) == (
        'CGINS_WORKER_MEMORY: "much" is not a size\n→ write bytes, or a number with a unit: 500MB, 8GiB'
    )
