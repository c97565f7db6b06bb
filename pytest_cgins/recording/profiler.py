"""Measuring a profile: every trace of a pack replayed, counted and timed."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_cgins.core.device import Device, DeviceName, device_of
from pytest_cgins.core.errors import PackError, ReplayError, TraceError
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs import replay
from pytest_cgins.packs.call import bound, relocate
from pytest_cgins.packs.context import origin_of, restore
from pytest_cgins.packs.store import PackReader
from pytest_cgins.recording.profile import PROFILE_VERSION, AtenCall, DeviceKernel, PackProfile, TraceProfile

BATCH_SECONDS = 1e-3
BUDGET_SECONDS = 0.03
WILD = 2.0
"""Two measurements of a trace that differ by more are told."""
_SAMPLES = (5, 50)
_PROFILED_CALLS = 3

Call = Callable[[], object]


def profile(
    reader: PackReader, device: DeviceName, traces: Iterable[Trace]
) -> tuple[PackProfile, list[TraceError]]:
    """Replay traces of a pack on a device; what cannot be replayed there is left out and given back."""
    measured: list[TraceProfile] = []
    failures: list[TraceError] = []
    known = tuple(traces)
    for trace in known:
        try:
            measured.append(profile_trace(trace, reader, device))
        except (PackError, ReplayError) as error:
            failures.append(error)
    by_id = {trace.id: trace for trace in known}
    measured = [_measured_again(one, by_id[one.trace], reader, device) for one in measured]
    whole = sum(one.calls * one.median_ns_per_call for one in measured)
    shared = tuple(replace(one, time_share=one.calls * one.median_ns_per_call / whole) for one in measured)
    origin = origin_of(device)
    made = PackProfile(
        version=PROFILE_VERSION,
        pack=reader.pack.name,
        device=device,
        device_name=origin.device_name,
        torch=origin.torch,
        traces=shared,
    )
    return made, failures


def profile_trace(trace: Trace, reader: PackReader, device: DeviceName) -> TraceProfile:
    """One trace; its `time_share` is 1, that of a pack which has no other.

    Raises:
        PackError: if its inputs cannot be read.
        ReplayError: if it has no values, or its op cannot be run on the device.
    """
    trace = replace(trace, call=relocate(trace.call, device))
    tensors = replay.load_inputs(trace, reader, device)
    try:
        aten = _aten_calls(trace, tensors, device)
        tensors = replay.load_inputs(trace, reader, device)
        with restore(trace.context, device):
            call = bound(trace.call, tensors)
            kernels = _device_kernels(call) if device_of(device).is_cuda else ()
            samples = _samples_ns(call, device_of(device), _restorer(trace, tensors))
    except TraceError as error:
        raise ReplayError(
            f"{trace.call.op} {trace.signature} cannot be replayed: {error.what}", remedy=error.remedy
        ) from error
    except Exception as error:
        raise ReplayError(
            f"{trace.call.op} {trace.signature} cannot be replayed on {device}: {type(error).__name__}: {error}",
            remedy="profile it where it was recorded, or record it again",
        ) from error
    return TraceProfile(
        trace=trace.id,
        op=trace.call.op,
        signature=trace.signature,
        calls=trace.count,
        aten=aten,
        kernels=kernels,
        median_ns_per_call=statistics.median(samples),
        samples=len(samples),
        time_share=1.0,
    )


def _measured_again(
    first: TraceProfile, trace: Trace, reader: PackReader, device: DeviceName
) -> TraceProfile:
    """The shorter of two times, the second taken when all traces have run: the first ones of an op may load and tune."""
    trace = replace(trace, call=relocate(trace.call, device))
    tensors = replay.load_inputs(trace, reader, device)
    with restore(trace.context, device):
        samples = _samples_ns(bound(trace.call, tensors), device_of(device), _restorer(trace, tensors))
    times = sorted((first.median_ns_per_call, statistics.median(samples)))
    return replace(
        first,
        median_ns_per_call=times[0],
        samples=first.samples if times[0] == first.median_ns_per_call else len(samples),
        other_ns_per_call=times[1] if times[1] > WILD * times[0] else None,
    )


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[torch._ops.OpOverload] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        self.calls[func] += 1
        return func(*args, **(kwargs or {}))


def _aten_calls(trace: Trace, tensors: Sequence[torch.Tensor], device: str) -> tuple[AtenCall, ...]:
    # Inference mode would show composite ops instead of what they call.
    context = replace(trace.context, inference_mode=False)
    with restore(context, device):
        call = bound(trace.call, tensors)
        with Counting() as counting:
            call()
    return tuple(
        AtenCall(name=str(func), count=count, view=bool(func.is_view))
        for func, count in counting.calls.items()
    )


def _device_kernels(call: Call) -> tuple[DeviceKernel, ...]:
    """What CUPTI saw of a few calls; empty if it may not look."""
    call()
    torch.cuda.synchronize()
    cuda = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[cuda], acc_events=True) as profiler:
        for _ in range(_PROFILED_CALLS):
            call()
        torch.cuda.synchronize()
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in profiler.events() or ():
        if event.device_type.name == "CUDA":
            counts[event.name] += 1
            times[event.name] += round(1e3 * event.time_range.elapsed_us())
    return tuple(
        DeviceKernel(
            name=name, count=max(1, round(counts[name] / _PROFILED_CALLS)), ns_per_call=ns / _PROFILED_CALLS
        )
        for name, ns in times.most_common()
    )


def _restorer(trace: Trace, tensors: Sequence[torch.Tensor]) -> Call | None:
    """What puts the inputs back that the op changes; None if it changes none."""
    changed = [index for index, _ in (trace.gold.mutated if trace.gold is not None else ())]
    if not changed:
        return None
    kept = [(tensors[index], tensors[index].clone()) for index in changed]

    def put_back() -> None:
        for tensor, before in kept:
            tensor.copy_(before)

    return put_back


def _samples_ns(call: Call, device: Device, put_back: Call | None) -> list[float]:
    """Nanoseconds a call, one number a batch; a call that changes its inputs is a batch of its own."""
    call()
    estimate = _seconds(call, 1, device)
    calls = 1 if put_back is not None else max(1, math.ceil(BATCH_SECONDS / estimate))
    least, most = _SAMPLES
    samples: list[float] = []
    end = time.perf_counter() + BUDGET_SECONDS
    while len(samples) < least or (len(samples) < most and time.perf_counter() < end):
        if put_back is not None:
            put_back()
        samples.append(1e9 * _seconds(call, calls, device) / calls)
    return samples


def _seconds(call: Call, calls: int, device: Device) -> float:
    """Of several calls, on an accelerator queued one after another."""
    device.synchronize()
    start = device.mark()
    for _ in range(calls):
        call()
    return max(device.seconds_between(start, device.mark()), 1e-9)
