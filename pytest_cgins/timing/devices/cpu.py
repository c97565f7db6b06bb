"""The host's CPU."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.text import text_of
from pytest_cgins.timing.devices import TimedDevice
from pytest_cgins.timing.peaks import Peaks
from pytest_cgins.timing.timer import Arms, Timer

COPIES_NBYTES = 2**31
"""Most of the host's memory that copies of tensors may take."""
HZ = 6e9
NBYTES_PER_CYCLE = 192
FLOPS_PER_CYCLE = 4096
_CPU_INFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TURBO = {"intel_pstate/no_turbo": {"0": "on", "1": "off"}, "cpufreq/boost": {"1": "on", "0": "off"}}


class Cpu(TimedDevice):
    """All cores that the process may use."""

    name: ClassVar[DeviceName] = "cpu"
    suffixes = (".cpp", ".cc", ".cxx")
    languages = ("cpp",)
    backend = "CPU"

    def count(self) -> int:
        return 1

    def model(self) -> str:
        """The CPU's name from the kernel or the platform; "unknown CPU" if neither gives one."""
        if _CPU_INFO.exists():
            for line in _CPU_INFO.read_text(errors="replace").splitlines():
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model") and value.strip():
                    return value.strip()
        return platform.processor() or platform.machine() or "unknown CPU"

    def free_nbytes(self) -> int:
        return COPIES_NBYTES

    def make_current(self) -> None:
        """See `Device.make_current`."""

    def synchronize(self) -> None:
        """See `Device.synchronize`."""

    def wait_for_stream(self) -> None:
        """See `Device.wait_for_stream`."""

    def empty_cache(self, above_nbytes: int = 0) -> None:
        """See `Device.empty_cache`."""

    def forked_random(self) -> AbstractContextManager[object]:
        import torch

        return torch.random.fork_rng(devices=())

    def random_states(self) -> list[bytes]:
        import torch

        return [torch.get_rng_state().numpy().tobytes()]

    def environment(self, host: Environment) -> Environment:
        return host

    def lock_key(self) -> str:
        return self.torch_name

    def last_level_cache_nbytes(self) -> int:
        """Size of the last cache that the first core reaches."""
        return max((_cache_nbytes(path) for path in _CACHES.glob("index*/size")), default=0)

    def peaks(self) -> Peaks:
        cycles = HZ * (os.cpu_count() or 1)
        return Peaks(float("inf"), NBYTES_PER_CYCLE * cycles, FLOPS_PER_CYCLE * cycles, 0)

    def matmul_dtypes(self) -> tuple[str, ...]:
        return "float32", "bfloat16"

    def make_timer(
        self, arms: Arms, *, copies: int, limit_s: float, longer: float = 1.0, **_: object
    ) -> tuple[Timer, tuple[str, ...]]:
        """See `TimedDevice.make_timer`; here all are loops, of whatever is called."""
        from pytest_cgins.timing.cpu_timer import HostTimer

        return HostTimer(arms, copies=copies, limit_s=limit_s, longer=longer), ()


DEVICE = Cpu


def clock_policy() -> str:
    """Governors of the cores that the process may use, and whether they may clock higher than their base.

    Returns:
        `governor performance, turbo off`; "" in a virtual machine, which is not told.
    """
    files = (_CPUS / f"cpu{core}" / "cpufreq" / "scaling_governor" for core in cores())
    governors = sorted({text for file in files if (text := text_of(file).strip())})
    turbos = (words.get(text_of(_CPUS / name).strip()) for name, words in _TURBO.items())
    turbo = next((word for word in turbos if word), "")
    parts = [f"governor {'/'.join(governors)}" if governors else "", f"turbo {turbo}" if turbo else ""]
    return ", ".join(part for part in parts if part)


def cores() -> list[int]:
    """The cores that the process may use."""
    return sorted(os.sched_getaffinity(0))


def _cache_nbytes(path: Path) -> int:
    """Bytes of a cache as sysfs writes it: `32768K`; 0 for anything else."""
    text = path.read_text().strip()
    return int(text[:-1]) * 1024 if text[:-1].isdigit() and text.endswith("K") else 0
