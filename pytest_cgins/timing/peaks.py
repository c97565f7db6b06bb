"""What a device can do at most: bounds that no program passes, not what one reaches.

GPU: the memory's clock and bus width, the greatest clock and the number of multiprocessors are the driver's own
numbers. A multiprocessor exchanges at most 64 bytes a cycle with the L2; twice that is assumed, its L1's width. Its
tensor cores do so many dense operations a cycle, by NVIDIA's architecture white papers (H100: 4096 in fp16, A100:
2048, B200: 8192, of which twice is assumed, for it and for what comes later).

CPU: bandwidth of the first-level caches (two loads and a store of 64 bytes a cycle) and the widest matrix units
there are (Intel AMX: 2048 multiply-adds of bf16 a cycle and core), at 6 GHz on all cores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pytest_cgins.building.loading import cuda_driver as driver

CLOCK_RATE_KHZ = 13  # CU_DEVICE_ATTRIBUTE_…
MEMORY_CLOCK_RATE_KHZ = 36
MEMORY_BUS_BITS = 37
L2_NBYTES = 38
CAPABILITY_MAJOR = 75

L1_NBYTES_PER_CYCLE = 128
TENSOR_FLOPS_PER_CYCLE = {7: 1024, 8: 2048, 9: 4096}
NEWEST_TENSOR_FLOPS_PER_CYCLE = 16384
"""Of half-precision numbers, dense, a multiprocessor; by major compute capability."""
HOST_HZ = 6e9
HOST_NBYTES_PER_CYCLE = 192
HOST_FLOPS_PER_CYCLE = 4096


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds of one device."""

    memory_bytes_per_s: float
    """Of its memory; infinite if unknown."""
    cache_bytes_per_s: float
    """Between its cores and the nearest cache."""
    flops_per_s: float
    """In half precision."""
    cache_nbytes: int
    """Size of the last-level cache of a GPU; 0 on a CPU."""

    def flops_per_s_of(self, dtype: str) -> float:
        """By type of number. fp32 is let pass at half of half precision's, as if it were TF32, and fp8 at twice."""
        if dtype in ("float16", "bfloat16"):
            return self.flops_per_s
        return self.flops_per_s * (2 if "float8" in dtype or "int8" in dtype else 0.5)


def of(device: str) -> Peaks | None:
    """The peaks of `cpu` or `cuda:0`; None if the driver does not tell."""
    if not device.startswith("cuda"):
        cycles = HOST_HZ * (os.cpu_count() or 1)
        return Peaks(float("inf"), HOST_NBYTES_PER_CYCLE * cycles, HOST_FLOPS_PER_CYCLE * cycles, 0)
    index = int(device.partition(":")[2] or 0)
    clock, memory_clock, bus, cores, cache, major = (
        driver.device_attribute(attribute, index)
        for attribute in (
            CLOCK_RATE_KHZ, MEMORY_CLOCK_RATE_KHZ, MEMORY_BUS_BITS, driver.SM_COUNT, L2_NBYTES, CAPABILITY_MAJOR,
        )
    )  # fmt: skip
    if min(clock, memory_clock, bus, cores) <= 0:
        return None
    cycles = 1e3 * clock * cores
    return Peaks(
        memory_bytes_per_s=2 * 1e3 * memory_clock * bus / 8,  # two transfers a cycle
        cache_bytes_per_s=L1_NBYTES_PER_CYCLE * cycles,
        flops_per_s=TENSOR_FLOPS_PER_CYCLE.get(major, NEWEST_TENSOR_FLOPS_PER_CYCLE) * cycles,
        cache_nbytes=cache,
    )
