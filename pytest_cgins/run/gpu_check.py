"""Whether a GPU still computes, asked in a process of its own: the driver is not begun in processes that start others.

Run as a program it needs the standard library alone, and prints one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIMIT_S = 60.0
"""A GPU that has fallen off the bus may let its callers hang."""
_WORDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What became of an allocation, a write and a wait."""

    error: str = ""
    """The call that failed, and how; "" if the GPU computes."""
    uuid: str = ""
    """`GPU-…`; "" where it did not say."""
    name: str = ""
    free: float = 0.0
    """Share of its memory that nobody holds."""


def ask(environment: Mapping[str, str]) -> GpuState:
    """The state of the first GPU that a process with these variables besides its own sees."""
    try:
        ran = subprocess.run(
            [sys.executable, "-I", __file__], env={**os.environ, **environment}, capture_output=True,
            timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return GpuState(**json.loads(ran.stdout))
    except subprocess.TimeoutExpired:
        return GpuState(error=f"it did not answer in {LIMIT_S:.0f} s")
    except (OSError, ValueError, TypeError) as error:
        return GpuState(error=f"the process that asked it ended: {error}")


_TAKEN = (2, 46)
"""CUDA_ERROR_OUT_OF_MEMORY, and CUDA_ERROR_DEVICE_UNAVAILABLE of an exclusive one: the GPU is there, and others have it."""


def _tried() -> dict[str, Any]:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"error": str(error)}
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    raw, text = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(96)
    free, whole = ctypes.c_size_t(), ctypes.c_size_t()
    reference = ctypes.byref
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (reference(device), 0)),
        ("cuDeviceGetUuid_v2", (raw, device)),
        ("cuDeviceGetName", (text, 96, device)),
        ("cuDevicePrimaryCtxRetain", (reference(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemGetInfo_v2", (reference(free), reference(whole))),
        ("cuMemAlloc_v2", (reference(memory), ctypes.c_size_t(4 * _WORDS))),
        ("cuMemsetD32_v2", (memory, 1, ctypes.c_size_t(_WORDS))),
        ("cuCtxSynchronize", ()),
    )
    for name, arguments in calls:
        if status := getattr(cuda, name)(*arguments):
            if status in _TAKEN:
                break
            said = ctypes.c_char_p()
            cuda.cuGetErrorName(status, reference(said))
            return {"error": f"{name}: {(said.value or b'error').decode()} ({status})"}
    return {
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(raw))}",
        "name": text.value.decode(errors="replace"),
        "free": free.value / whole.value if whole.value else 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(_tried()))
