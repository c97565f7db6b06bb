"""Causes of failures, by messages as torch, CUDA, C++ and numpy word them."""

from __future__ import annotations

import pytest

from pytest_cgins.core.failure_kinds import cause_of, cause_of_code
from pytest_cgins.core.verdict import Reason

CUDA_ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
CPU_ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        ("RuntimeError", "CUDA error: an illegal memory access was encountered" + CUDA_ADVICE, Reason.ILLEGAL_ADDRESS),
        ("LaunchError", "k.cu: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", Reason.ILLEGAL_ADDRESS),
        ("RuntimeError", "CUDA error: misaligned address" + CUDA_ADVICE, Reason.ILLEGAL_ADDRESS),
        ("RuntimeError", "CUDA error: unspecified launch failure" + CUDA_ADVICE, Reason.ILLEGAL_ADDRESS),
        ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered", Reason.ILLEGAL_ADDRESS),
        ("AcceleratorError", "CUDA error: device-side assert triggered" + CUDA_ADVICE, Reason.DEVICE_ASSERT),
        ("LaunchError", "k.cu: CUDA_ERROR_ASSERT: device-side assert triggered", Reason.DEVICE_ASSERT),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 160.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which", Reason.OUT_OF_MEMORY),
        ("LaunchError", "k:f raised OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", Reason.OUT_OF_MEMORY),
        ("RuntimeError", "CUDA error: out of memory" + CUDA_ADVICE, Reason.OUT_OF_MEMORY),
        ("RuntimeError", CPU_ALLOCATOR, Reason.OUT_OF_MEMORY),
        ("MemoryError", "", Reason.OUT_OF_MEMORY),
        ("MemoryError", "std::bad_alloc", Reason.OUT_OF_MEMORY),
        ("_ArrayMemoryError", "Unable to allocate 7.28 TiB for an array with shape (1000000000000,) and data type float64", Reason.OUT_OF_MEMORY),
        ("", "stderr:\nterminate called after throwing an instance of 'std::bad_alloc'", Reason.OUT_OF_MEMORY),
        ("RuntimeError", "CUDA error: the launch timed out and was terminated", Reason.TIMED_OUT),
        ("SystemExit", "0", Reason.EXITED),
        ("ValueError", "no such width: 40", None),
        ("RuntimeError", "CUDA error: invalid configuration argument" + CUDA_ADVICE, None),
        ("OutOfResources", "out of resource: shared memory, Required: 300000, Hardware limit: 232448", None),
        ("ValueError", "SystemExit is not wanted here", None),
        ("RuntimeError", "CUDA error: invalid argument" + CUDA_ADVICE, None),  # its advice on assertions is none
    ],
)  # fmt: skip
def test_messages_have_causes(kind: str, message: str, reason: Reason | None) -> None:
    """Each message of a known kind leads to its reason, and others to none."""
    assert cause_of(kind, message) is reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("relu.cu: relu returned 700, without a message", Reason.ILLEGAL_ADDRESS),
        ("relu.cu: relu returned 710, without a message", Reason.DEVICE_ASSERT),
        ("relu.cpp: relu returned 7, without a message", None),
        ("relu.cu: relu returned 700: its own words", None),
    ],
)
def test_codes_of_cuda_have_causes(message: str, reason: Reason | None) -> None:
    """A launcher that returns CUDA's error number without a word is understood."""
    assert cause_of_code(message) is reason
