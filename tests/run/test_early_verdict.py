"""What became of a request to a worker, as verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_cgins.core.errors import (
    ProtocolError,
    ServiceError,
    WorkerCrashed,
    WorkerError,
    WorkerExceeded,
    WorkerTimeout,
)
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.early_verdict import ended_by, lost_by, not_the_kernels
from pytest_cgins.verify.messages import RaisedError

ASSERT = "CUDA error: device-side assert triggered"
BAD_ALLOC = (
    "stderr:\nterminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
)


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
        (ServiceError("…", kind="AcceleratorError", text=ASSERT), Status.RUNTIME_ERROR, Reason.DEVICE_ASSERT),
    ],
)
def test_every_loss_has_its_verdict(error: WorkerError, status: Status, reason: Reason) -> None:
    """How the worker was lost decides status and reason; its words and its output are kept."""
    end = lost_by(error)
    assert (end.verdict.status, end.verdict.reason) == (status, reason)
    assert end.verdict.message == str(error)
    assert end.output == error.output


@pytest.mark.parametrize(
    ("phase", "kind", "message", "contract", "reason"),
    [
        ("run", "LaunchError", "k:f raised ValueError: no", "python", Reason.RAISED),
        ("run", "LaunchError", "relu returned 7: no", "launcher", Reason.ERROR_CODE),
        (
            "run",
            "LaunchError",
            "k.cu: relu returned 700, without a message",
            "launcher",
            Reason.ILLEGAL_ADDRESS,
        ),
        ("run", "SystemExit", "0", "python", Reason.EXITED),
        ("load", "SystemExit", "0", "python", Reason.EXITED),
        ("run", "LaunchError", "k:f raised MemoryError: ", "python", Reason.OUT_OF_MEMORY),
        (
            "run",
            "LaunchError",
            "k:f raised RuntimeError: Triton Error [CUDA]: out of memory",
            "python",
            Reason.OUT_OF_MEMORY,
        ),
        ("bind", "ContractError", "too wide", "launcher", Reason.CONTRACT),
    ],
)
def test_what_a_kernel_raises_is_told_by_its_message(
    phase: Any, kind: str, message: str, contract: str, reason: Reason
) -> None:
    """CUDA's errors, lack of memory and exits have reasons of their own, wherever they were raised."""
    error = RaisedError(phase=phase, kind=kind, message=message, remedy="", trace="")
    verdict = ended_by(error, contract, "recorded", "printed before").verdict
    status = Status.SKIPPED if reason is Reason.CONTRACT else Status.RUNTIME_ERROR
    assert (verdict.status, verdict.reason) == (status, reason)


@pytest.mark.parametrize("phase", ["load", "bind", "run"])
def test_who_runs_out_of_memory_beside_others_is_not_to_blame(phase: Any) -> None:
    """Sixteen runs on one GPU had taken all of it, and right kernels were called wrong; a session's own contexts are no excuse."""
    error = RaisedError(
        phase=phase, kind="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 16 MiB"
    )
    beside = replace(error, others_nbytes=120 * 2**30)
    verdict = ended_by(beside, "python", "recorded", "").verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY)
    assert verdict.message.endswith(
        "other processes held 120.0 GiB of the device's memory → end them, or have fewer runs share the device"
    )
    alone = ended_by(replace(error, others_nbytes=2**31), "python", "recorded", "").verdict
    assert (alone.status, alone.reason) == (Status.RUNTIME_ERROR, Reason.OUT_OF_MEMORY)


FULL = (
    "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 80.75 MiB is free. "
    "{}Of the allocated memory 2.06 GiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("told", "others"),
    [
        ("Process 7 has 137 GiB memory in use. ", "139.7"),
        ("Including non-PyTorch memory, this process has 2.73 GiB memory in use. ", "137.0"),
        ("Including non-PyTorch memory, this process has 139.71 GiB memory in use. ", ""),
        ("Including non-PyTorch memory, this process has 136.20 GiB memory in use. ", ""),
    ],
)
def test_who_runs_out_of_memory_while_it_is_timed_is_not_to_blame_for_others(told: str, others: str) -> None:
    """A right candidate lost its only attempt to a test beside it, as only first calls measured what others held."""
    text = FULL.format(told)
    lost = lost_by(
        ServiceError(f"OutOfMemoryError in the timed worker: {text}", kind="OutOfMemoryError", text=text)
    )
    again = ended_by(RaisedError(kind="OutOfMemoryError", message=text), "python", "recorded", "")
    for verdict in (lost.verdict, again.verdict):
        assert verdict.reason is Reason.OUT_OF_MEMORY
        assert verdict.status is (Status.INFRASTRUCTURE if others else Status.RUNTIME_ERROR)
        held = f"\nother processes held {others} GiB of the device's memory → end them, or have fewer runs share the device"
        assert verdict.message.endswith(held) is bool(others)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("InfrastructureError", "no memory is left on cuda:0 for torch's own answers to torch.relu: CUDA out of memory. Tried"),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 3.07 GiB"),
        ("MemoryError", ""),
    ],
)  # fmt: skip
def test_torch_without_memory_is_no_drift(kind: str, message: str) -> None:
    """Other sessions on the GPU had taken all of it, and a pack was called out of date."""
    verdict = not_the_kernels(ServiceError(message, kind=kind, text=message)).verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY)


def test_what_only_tritons_interpreter_cannot_run_is_no_fault_of_the_kernel() -> None:
    """A method of a floating-point argument, which is a number there; another error of the interpreter is the kernel's."""
    text = "norms:rms_norm raised InterpreterError: AttributeError(\"'{}' object has no attribute 'to'\")"
    skipped = ended_by(
        RaisedError(kind="LaunchError", message=text.format("float")), "python", "recorded", ""
    ).verdict
    assert (skipped.status, skipped.reason) == (Status.SKIPPED, Reason.CONTRACT)
    assert skipped.message.endswith("as Python's numbers, the compiler as tensors")
    failed = ended_by(
        RaisedError(kind="LaunchError", message=text.format("tuple")), "python", "recorded", ""
    ).verdict
    assert failed.status is Status.RUNTIME_ERROR
