"""How many builds a machine runs at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pytest_cgins.building.compilers import slots
from pytest_cgins.core.errors import InfrastructureError
from tests.building.processes import holding

HOLDER = """
import sys, time
from pathlib import Path
from pytest_cgins.building.compilers import slots
with slots.hold(Path(sys.argv[1]), "other", int(sys.argv[2]), time.monotonic() + 60):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def three_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "3")


def at_once(calls: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def test_no_more_than_slots_at_once(tmp_path: Path) -> None:
    """Threads and other processes share the slots, and all get one in the end."""
    running = most = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with slots.hold(tmp_path, "k", 1, time.monotonic() + 30):
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.05)
            with lock:
                running -= 1

    with holding(HOLDER, tmp_path, 1):
        at_once([work] * 8)
    assert most == 2


def test_a_killed_holder_frees_its_slots(tmp_path: Path) -> None:
    """A holder that is killed is as good as one that is done; until then the wait ends at its deadline."""
    with holding(HOLDER, tmp_path, 10**15) as (other, _):  # all slots
        told = pytest.raises(InfrastructureError, match="3 build slots were taken")
        with told, slots.hold(tmp_path, "k", 1, time.monotonic() + 0.2):
            pass
        other.kill()
        with slots.hold(tmp_path, "k", 10**15, time.monotonic() + 5):
            pass


def test_memory_takes_slots() -> None:
    """A build that takes a share of the memory takes the same share of the slots, at least one, at most all."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert [slots.needed(nbytes) for nbytes in (1, memory // 2, memory, 9 * memory)] == [1, 2, 3, 3]
    assert [slots.needed(1, jobs) for jobs in (1, 2, 7)] == [1, 2, 3]


def test_large_builds_do_not_starve_or_block_each_other(tmp_path: Path) -> None:
    """Builds that each need two of three slots come one after the other, beside small ones."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    done: list[str] = []

    def work(name: str, nbytes: int) -> None:
        with slots.hold(tmp_path, name, nbytes, time.monotonic() + 30):
            time.sleep(0.02)
            done.append(name)

    at_once([partial(work, f"{i}", memory // 2 if i % 2 else 1) for i in range(12)])
    assert sorted(done, key=int) == [str(i) for i in range(12)]


def test_default_is_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without $MAX_JOBS, or with one that is not a number, there is a slot for each core that may be used."""
    for value in ("", "many", "0"):
        monkeypatch.setenv("MAX_JOBS", value)
        assert slots.count() == len(os.sched_getaffinity(0))


def test_who_is_waited_for_needs_no_slot(tmp_path: Path) -> None:
    """A build that somebody idles for begins beside a full machine; one that takes several slots waits."""
    with holding(HOLDER, tmp_path, 10**15):
        slots.urgent(True)
        try:
            with slots.hold(tmp_path, "k", 1, time.monotonic() + 0.1):
                pass
            with (
                pytest.raises(InfrastructureError),
                slots.hold(tmp_path, "k", 10**15, time.monotonic() + 0.1),
            ):
                pass
        finally:
            slots.urgent(False)
