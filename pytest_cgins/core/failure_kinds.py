"""What a failure was, told by its message: CUDA, C++ and torch have no better names for it."""

from __future__ import annotations

import re

from pytest_cgins.core.verdict import Reason, Status

# Of CUDA's sticky errors 700 and 716 to 719 are all accesses to where nothing may be read or written. Their texts
# are the same in the driver, the runtime, torch and Triton.
_CAUSES = {
    Reason.DEVICE_ASSERT: r"device-side assert triggered|CUDA_ERROR_ASSERT\b|cudaErrorAssert\b",
    Reason.ILLEGAL_ADDRESS: (
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS\b|cudaErrorIllegalAddress\b"
        r"|\bmisaligned address\b|CUDA_ERROR_MISALIGNED_ADDRESS\b|cudaErrorMisalignedAddress\b"
        r"|operation not supported on global/shared address space|invalid program counter"
        r"|unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED\b|cudaErrorLaunchFailure\b"
    ),
    Reason.OUT_OF_MEMORY: (
        r"CUDA out of memory|CUDA error: out of memory|Error \[CUDA\]: out of memory|CUDA_ERROR_OUT_OF_MEMORY\b|cudaErrorMemoryAllocation\b"
        r"|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|std::bad_alloc|\b\w*MemoryError\b"
        r"|can't allocate memory: you tried to allocate|Unable to allocate [\d.]+ \w+ for an array"
    ),
    Reason.TIMED_OUT: r"the launch timed out and was terminated|CUDA_ERROR_LAUNCH_TIMEOUT\b",
    Reason.EXITED: r"\ASystemExit\b",
}
_CODES = {
    700: Reason.ILLEGAL_ADDRESS, 702: Reason.TIMED_OUT, 710: Reason.DEVICE_ASSERT,
    716: Reason.ILLEGAL_ADDRESS, 717: Reason.ILLEGAL_ADDRESS, 718: Reason.ILLEGAL_ADDRESS, 719: Reason.ILLEGAL_ADDRESS,
}  # fmt: skip
_FULL = re.compile(
    r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free\.(?:.*this process has ([\d.]+ \w+) memory in use)?",
    re.DOTALL,
)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RETURNED = re.compile(r" returned (\d+), without a message")

MAY_BE_THE_DEVICES = (Status.RUNTIME_ERROR, Status.TIMEOUT, Status.INFRASTRUCTURE)
"""What a case comes out with on a GPU that is gone, too."""
DEVICE_FAULTS = (Reason.ILLEGAL_ADDRESS, Reason.DEVICE_ASSERT)
"""After one of these on a GPU its process cannot use it any more."""


def cause_of(kind: str, message: str) -> Reason | None:
    """What an exception of a class, or what a process printed as it aborted, says of its cause; None if nothing special."""
    text = f"{kind}: {message}"
    return next((reason for reason, pattern in _CAUSES.items() if re.search(pattern, text)), None)


def stops_device(error: BaseException) -> bool:
    """Whether an exception is one of `DEVICE_FAULTS`."""
    return cause_of(type(error).__name__, str(error)) in DEVICE_FAULTS


def cause_of_code(message: str) -> Reason | None:
    """What the number means that a CUDA launcher returned without a word: most often a `cudaError_t`."""
    found = _RETURNED.search(message)
    return _CODES.get(int(found[1])) if found else None


def others_nbytes(message: str) -> int:
    """Bytes of a full device that other processes held, as torch's OutOfMemoryError tells; 0 where it does not."""
    found = _FULL.search(message)
    if found is None:
        return 0
    sizes = [size.split() for size in found.groups(default="0 bytes")]
    total, free, own = (round(float(number) * _UNITS.get(unit, 0)) for number, unit in sizes)
    return max(0, total - free - own)
