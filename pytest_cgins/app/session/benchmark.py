"""The fixture `cgins_benchmark`: the gate's timers on a test's own callable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from pytest_cgins.app.session.benchmark_records import Timing
from pytest_cgins.app.session.run import GateSession
from pytest_cgins.timing import lock, stats
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.timer import Arms

LEAST_BATCHES = 6


class Benchmark:
    """Times a callable in this process, unlike kernels of `cgins.yaml`, which run in workers.

    Every call gets the same arguments, so times are those of a warm cache. One process times at once
    on a device, xdist's workers included, and no compiler of this process runs meanwhile. Where
    pytest-benchmark keeps records, each call makes one.
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
        timed = timed_device(device)
        gate = GateSession.of(self._item.config)
        with (
            lock.timing(timed.lock_key(), wait_s=self._lock_wait_s),
            gate.builds.ahead.quiet(),  # not before: a compiler that rests would go on holding the device
            timed.current(),
        ):
            timing = _time(lambda: function(*args, **kwargs), device, budget_s)
        self._item.user_properties.append(("cgins_median_ns_per_call", timing.median_ns_per_call))
        gate.benchmark_records.add_callable(self._item, timing)
        return timing


def _time(function: Callable[[], Any], name: str, budget_s: float) -> Timing:
    """Time batches until the budget is spent, with the timer that the gate has for the device."""
    device = timed_device(name)
    arms: Arms = {"kernel": lambda _: function()}
    timer, notes = device.make_timer(arms, copies=1, limit_s=budget_s / LEAST_BATCHES)
    end = time.perf_counter() + budget_s
    samples: list[float] = []
    for block in timer.blocks(repeat(("kernel",))):
        samples += block
        if len(samples) >= LEAST_BATCHES and time.perf_counter() >= end:
            break
    device.synchronize()  # a block more may be under way
    spread = stats.quartiles(samples)
    return Timing(
        device=name,
        method=timer.method,
        calls_per_batch=timer.calls["kernel"],
        samples_ns_per_call=tuple(samples),
        median_ns_per_call=spread.median,
        iqr_ns_per_call=spread.range,
        notes=notes,
    )


def _device_of(values: list[Any]) -> str:
    torch = sys.modules.get("torch")  # where nobody imported it, no argument is a tensor
    if torch is None:
        return "cpu"
    return next((str(value.device) for value in values if isinstance(value, torch.Tensor)), "cpu")
