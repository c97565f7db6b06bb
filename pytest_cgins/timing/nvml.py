"""What NVIDIA's management library (NVML) tells of one GPU, by ctypes: a call takes about a microsecond.

Nothing here raises, and no answer is kept. What the library, the driver or the GPU does not tell is None or (): there
is no such library on a machine without NVIDIA's driver, and parts of a GPU (MIG, vGPU) are told little.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_cgins.building.loading import cuda_driver
from pytest_cgins.core.errors import LaunchError

LIBRARY = "libnvidia-ml.so.1"
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
_VERSION_NBYTES = 80


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or part of one, as NVML knows it."""

    uuid: str
    """`GPU-…` or `MIG-…`."""
    _library: Any
    _handle: Any

    @classmethod
    def of(cls, uuids: Iterable[str], *, library: Any | None = None) -> Gpu | None:
        """The first that NVML knows by one of these names; None if it knows none, or is not there.

        Args:
            uuids: as `cuda_uuids` gives them.
            library: asked instead of the installed one; it has begun.
        """
        nvml = load() if library is None else library
        if nvml is None:
            return None
        for name in uuids:
            if (handle := handle_by_uuid(nvml, name)) is not None:
                return cls(name, nvml, handle)
        return None

    def sm_mhz(self) -> int | None:
        """Clock of the multiprocessors now."""
        return self._number("nvmlDeviceGetClockInfo", _SM)

    def throttle_reasons(self) -> tuple[str, ...]:
        """Why clocks are lower now than they could be, in the order of NVML's bits; unknown bits by their number."""
        mask = ctypes.c_ulonglong()
        answered = self._ask("nvmlDeviceGetCurrentClocksEventReasons", ctypes.byref(mask)) or self._ask(
            "nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(mask)
        )
        if not answered:
            return ()
        left = mask.value & ~IGNORED_REASONS
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
        chosen = self._number("nvmlDeviceGetApplicationsClock", _GRAPHICS)
        usual = self._number("nvmlDeviceGetDefaultApplicationsClock", _GRAPHICS)
        if chosen is None or usual is None:
            return None
        return "default" if chosen == usual else f"applications-{chosen}-mhz"

    def driver(self) -> str | None:
        """Version of the driver."""
        text = ctypes.create_string_buffer(_VERSION_NBYTES)
        function = getattr(self._library, "nvmlSystemGetDriverVersion", None)
        if function is None or function(text, ctypes.c_uint(_VERSION_NBYTES)) != 0:
            return None
        return text.value.decode(errors="replace") or None

    def _ask(self, function: str, *arguments: Any) -> bool:
        """Whether the library has the function and it answered: old drivers lack some."""
        found = getattr(self._library, function, None)
        return found is not None and found(self._handle, *arguments) == 0

    def _number(self, function: str, kind: int) -> int | None:
        found = ctypes.c_uint()
        return found.value if self._ask(function, ctypes.c_uint(kind), ctypes.byref(found)) else None

    def _switch(self, function: str) -> bool | None:
        """What is set; what will be after a reset is told too, and left out."""
        now, later = ctypes.c_uint(), ctypes.c_uint()
        answered = self._ask(function, ctypes.byref(now), ctypes.byref(later))
        return bool(now.value) if answered else None


def load() -> Any | None:
    """The library, begun; None where it is not installed or does not begin."""
    try:
        library = ctypes.CDLL(LIBRARY)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def handle_by_uuid(library: Any, name: str) -> Any | None:
    """NVML's handle of a GPU or part of one; None if it knows no such."""
    by_uuid = getattr(library, "nvmlDeviceGetHandleByUUID", None)
    handle = ctypes.c_void_p()
    found = by_uuid is not None and by_uuid(name.encode(), ctypes.byref(handle)) == 0
    return handle if found else None


def cuda_uuids(index: int) -> list[str]:
    """What NVML may call a device of CUDA: their orders differ, their UUIDs do not; parts of a GPU have their own."""
    raw = (ctypes.c_ubyte * 16)()
    try:
        status = cuda_driver.library().cuDeviceGetUuid_v2(raw, index)
    except (LaunchError, AttributeError):
        return []
    return [f"{prefix}{uuid.UUID(bytes=bytes(raw))}" for prefix in _PREFIXES] if status == 0 else []
