"""The fixture `cgins_benchmark`: the gate's timers on a test's own callable."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_cgins.session.run import GateSession
from pytest_cgins.timing import environment, lock, stats
from pytest_cgins.timing.timer import Arms, Timer

LEAST_BATCHES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a callable takes."""

    device: str
    """`cpu` or `cuda:0`."""
    method: str
    """Clock and batching: `cuda-graph`, `cuda-event` or `perf-counter`."""
    calls_per_batch: int
    """Calls in one timed batch."""
    samples_ns_per_call: tuple[float, ...]
    """One a batch, in the order in which they were taken."""
    median_ns_per_call: float
    """Median of the samples."""
    iqr_ns_per_call: float
    """Distance of their quartiles."""
    notes: tuple[str, ...]
    """What a reader must know: a fallback that was taken."""


class Benchmark:
    """Times a callable in this process, unlike kernels of `cgins.yaml`, which run in workers.

    Every call gets the same arguments, so times are those of a warm cache. One process times at once
    on a device, xdist's workers included, and no compiler of this process runs meanwhile.
    """

    def __init__(self, item: pytest.Item, *, lock_wait_s: float) -> None:
        self._item = item
        self._lock_wait_s = lock_wait_s

    def __call__(
        self,
        function: Callable[..., Any],
        *args: Any,
        budget_s: float = 0.1,
        device: str | None = None,
        **kwargs: Any,
    ) -> Timing:
        """Call `function(*args, **kwargs)` many times.

        Args:
            function: launches its work on the current stream and does not wait for it.
            args: its positional arguments.
            budget_s: about how long to measure, in seconds, warm-up apart.
            device: `cpu` or `cuda:0`; by default that of the first tensor argument, else `cpu`.
            kwargs: its keyword arguments.

        Raises:
            InfrastructureError: another process held the device for longer than `--cgins-timeout`.
        """
        device = device or _device_of([*args, *kwargs.values()])
        arms: Arms = {"kernel": lambda _: function(*args, **kwargs)}
        key = environment.device_key(device)
        builds = GateSession.of(self._item.config).builds.ahead
        with builds.quiet(), lock.exclusive(key, wait_s=self._lock_wait_s), _current(device):
            timer, notes = _make_timer(arms, device, budget_s / LEAST_BATCHES)
            samples = _batches(timer, budget_s)
        spread = stats.quartiles(samples)
        self._item.user_properties.append(("cgins_median_ns_per_call", spread.median))
        return Timing(
            device=device,
            method=timer.method,
            calls_per_batch=timer.calls_per_batch,
            samples_ns_per_call=tuple(samples),
            median_ns_per_call=spread.median,
            iqr_ns_per_call=spread.range,
            notes=notes,
        )


def _current(device: str) -> AbstractContextManager[object]:
    """Make a GPU the current one: events and graphs belong to it."""
    if not device.startswith("cuda"):
        return nullcontext()
    import torch

    return torch.cuda.device(device)


def _make_timer(arms: Arms, device: str, limit_s: float) -> tuple[Timer, tuple[str, ...]]:
    if device.startswith("cuda"):
        from pytest_cgins.timing.cuda import make_timer

        return make_timer(arms, copies=1, limit_s=limit_s)
    from pytest_cgins.timing.cpu import HostTimer

    return HostTimer(arms, copies=1, limit_s=limit_s), ()


def _batches(timer: Timer, budget_s: float) -> list[float]:
    end = time.perf_counter() + budget_s
    samples: list[float] = []
    while len(samples) < LEAST_BATCHES or time.perf_counter() < end:
        samples.append(timer.batch("kernel"))
    return samples


def _device_of(values: list[Any]) -> str:
    import torch

    return next((str(value.device) for value in values if isinstance(value, torch.Tensor)), "cpu")
