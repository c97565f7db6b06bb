"""An NVIDIA GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from pytest_cgins.building.loading import cuda_driver as driver
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.session_report import Environment
from pytest_cgins.timing.devices import TimedDevice
from pytest_cgins.timing.measured_peaks import MATMUL_DTYPES
from pytest_cgins.timing.nvml import Gpu
from pytest_cgins.timing.peaks import Peaks
from pytest_cgins.timing.timer import Arms, Timer

CLOCK_RATE_KHZ = 13  # CU_DEVICE_ATTRIBUTE_…
MEMORY_CLOCK_RATE_KHZ = 36
MEMORY_BUS_BITS = 37
L2_NBYTES = 38
CAPABILITY_MAJOR = 75

L1_NBYTES_PER_CYCLE = 128
TENSOR_FLOPS_PER_CYCLE = {7: 1024, 8: 2048, 9: 4096}
NEWEST_TENSOR_FLOPS_PER_CYCLE = 16384
"""Half-precision operations of a multiprocessor in a cycle, dense: by major compute capability, and for all newer ones."""


class Cuda(TimedDevice):
    """One GPU, or a part of one, as torch numbers them."""

    name: ClassVar[DeviceName] = "cuda"
    is_accelerator = True
    is_cuda = True
    suffixes = (".cu",)
    languages = ("cuda", "triton", "cute")
    backend = "CUDA"

    def count(self) -> int:
        return int(_cuda().device_count())

    def model(self) -> str:
        return str(self._properties().name)

    def free_nbytes(self) -> int:
        return int(_cuda().mem_get_info(self.index)[0])

    def make_current(self) -> None:
        _cuda().set_device(self.index)

    def current(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = _cuda().device(self.index)
        return context

    def synchronize(self) -> None:
        _cuda().synchronize(self.index)

    def wait_for_stream(self) -> None:
        _cuda().current_stream(self.index).synchronize()

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        self.synchronize()
        with _cuda().stream(_cuda().Stream(self.index)):
            yield

    def is_capturing(self) -> bool:
        import torch

        return bool(torch._C._cuda_isCurrentStreamCapturing())

    @contextmanager
    def capture_stream(self) -> Iterator[None]:
        graph = _cuda().graph
        if graph.default_capture_stream is None:
            graph.default_capture_stream = _cuda().Stream()
        self.synchronize()
        with _cuda().stream(graph.default_capture_stream):
            yield
        self.synchronize()

    def others_nbytes(self) -> int:
        """See `Device.others_nbytes`; 0 where the GPU is lost."""
        try:
            free, total = _cuda().mem_get_info(self.index)
            return max(0, int(total - free - _cuda().memory_reserved(self.index)))
        except RuntimeError:
            return 0

    def empty_cache(self, above_nbytes: int = 0) -> None:
        if _cuda().memory_reserved(self.index) - _cuda().memory_allocated(self.index) > above_nbytes:
            _cuda().empty_cache()

    def forked_random(self) -> AbstractContextManager[object]:
        import torch

        return torch.random.fork_rng(devices=range(self.count()))

    def random_states(self) -> list[bytes]:
        return [*device_of("cpu").random_states(), _cuda().get_rng_state(self.index).numpy().tobytes()]

    def mark(self) -> Any:
        # One within a CUDA graph is part of it, and can be read after each replay.
        within = {"external": True} if self.is_capturing() else {}
        event = _cuda().Event(enable_timing=True, **within)
        event.record()
        return event

    def seconds_between(self, first: Any, last: Any) -> float:
        last.synchronize()
        return 1e-3 * float(first.elapsed_time(last))

    def environment(self, host: Environment) -> Environment:
        import torch

        properties = self._properties()
        gpu = self.clocks()
        return replace(
            host,
            device_uuid=gpu.uuid if gpu else f"GPU-{properties.uuid}",
            sm_count=properties.multi_processor_count,
            memory_nbytes=properties.total_memory,
            driver=(gpu.driver() if gpu else None) or "",
            mig=gpu.mig() if gpu else None,
            ecc=gpu.ecc() if gpu else None,
            clock_policy=(gpu.clock_policy() if gpu else None) or "",
            cudnn=_cudnn(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            cublas=_cublas(host.cuda),
        )

    def lock_key(self) -> str:
        """The GPU's UUID, because its index depends on CUDA_VISIBLE_DEVICES."""
        return f"gpu-{self._properties().uuid}"

    def last_level_cache_nbytes(self) -> int:
        """Size of the L2 cache."""
        return int(self._properties().L2_cache_size)

    def peaks(self) -> Peaks | None:
        """None if the driver does not tell; see `timing.peaks`."""
        clock, memory_clock, bus, cores, cache, major = (
            driver.device_attribute(attribute, self.index)
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

    def matmul_dtypes(self) -> tuple[str, ...]:
        ampere = _cuda().get_device_capability(self.index)[0] >= 8
        return tuple(name for name in MATMUL_DTYPES if ampere or name not in ("tf32", "bfloat16"))

    def make_timer(self, arms: Arms, **options: Any) -> tuple[Timer, tuple[str, ...]]:
        from pytest_cgins.timing import cuda_timer

        return cuda_timer.make_timer(arms, **options)

    def clocks(self) -> Gpu | None:
        return Gpu.find(self.index)

    def launch_ns(self) -> float:
        from pytest_cgins.timing.cuda_timer import launch_seconds

        return 1e9 * launch_seconds()

    def host_ns_per_call(self, arm: Callable[[int], object], copies: int) -> float:
        from pytest_cgins.timing.cuda_timer import host_seconds_per_call

        return 1e9 * host_seconds_per_call(arm, copies)

    def _properties(self) -> Any:
        return _cuda().get_device_properties(self.index)


DEVICE = Cuda


def _cuda() -> Any:
    import torch

    return torch.cuda


def _cudnn(version: int | None) -> str:
    """Text of a number: 91002 is cuDNN 9.10.2."""
    return "" if version is None else f"{version // 10000}.{version % 10000 // 100}.{version % 100}"


def _cublas(cuda: str) -> str:
    """Version of the cuBLAS that torch has loaded; "" if it has loaded none by CUDA's major version."""
    try:
        ask = ctypes.CDLL(f"libcublas.so.{cuda.partition('.')[0]}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        numbers = [ctypes.c_int() for _ in range(3)]
        told = [ask.cublasGetProperty(kind, ctypes.byref(number)) for kind, number in enumerate(numbers)]
    except (OSError, AttributeError):
        return ""
    return "" if any(told) else ".".join(str(number.value) for number in numbers)
