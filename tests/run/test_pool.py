"""Workers by role."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_cgins.run.pool import SERVICES, WorkerPool

from .living import LIMIT_S, ask, open_descriptors


def test_a_role_keeps_its_process(pool: WorkerPool) -> None:
    """Two calls of a role go to one process, two roles and two variants of a role to different ones."""
    assert ask(pool, "pid") == ask(pool, "pid")
    assert len({ask(pool, "pid", role) for role in ("toy", "loud", "toy/interpret")}) == 3


def test_an_idle_worker_that_died_is_replaced(pool: WorkerPool) -> None:
    """A worker that was killed between two calls costs nothing."""
    before = ask(pool, "pid")
    os.kill(before, signal.SIGKILL)
    while pool._workers["toy"].alive:
        time.sleep(0.005)
    assert ask(pool, "pid") != before


def test_discard_gives_the_role_a_process_without_a_past(pool: WorkerPool) -> None:
    """After `discard` the role's next call goes to a new process."""
    before = ask(pool, "pid")
    pool.discard("toy")
    pool.discard("toy")
    assert ask(pool, "pid") != before


def test_two_kernels_have_no_process_in_common(pool: WorkerPool) -> None:
    """A role's process is another one for another kernel, and for the first one when it comes again."""

    def pid(kernel: str) -> int:
        found: int = pool.call("toy", "pid", {}, timeout_s=LIMIT_S, kernel=kernel).result
        return found

    assert not pool.has_run("toy", "one")
    one = pid("one")
    assert pool.has_run("toy", "one")
    assert not pool.has_run("toy", "two")
    assert pid("one") == one
    assert len({one, pid("two"), pid("one")}) == 3


def test_warm_does_not_wait(pool: WorkerPool) -> None:
    """Processes that are warmed up start at once, and calls find them."""
    pool.warm(["toy", "loud"])
    pids = {role: worker.pid for role, worker in pool._workers.items()}
    assert ask(pool, "pid") == pids["toy"]
    assert ask(pool, "pid", "loud") == pids["loud"]


def test_closing_leaves_no_descriptor_behind(pool: WorkerPool) -> None:
    """Sockets, pipes and buffers are given back; the line to what forks workers stays, for all pools."""
    ask(pool, "echo")
    pool.close()
    before = open_descriptors()
    for method in ("echo", "echo"):
        ask(pool, method)
    pool.close()
    assert open_descriptors() == before


@pytest.mark.parametrize("role", sorted(SERVICES))
def test_the_roles_name_services(role: str) -> None:
    """Each role stands for a class that can be imported, as module:Class."""
    module, _, name = SERVICES[role].partition(":")
    assert module.startswith("pytest_cgins.")
    assert name.endswith("Service")


def test_the_parent_side_imports_no_torch() -> None:
    """The pool is used by pytest's own process, which stays light."""
    script = (
        "import sys, pytest_cgins.run.pool; print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
