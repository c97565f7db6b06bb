"""CPUs of a timed process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.timing import affinity
from pytest_cgins.timing.affinity import narrowed


class System:
    """A process with CPUs and threads of its own."""

    def __init__(self, cpus: set[int], *threads: int) -> None:
        self.cpus = {0: cpus, **dict.fromkeys(threads, cpus)}
        self.gone: set[int] = set()

    def get(self, thread: int) -> set[int]:
        if thread in self.gone:
            raise ProcessLookupError(thread)
        return set(self.cpus[thread])

    def set(self, thread: int, cpus: set[int]) -> None:
        if thread in self.gone:
            raise ProcessLookupError(thread)
        self.cpus[thread] = set(cpus)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> System:
    """Eight CPUs, of which five are ours; thread 0 stands for the calling one."""
    made = System({1, 2, 4, 6, 7}, 11, 12)
    for thread in made.cpus:
        (tmp_path / str(thread)).mkdir()
    monkeypatch.setattr(affinity, "_TASKS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", made.get, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", made.set, raising=False)
    return made


@pytest.mark.parametrize(
    ("threads", "chosen"),
    [(1, (7,)), (2, (6, 7)), (4, (2, 4, 6, 7)), (5, (1, 2, 4, 6, 7)), (9, (1, 2, 4, 6, 7)), (0, (7,))],
)
def test_as_many_cpus_as_threads_and_the_last_ones(
    system: System, threads: int, chosen: tuple[int, ...]
) -> None:
    """All threads of the process run there and nowhere else, and afterwards where they ran before."""
    with narrowed(threads) as cpus:
        assert cpus == chosen
        assert all(one == set(chosen) for one in system.cpus.values())
    assert all(one == {1, 2, 4, 6, 7} for one in system.cpus.values())


def test_threads_that_were_bound_are_bound_again(system: System) -> None:
    """An OpenMP that gave each of its threads a CPU finds them so."""
    system.cpus[11], system.cpus[12] = {1}, {2}
    with narrowed(2):
        assert system.cpus[11] == {6, 7}
    assert (system.cpus[0], system.cpus[11], system.cpus[12]) == ({1, 2, 4, 6, 7}, {1}, {2})


def test_a_thread_that_began_meanwhile_is_let_go(system: System, tmp_path: Path) -> None:
    """It has the few CPUs of its parent, and gets all of them."""
    with narrowed(1):
        (tmp_path / "13").mkdir()
        system.cpus[13] = {7}
    assert system.cpus[13] == {1, 2, 4, 6, 7}


def test_threads_that_end_do_not_matter(system: System) -> None:
    """Between listing and moving, or meanwhile."""
    system.gone = {11}
    with narrowed(2):
        system.gone = {11, 12}
    assert system.cpus[0] == {1, 2, 4, 6, 7}


def test_an_error_gives_the_cpus_back(system: System) -> None:
    """And passes through."""
    with pytest.raises(RuntimeError, match="of the kernel"), narrowed(1):
        raise RuntimeError("of the kernel")
    assert system.cpus[0] == {1, 2, 4, 6, 7}


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The number of a thread that waits."""
    ended, begun = threading.Event(), threading.Event()
    numbers: list[int] = []

    def wait() -> None:
        numbers.append(threading.get_native_id())
        begun.set()
        ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(10)
    yield numbers[0]
    ended.set()
    thread.join()


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two CPUs, and a system that tells",
)
def test_real_threads_are_moved(sleeper: int) -> None:
    """A thread that was there before too, on this very system."""
    before = os.sched_getaffinity(0)
    with narrowed(1) as cpus:
        assert len(cpus) == 1
        assert os.sched_getaffinity(0) == os.sched_getaffinity(sleeper) == set(cpus)
    assert os.sched_getaffinity(0) == os.sched_getaffinity(sleeper) == before
