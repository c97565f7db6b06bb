"""What became of a request to a worker, as verdicts."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_cgins.core.errors import (
    ProtocolError,
    ServiceError,
    WorkerCrashed,
    WorkerError,
    WorkerExceeded,
    WorkerTimeout,
)
from pytest_cgins.core.model import Reason, Status
from pytest_cgins.run.early_verdict import ended_by, lost_by
from pytest_cgins.verify.messages import RaisedError

BAD_ALLOC = (
    "stderr:\nterminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
)


def raised(kind: str, message: str, *, phase: Literal["load", "bind", "run"] = "run") -> RaisedError:
    return RaisedError(phase=phase, kind=kind, message=message, remedy="", trace="")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (WorkerCrashed("the verification worker …", fault="crashed"), Status.RUNTIME_ERROR, Reason.CRASHED),
        (WorkerCrashed("the verification worker …", fault="exited"), Status.RUNTIME_ERROR, Reason.EXITED),
        (WorkerCrashed("…", fault="aborted"), Status.RUNTIME_ERROR, Reason.ABORTED),
        (WorkerCrashed("…", fault="aborted", output=BAD_ALLOC), Status.RUNTIME_ERROR, Reason.OUT_OF_MEMORY),
        (WorkerCrashed("…", fault="crashed", output=BAD_ALLOC), Status.RUNTIME_ERROR, Reason.CRASHED),
        (WorkerExceeded("…", fault="output-flood"), Status.RUNTIME_ERROR, Reason.OUTPUT_FLOOD),
        (WorkerExceeded("…", fault="process-flood"), Status.RUNTIME_ERROR, Reason.PROCESS_FLOOD),
        (WorkerTimeout("…", fault="timed-out"), Status.TIMEOUT, Reason.TIMED_OUT),
        (ProtocolError("…", fault="forged-answer"), Status.SUSPECT, Reason.FORGED_ANSWER),
        (WorkerCrashed("…", fault="worker-lost"), Status.INFRASTRUCTURE, Reason.WORKER_LOST),
        (ServiceError("…", kind="ValueError", text="no"), Status.RUNTIME_ERROR, Reason.RAISED),
        (ServiceError("…", kind="MemoryError"), Status.RUNTIME_ERROR, Reason.OUT_OF_MEMORY),
        (
            ServiceError("…", kind="AcceleratorError", text="CUDA error: device-side assert triggered"),
            Status.RUNTIME_ERROR,
            Reason.DEVICE_ASSERT,
        ),
    ],
)
def test_every_loss_has_its_verdict(error: WorkerError, status: Status, reason: Reason) -> None:
    """How the worker was lost decides status and reason; its words and its output are kept."""
    end = lost_by(error)
    assert (end.verdict.status, end.verdict.reason) == (status, reason)
    assert end.verdict.message == str(error)
    assert end.output == error.output


@pytest.mark.parametrize(
    ("error", "contract", "status", "reason"),
    [
        (raised("LaunchError", "k:f raised ValueError: no"), "python", Status.RUNTIME_ERROR, Reason.RAISED),
        (raised("LaunchError", "relu returned 7: no"), "launcher", Status.RUNTIME_ERROR, Reason.ERROR_CODE),
        (
            raised("LaunchError", "relu.cu: relu returned 700, without a message"),
            "launcher",
            Status.RUNTIME_ERROR,
            Reason.ILLEGAL_ADDRESS,
        ),
        (raised("SystemExit", "0"), "python", Status.RUNTIME_ERROR, Reason.EXITED),
        (raised("SystemExit", "0", phase="load"), "python", Status.RUNTIME_ERROR, Reason.EXITED),
        (
            raised("LaunchError", "k:f raised MemoryError: "),
            "python",
            Status.RUNTIME_ERROR,
            Reason.OUT_OF_MEMORY,
        ),
        (raised("ContractError", "too wide", phase="bind"), "launcher", Status.SKIPPED, Reason.CONTRACT),
    ],
)
def test_what_a_kernel_raises_is_told_by_its_message(
    error: RaisedError, contract: str, status: Status, reason: Reason
) -> None:
    """CUDA's errors, lack of memory and exits have reasons of their own, wherever they were raised."""
    end = ended_by(error, contract, "recorded", "printed before")
    assert (end.verdict.status, end.verdict.reason) == (status, reason)
