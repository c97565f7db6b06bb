"""Workers that are forked, on a GPU: nothing of CUDA is there before the fork, and all of it works after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_cgins.run import forking
from pytest_cgins.run.pool import WorkerPool

pytestmark = pytest.mark.gpu

LIMIT_S = 120.0
PATH = {
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "run"), os.environ.get("PYTHONPATH", "")])
}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_forks_make_contexts_of_their_own() -> None:
    """Two forks of one process use the GPU at the same time, and a third after them."""
    with WorkerPool(services=dict.fromkeys("xyz", "state:State"), env=PATH) as pool:
        for role in "xyzx":
            if role == "z":
                pool.discard("x")
            found = pool.call(role, "cuda", {}, timeout_s=LIMIT_S).result
            assert found == {"sum": 200.0, "bad fork": False}
            pid = pool.call(role, "pid", {}, timeout_s=LIMIT_S).result
            assert parent_of(pid) in {server.pid for server in forking._servers._current.values()}


@pytest.mark.parametrize("role", ["verification", "reference"])
def test_the_services_are_forked_where_torch_has_cuda(role: str) -> None:
    """Their imports start no threads and open no device."""
    with WorkerPool() as pool:
        pool.warm([role])
        pid = pool._workers[role].pid
        assert parent_of(pid) in {server.pid for server in forking._servers._current.values()}
