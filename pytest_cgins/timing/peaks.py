"""What a device can do at most: bounds that no program passes, not what one reaches.

GPU: the memory's clock and bus width, the greatest clock and the number of multiprocessors are the driver's own
numbers. A multiprocessor exchanges at most 64 bytes a cycle with the L2; twice that is assumed, its L1's width. Its
tensor cores do so many dense operations a cycle, by NVIDIA's architecture white papers (H100: 4096 in fp16, A100:
2048, B200: 8192, of which twice is assumed, for it and for what comes later).

CPU: bandwidth of the first-level caches (two loads and a store of 64 bytes a cycle) and the widest matrix units
there are (Intel AMX: 2048 multiply-adds of bf16 a cycle and core), at 6 GHz on all cores.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peaks:
    """Upper bounds of one device."""

    memory_bytes_per_s: float
    """Bandwidth of the device's memory; infinite if unknown."""
    cache_bytes_per_s: float
    """Between its cores and the nearest cache."""
    flops_per_s: float
    """Operations a second in half precision."""
    cache_nbytes: int
    """Size of the last-level cache of a GPU; 0 on a CPU."""

    def flops_per_s_of(self, dtype: str) -> float:
        """Peak operations a second in a dtype. fp32 counts half of half precision's, as TF32 would reach, and fp8 twice."""
        if dtype in ("float16", "bfloat16"):
            return self.flops_per_s
        return self.flops_per_s * (2 if "float8" in dtype or "int8" in dtype else 0.5)
