"""Measures what a device reaches: a copy of memory, and products of matrices by dtype.

The best of several runs is taken: what disturbs one makes it slower only. It takes 0.2 s on an H200, and 0.4 s more
where the process has not loaded cuBLAS yet; 0.8 s on two cores of a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pytest_cgins.timing.environment import describe
from pytest_cgins.timing.measured_peaks import MATMUL_DTYPES, MeasuredPeaks, key
from pytest_cgins.timing.rotation import last_level_cache_bytes

MIB = 1 << 20
GPU_BUDGET_S, CPU_BUDGET_S = 0.03, 0.1
"""Of each quantity, after its warm-up."""
FEWEST_RUNS = 3
CACHES = 8
"""How many times a GPU's last-level cache one buffer of the copy holds."""
_TORCH_DTYPES = {
    "float32": torch.float32, "tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
}  # fmt: skip


def measure(device: str) -> MeasuredPeaks:
    """Measure `cpu` or a `cuda:<index>`, which nobody else should use meanwhile.

    Raises:
        RuntimeError: not even a copy succeeds, for want of memory.
    """
    began = time.perf_counter()
    seconds_of = _gpu_clock(device) if device.startswith("cuda") else _seconds_on_cpu
    try:
        with torch.inference_mode():
            copied = _copy_bytes_per_s(device, seconds_of)
            products = {name: _matmul_flops_per_s(device, name, seconds_of) for name in _dtypes(device)}
    finally:
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    return MeasuredPeaks(
        key=key(describe(device)),
        copy_bytes_per_s=copied,
        matmul_flops_per_s={name: rate for name, rate in products.items() if rate},
        measured_at_s=time.time(),
        seconds=time.perf_counter() - began,
    )


def _dtypes(device: str) -> tuple[str, ...]:
    """What the device multiplies by itself: emulated types are no peak."""
    if not device.startswith("cuda"):
        return "float32", "bfloat16"
    ampere = torch.cuda.get_device_capability(device)[0] >= 8
    return tuple(name for name in MATMUL_DTYPES if ampere or name not in ("tf32", "bfloat16"))


def _copy_bytes_per_s(device: str, seconds_of: Callable[[Callable[[], object]], float]) -> float:
    nbytes = _copy_nbytes(device)
    source = torch.ones(nbytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * nbytes / _best(lambda: target.copy_(source), device, seconds_of)


def _copy_nbytes(device: str) -> int:
    cache = last_level_cache_bytes(device)
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(device)
        return int(min(max(CACHES * cache, 256 * MIB), free // 4))
    # The files of one core name its share of caches alone, where a CPU has several.
    cache = max(cache, 4 * MIB * torch.get_num_threads())
    return min(max(4 * cache, 64 * MIB), 128 * MIB)


def _matmul_flops_per_s(device: str, name: str, seconds_of: Callable[[Callable[[], object]], float]) -> float:
    """Of the least square matrices that keep the device busy; 0 if its memory does not hold them."""
    on_gpu = device.startswith("cuda")
    size, largest, busy_s = (1024, 8192, 2e-3) if on_gpu else (512, 2048, 1e-2)
    with _tf32(name == "tf32"):
        try:
            while True:
                left, right, result = (_matrix(size, name, device) for _ in range(3))

                def multiply(
                    left: torch.Tensor = left, right: torch.Tensor = right, result: torch.Tensor = result
                ) -> object:
                    return torch.mm(left, right, out=result)

                seconds_of(multiply)  # the library chooses and loads its kernel
                if size >= largest or seconds_of(multiply) >= busy_s:
                    return 2 * size**3 / _best(multiply, device, seconds_of)
                size *= 2
        except RuntimeError:  # out of memory, or the library has no such product
            return 0.0


def _matrix(size: int, name: str, device: str) -> torch.Tensor:
    """Random numbers on a GPU, whose clocks depend on how many bits change; to draw them takes a CPU too long."""
    draw = torch.randn if device.startswith("cuda") else torch.ones
    return draw(size, size, device=device).to(_TORCH_DTYPES[name])


def _best(
    run: Callable[[], object], device: str, seconds_of: Callable[[Callable[[], object]], float]
) -> float:
    """Seconds of the fastest run within the budget."""
    budget = GPU_BUDGET_S if device.startswith("cuda") else CPU_BUDGET_S
    run()
    until = time.perf_counter() + budget
    best, runs = float("inf"), 0
    while runs < FEWEST_RUNS or time.perf_counter() < until:
        best, runs = min(best, seconds_of(run)), runs + 1
    return best


def _seconds_on_cpu(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _gpu_clock(device: str) -> Callable[[Callable[[], object]], float]:
    """Seconds by events around a run, behind one that keeps the device busy while the host catches up."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def seconds_of(run: Callable[[], object]) -> float:
        with torch.cuda.device(device):
            run()
            first.record()
            run()
            last.record()
            last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    return seconds_of


@contextmanager
def _tf32(on: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
