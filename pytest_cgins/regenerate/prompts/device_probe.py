"""Prints what the driver tells of a CUDA device, as one line of JSON; run as a program of its own.

The driver is not begun in pytest's process, which starts others. It needs the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import sys

ATTRIBUTES = {
    "warp_width": 10,
    "threads_per_block": 1,
    "shared_nbytes_per_block": 8,
    "shared_nbytes_per_block_opt_in": 97,
    "shared_nbytes_per_sm": 81,
    "registers_per_sm": 82,
    "threads_per_sm": 39,
    "sm_count": 16,
    "l2_nbytes": 38,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "major": 75,
    "minor": 76,
}
"""CU_DEVICE_ATTRIBUTE_… by our names."""


def ask(index: int, library: str) -> dict[str, object]:
    """What is known of a device; {} where there is no driver or no such device."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return {}
    device = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), index) != 0:
        return {}
    answers: dict[str, object] = {}
    for name, attribute in ATTRIBUTES.items():
        number = ctypes.c_int()
        if cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device) == 0:
            answers[name] = number.value
    text = ctypes.create_string_buffer(256)
    if cuda.cuDeviceGetName(text, 256, device) == 0:
        answers["name"] = text.value.decode(errors="replace")
    nbytes = ctypes.c_size_t()
    if cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device) == 0:
        answers["memory_nbytes"] = nbytes.value
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        answers["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return answers


if __name__ == "__main__":
    print(json.dumps(ask(int(sys.argv[1]), sys.argv[2])))
