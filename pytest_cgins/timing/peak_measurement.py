"""Measures what a device reaches: a copy of memory, and products of matrices by dtype.

The best of several runs is taken: what disturbs one makes it slower only. It takes 0.2 s on an H200, and 0.4 s more
where the process has not loaded cuBLAS yet; 0.8 s on two cores of a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pytest_cgins.timing.devices import TimedDevice, timed_device
from pytest_cgins.timing.environment import describe
from pytest_cgins.timing.measured_peaks import MeasuredPeaks, key

MIB = 1 << 20
GPU_BUDGET_S, CPU_BUDGET_S = 0.03, 0.1
"""Time to measure each quantity, after its warm-up."""
FEWEST_RUNS = 3
CACHES = 8
"""How many times a GPU's last-level cache one buffer of the copy holds."""


def measure(device: str) -> MeasuredPeaks:
    """Measure a device, which nobody else should use meanwhile.

    Raises:
        RuntimeError: not even a copy succeeds, for want of memory.
    """
    began = time.perf_counter()
    measured = timed_device(device)
    try:
        with torch.inference_mode():
            copied = _copy_bytes_per_s(measured)
            products = {name: _matmul_flops_per_s(measured, name) for name in measured.matmul_dtypes()}
    finally:
        measured.empty_cache()
    return MeasuredPeaks(
        key=key(describe(device)),
        copy_bytes_per_s=copied,
        matmul_flops_per_s={name: rate for name, rate in products.items() if rate},
        measured_at_s=time.time(),
        seconds=time.perf_counter() - began,
    )


def _copy_bytes_per_s(device: TimedDevice) -> float:
    nbytes = _copy_nbytes(device)
    source = torch.ones(nbytes, dtype=torch.uint8, device=device.torch_name)
    target = torch.zeros_like(source)
    return 2 * nbytes / _best(lambda: target.copy_(source), device)


def _copy_nbytes(device: TimedDevice) -> int:
    cache = device.last_level_cache_nbytes()
    if device.is_accelerator:
        return min(max(CACHES * cache, 256 * MIB), device.free_nbytes() // 4)
    # The files of one core name its share of caches alone, where a CPU has several.
    cache = max(cache, 4 * MIB * torch.get_num_threads())
    return min(max(4 * cache, 64 * MIB), 128 * MIB)


def _matmul_flops_per_s(device: TimedDevice, name: str) -> float:
    """Operations a second with the smallest square matrices that keep the device busy; 0 if its memory does not hold them."""
    size, largest, busy_s = (1024, 8192, 2e-3) if device.is_accelerator else (512, 2048, 1e-2)
    with _tf32(name == "tf32"):
        try:
            while True:
                left, right, result = (_matrix(size, name, device) for _ in range(3))

                def multiply(
                    left: torch.Tensor = left, right: torch.Tensor = right, result: torch.Tensor = result
                ) -> object:
                    return torch.mm(left, right, out=result)

                _seconds_of(multiply, device)  # the library chooses and loads its kernel
                if size >= largest or _seconds_of(multiply, device) >= busy_s:
                    return 2 * size**3 / _best(multiply, device)
                size *= 2
        except RuntimeError:  # out of memory, or the library has no such product
            return 0.0


def _matrix(size: int, name: str, device: TimedDevice) -> torch.Tensor:
    """Random numbers on a GPU, whose clocks depend on how many bits change; to draw them takes a CPU too long."""
    draw = torch.randn if device.is_accelerator else torch.ones
    return draw(size, size, device=device.torch_name).to(
        getattr(torch, "float32" if name == "tf32" else name)
    )


def _best(run: Callable[[], object], device: TimedDevice) -> float:
    """Seconds of the fastest run within the budget."""
    budget = GPU_BUDGET_S if device.is_accelerator else CPU_BUDGET_S
    run()
    until = time.perf_counter() + budget
    best, runs = float("inf"), 0
    while runs < FEWEST_RUNS or time.perf_counter() < until:
        best, runs = min(best, _seconds_of(run, device)), runs + 1
    return best


def _seconds_of(run: Callable[[], object], device: TimedDevice) -> float:
    """Seconds of a run, which an accelerator begins behind another one: it is busy while the host catches up."""
    with device.current():
        if device.is_accelerator:
            run()
        first = device.mark()
        run()
        return device.seconds_between(first, device.mark())


@contextmanager
def _tf32(on: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
