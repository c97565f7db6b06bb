"""What NVIDIA's management library (NVML) tells of one GPU.

Nothing here raises, and no answer is kept. What the library, the driver or the GPU does not tell is None or empty: there
is no such library on a machine without NVIDIA's driver, and parts of a GPU (MIG, vGPU) are told little.
"""

from __future__ import annotations

import ctypes
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pytest_cgins.building.loading import cuda_driver
from pytest_cgins.core.errors import LaunchError

THROTTLE_REASONS = {
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
}
"""nvmlClocksEventReason…; idle (0x1), the applications clocks (0x2) and a display (0x100) throttle nobody."""
IGNORED_REASONS = 0x1 | 0x2 | 0x100

_PREFIXES = ("GPU-", "MIG-")
_GRAPHICS, _SM = 0, 1  # nvmlClockType_t


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or part of one, as NVML knows it."""

    uuid: str
    """`GPU-…` or `MIG-…`."""
    _nvml: Any
    _handle: Any

    @classmethod
    def find(cls, index: int) -> Gpu | None:
        """A device of CUDA; None if NVML does not know it, or is not there."""
        names = cuda_uuids(index)
        nvml = _load() if names else None
        if nvml is not None:
            for name in names:
                with suppress(nvml.NVMLError):
                    return cls(name, nvml, nvml.nvmlDeviceGetHandleByUUID(name))
        return None

    def sm_mhz(self) -> int | None:
        """Clock of the multiprocessors now."""
        clock: int | None = self._ask("nvmlDeviceGetClockInfo", self._handle, _SM)
        return clock

    def throttle_reasons(self) -> tuple[str, ...]:
        """Why clocks are lower now than they could be, in the order of NVML's bits; unknown bits by their number."""
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if mask is None:  # an older driver
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        left = (mask or 0) & ~IGNORED_REASONS
        bits = [1 << place for place in range(left.bit_length()) if left >> place & 1]
        return tuple(THROTTLE_REASONS.get(bit, f"reason-{bit:#x}") for bit in bits)

    def mig(self) -> bool | None:
        """Whether this is a part of a GPU, or a GPU that is divided into such."""
        return True if self.uuid.startswith("MIG-") else self._switch("nvmlDeviceGetMigMode")

    def ecc(self) -> bool | None:
        """Whether memory is corrected."""
        return self._switch("nvmlDeviceGetEccMode")

    def clock_policy(self) -> str | None:
        """`default`, or `applications-1410-mhz` where other applications clocks were set than the GPU comes with.

        NVML does not tell whether clocks are locked (`nvidia-smi -lgc`): `sm_mhz` under load shows it.
        """
        chosen = self._ask("nvmlDeviceGetApplicationsClock", self._handle, _GRAPHICS)
        usual = self._ask("nvmlDeviceGetDefaultApplicationsClock", self._handle, _GRAPHICS)
        if chosen is None or usual is None:
            return None
        return "default" if chosen == usual else f"applications-{chosen}-mhz"

    def driver(self) -> str | None:
        """Version of the driver."""
        return self._ask("nvmlSystemGetDriverVersion") or None

    def held_nbytes(self) -> dict[int, int]:
        """Bytes that each process holds, by its number on the host; without those whose memory is withheld."""
        held: Counter[int] = Counter()
        for process in self._ask("nvmlDeviceGetComputeRunningProcesses_v3", self._handle) or ():
            if process.usedGpuMemory is not None:
                held[process.pid] += process.usedGpuMemory
        return held

    def _ask(self, function: str, *arguments: Any) -> Any:
        """The library's answer; None if it has no such function, or refuses."""
        with suppress(self._nvml.NVMLError, AttributeError):
            return getattr(self._nvml, function)(*arguments)
        return None

    def _switch(self, function: str) -> bool | None:
        """What is set; what will be after a reset is told too, and left out."""
        now_and_later = self._ask(function, self._handle)
        return None if now_and_later is None else bool(now_and_later[0])


def _load() -> Any | None:
    """The bindings, with the library begun; None where either is not installed or does not begin."""
    try:
        import pynvml
    except ImportError:
        return None
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return pynvml
    return None


def cuda_uuids(index: int) -> list[str]:
    """What NVML may call a device of CUDA: their orders differ, their UUIDs do not; parts of a GPU have their own."""
    raw = (ctypes.c_ubyte * 16)()
    try:
        status = cuda_driver.library().cuDeviceGetUuid_v2(raw, index)
    except (LaunchError, AttributeError):
        return []
    return [f"{prefix}{uuid.UUID(bytes=bytes(raw))}" for prefix in _PREFIXES] if status == 0 else []
