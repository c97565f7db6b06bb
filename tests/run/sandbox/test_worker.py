"""Worker processes in a sandbox, through the pool that the gate uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import SandboxUnavailable, WorkerCrashed
from pytest_cgins.run.forking import FORK_VARIABLE
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox import outside
from pytest_cgins.run.sandbox import sandbox as sandbox_module
from pytest_cgins.run.sandbox.sandbox import Sandbox

from .conftest import LIMIT_S, python, run

TOYS = Path(__file__).parents[1]


@pytest.fixture(params=["1", "0"], ids=["forked", "program"])
def pool(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[WorkerPool]:
    monkeypatch.setenv(FORK_VARIABLE, request.param)
    fence = sandbox.around(visible=[TOYS], hidden=[])
    with WorkerPool(services={"toy": "toys:Toy"}, env={"PYTHONPATH": str(TOYS)}, sandbox=fence) as pool:
        yield pool


def test_worker_in_a_sandbox(pool: WorkerPool) -> None:
    """Requests, answers, buffers and output go through the fence; a process inside is the second of its namespace."""
    with Buffer.from_chunks([b"abc" * 1000]) as buffer:
        reply = pool.call("toy", "echo", {"x": 1}, [buffer], timeout_s=LIMIT_S)
    assert reply.result == {"x": 1}
    assert [bytes(received.view()) for received in reply.buffers] == [b"abc" * 1000]
    assert pool.call("toy", "pid", {}, timeout_s=LIMIT_S).result == 2
    assert "hello" in pool.call("toy", "say", {"text": "hello"}, timeout_s=LIMIT_S).output


@pytest.mark.exam
def test_crash_in_a_sandbox(pool: WorkerPool) -> None:
    """A worker's signal is told as one without a sandbox is, and the next request gets a new one."""
    with pytest.raises(WorkerCrashed, match="SIGSEGV"):
        pool.call("toy", "segfault", {}, timeout_s=LIMIT_S)
    assert pool.call("toy", "pid", {}, timeout_s=LIMIT_S).result == 2


@pytest.mark.exam
def test_closed_connection_in_a_sandbox(pool: WorkerPool) -> None:
    """Code that closes every descriptor and goes on is told as that, and not waited for until the time limit."""
    with pytest.raises(WorkerCrashed, match="closed its connection and lived on"):
        pool.call("toy", "closes_everything", {}, timeout_s=LIMIT_S)


def test_host_that_cannot(sandbox: Sandbox) -> None:
    """Within a sandbox none can be made: the error says what was refused, and what would help."""
    code = (
        f"import sys; sys.path[:0] = {[str(outside.PACKAGES)]!r}\n"
        "from pytest_cgins.run.sandbox.sandbox import Sandbox\n"
        "print(Sandbox(way='namespaces').available())\n"
        "Sandbox().require()\n"
    )
    ran = run(sandbox.wrap(python(code)))
    assert ran.stdout == "the sandbox could not be set up: unshare: Operation not permitted\n"
    assert "SandboxUnavailable: kernels cannot be fenced in on this host: bubblewrap: " in ran.stderr
    assert "--cgins-sandbox=off" in ran.stderr


def test_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a way there is no command, rather than one without a fence."""
    monkeypatch.setattr(sandbox_module, "_found_way", lambda: None)
    monkeypatch.setattr(sandbox_module, "_trouble", lambda way: f"no {way} here")
    with pytest.raises(SandboxUnavailable, match="bubblewrap: no bubblewrap here; namespaces: no namespaces"):
        Sandbox().wrap(["true"])
