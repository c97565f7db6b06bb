"""The service that times kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins import documents
from pytest_cgins.errors import InfrastructureError, ProtocolError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.pool import WorkerPool
from pytest_cgins.execute.timing import TimingService
from pytest_cgins.measurement import Measurement
from pytest_cgins.timing.lock import exclusive

Request = Callable[..., tuple[dict[str, Any], Buffer]]


@pytest.fixture
def request_for(python_kernel: Callable[..., Any], relu_set: Callable[..., Any]) -> Request:
    """Makes a request to time a kernel of `zoo.py`."""

    def make(function: str, **changes: Any) -> tuple[dict[str, Any], Buffer]:
        one, buffer = relu_set(torch.linspace(-1, 1, 1000))
        rest = {"kernel": python_kernel(function), "device": "cpu", "import_root": "", "seed": 1}
        return {"sets": [one], **rest, "budget_s": 0.05, **changes}, buffer

    return make


def test_a_slow_kernel_is_slower_than_torch(workers: WorkerPool, request_for: Request) -> None:
    """A kernel that does the work fifty times over comes out far below 1, all quartiles of it."""
    params, buffer = request_for("slow_relu")
    reply = workers.call("timing", "measure", params, [buffer], timeout_s=60)
    measurement = documents.load_python(Measurement, reply.result["measurement"])
    assert measurement.method == "perf-counter"
    assert measurement.speedup_low <= measurement.speedup_vs_torch <= measurement.speedup_high < 0.5
    assert len(measurement.kernel.samples_ns_per_call) == 2 * len(measurement.orders.split())


def test_a_busy_device_is_an_infrastructure_error(request_for: Request) -> None:
    """While another process times on the device, the wait is bounded, and the message says who waits."""
    params, buffer = request_for("relu", lock_wait_s=0.05)
    with exclusive("cpu", wait_s=5), pytest.raises(InfrastructureError, match=r"timing on cpu for 0\.05 s"):
        TimingService({}).measure(params, [buffer])


def test_one_buffer_is_expected(request_for: Request) -> None:
    """A request without its tensors is the caller's error."""
    params, _ = request_for("relu")
    with pytest.raises(ProtocolError, match="1 sets came with 0 buffers"):
        TimingService({}).measure(params, [])
