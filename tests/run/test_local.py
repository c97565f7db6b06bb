"""Services in pytest's own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ServiceError
from pytest_cgins.run.pool import WorkerPool

from .living import LIMIT_S, ask


@pytest.fixture
def pool(toy_path: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    services = {"toy": "toys:Toy", "reference": "toys:Toy"}
    with WorkerPool(services=services, env=toy_path, isolation="none") as pool:
        yield pool


def test_a_kernel_runs_where_a_debugger_is(pool: WorkerPool) -> None:
    """What runs kernels is called in this process; what knows the answers keeps its own."""
    assert ask(pool, "pid") == os.getpid()
    assert ask(pool, "pid", "reference") != os.getpid()


def test_values_and_buffers_arrive_as_in_a_worker(pool: WorkerPool) -> None:
    """Values become plain JSON on both ways, and buffers outlive the request."""
    with Buffer.from_chunks([b"abc"]) as buffer:
        reply = pool.call("toy", "echo", {"numbers": (1, 2.5, None)}, [buffer], timeout_s=LIMIT_S)
    assert reply.result == {"numbers": [1, 2.5, None]}
    assert [bytes(received.view()) for received in reply.buffers] == [b"abc"]
    assert reply.output == ""


@pytest.mark.parametrize(
    ("method", "kind"),
    [("raises", "KeyError"), ("system_exit", "SystemExit"), ("nan", "ValueError"), ("_private", "ProtocolError")],
)  # fmt: skip
def test_what_a_service_raises_is_the_same_error(pool: WorkerPool, method: str, kind: str) -> None:
    """Exceptions become a ServiceError, with the original as their cause for the debugger."""
    with pytest.raises(ServiceError) as caught:
        ask(pool, method)
    assert caught.value.kind == kind
    assert type(caught.value.__cause__).__name__ == kind


def test_control_c_stops_the_run(pool: WorkerPool) -> None:
    """KeyboardInterrupt is the user's, and comes through."""
    with pytest.raises(KeyboardInterrupt):
        ask(pool, "keyboard_interrupt")


def test_a_spent_service_is_made_anew(pool: WorkerPool) -> None:
    """After a fatal error the next call gets a service without a past."""
    ask(pool, "pid")
    before = pool._workers["toy"]._service  # type: ignore[union-attr]
    with pytest.raises(ServiceError, match="illegal memory access"):
        ask(pool, "fatal_error")
    ask(pool, "pid")
    after = pool._workers["toy"]._service  # type: ignore[union-attr]
    assert after is not before
    assert not after.fatal


def test_closing_forgets_the_service(pool: WorkerPool) -> None:
    """`discard` leaves nothing behind, and the role can be called again."""
    ask(pool, "pid")
    pool.discard("toy")
    assert ask(pool, "echo") == {}
