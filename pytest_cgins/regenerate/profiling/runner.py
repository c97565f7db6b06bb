"""The process under a profiler: it loads one kernel on one set of inputs as the workers do, and calls it.

A profiler wants a program of its own that ends by itself, so this is no worker: its request and its answer are files.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.building.loading.returned import tensors_of
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.tensors import Kept
from pytest_cgins.core.text import counted
from pytest_cgins.packs.call import bound
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.ops import trust
from pytest_cgins.run.kernels import KernelCache
from pytest_cgins.run.sandbox.init import enclose_in_scratch
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.verify.messages import PackedInputs, read
from pytest_cgins.verify.probe_support.timed_copy import Content, TimedCopy

TIMELINE_CALLS = 3
FINE, COARSE = 1e-4, 1e-2
"""KernelBench's `atol` and `rtol`, for fp32 and for narrower types."""
WARM, PLAIN_CALLS = 3, 100
"""Its calls before, and those of which it takes the mean."""
GO_POLL_S = 0.005
_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")


def main(request: str) -> None:
    """Do what a file asks for, and write the answer beside it.

    Args:
        request: path of a JSON file with `mode` (`call`: nothing is measured; `range`: one warm call stands between
            cudaProfilerStart and cudaProfilerStop; `timeline`: calls under torch's profiler; `plain`: see
            `regenerate.plain_harness`), `kernel`
            (CompiledKernel), `device`, `import_root`, `set` (as the timing worker takes it), `content` (path of its
            tensors' bytes), `warm` (calls before), `answer` (path), `ready` and `go` (paths: once the first has
            something in it, the device is touched as soon as the second is there), `variables` (of the environment,
            which a sandbox would have set otherwise) and `encloses` (None, or folders that it may write to: it shares
            its sandbox with a profiler, whose files are not the kernel's).
    """
    asked = json.loads(Path(request).read_text(encoding="utf-8"))
    answer: dict[str, Any]
    # Opened before the fence closes: the folder of the answers is the profiler's.
    with (
        Path(asked["answer"]).open("w", encoding="utf-8") as file,
        Path(asked["ready"]).open("w", encoding="utf-8") as ready,
    ):
        try:
            os.environ.update(asked["variables"])
            if asked["encloses"] is not None:
                enclose_in_scratch(*asked["encloses"])
            device_of(asked["device"]).make_current()
            if asked["mode"] == "timeline":
                # CUPTI takes seconds to load, and the device must be ours alone only afterwards.
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
                    pass
            ready.write("ready")
            ready.flush()
            while not Path(asked["go"]).exists():
                time.sleep(GO_POLL_S)
            answer = _answer(asked)
        except BaseException as error:  # noqa: BLE001 - a kernel may raise anything, also SystemExit
            answer = {
                "error": f"{type(error).__name__}: {error}".strip()[:2000],
                "trace": traceback.format_exc()[-4000:],
            }
        json.dump(answer, file)
    if "error" in answer:
        print(answer["trace"], file=sys.stderr)
        sys.exit(1)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    inputs, device = read(PackedInputs, asked["set"]), asked["device"]
    compiled = read(CompiledKernel, asked["kernel"])
    import_from(asked["import_root"])
    trust(compiled.source.op)
    kernel = KernelCache().load(compiled)
    with (
        Buffer.from_chunks([Path(asked["content"]).read_bytes()]) as buffer,
        restore(inputs.context, device, repeatable=False),
    ):
        content = Content(inputs, Kept(inputs.tensors, buffer, device))
        copy = TimedCopy(kernel, content, device)

        def call() -> None:
            copy.take(content)  # an op that changes its inputs finds them as they were
            device_of(device).synchronize()
            copy.run()
            device_of(device).synchronize()

        started = time.monotonic()
        for _ in range(asked["warm"]):
            call()
        answer: dict[str, Any] = {"warm_seconds": time.monotonic() - started, "notes": _autotuned()}
        if asked["mode"] == "range":
            copy.take(content)
            device_of(device).synchronize()
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
            copy.run()
            device_of(device).synchronize()
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        elif asked["mode"] == "timeline":
            answer["timeline"] = _timeline(copy.run, device)
        elif asked["mode"] == "plain":
            answer["plain"] = _as_plain_harnesses_do(copy, content, device)
    return answer


def _as_plain_harnesses_do(copy: TimedCopy, content: Content, device: str) -> dict[str, Any]:
    """Whether `torch.allclose` holds on the inputs, and mean seconds of a call between two events, torch's beside."""
    tensors = content.kept.unpack()
    theirs = bound(content.call, tensors)
    wanted = [*tensors_of(theirs(), content.call.op), *(tensors[index] for index in content.mutated)]
    copy.take(content)
    got = copy.outputs_of(copy.run())
    device_of(device).synchronize()
    why = "" if len(got) == len(wanted) else f"{counted(len(got), 'tensor')} instead of {len(wanted)}"
    for number, (one, other) in enumerate(zip(got, wanted, strict=False)):
        tolerance = FINE if other.dtype in (torch.float32, torch.float64) else COARSE
        wide = torch.complex128 if other.is_complex() else torch.float64
        if one.shape != other.shape:
            why = why or f"output {number} is {list(one.shape)}, expected is {list(other.shape)}"
        elif not torch.allclose(one.to(wide), other.to(wide), atol=tolerance, rtol=tolerance):
            why = why or f"output {number} is not within {tolerance:g} of torch's"
    if why:
        return {"right": False, "why": why}
    kernel_s, torch_s = (_mean_s(run, device) for run in (copy.run, theirs))
    return {"right": True, "kernel_s": kernel_s, "torch_s": torch_s}


def _mean_s(run: Callable[[], object], device: str) -> float:
    timed = timed_device(device)
    seconds = []
    for _ in range(WARM + PLAIN_CALLS):
        begin = timed.mark()
        run()
        seconds.append(timed.seconds_between(begin, timed.mark()))
    return statistics.mean(seconds[WARM:])


def _timeline(run: Callable[[], object], device: str) -> list[dict[str, Any]]:
    """What the device did in a call, longest first."""
    cuda = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[cuda], acc_events=True) as profiler:
        for _ in range(TIMELINE_CALLS):
            run()
        device_of(device).synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    return timeline_of(events, TIMELINE_CALLS)


def timeline_of(events: list[dict[str, Any]], calls: int) -> list[dict[str, Any]]:
    """Kernels, copies and fills of a trace in Chrome's format, as `TimelineKernel` has them, longest first."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in _ACTIVITIES and event.get("ph") == "X":
            found[str(event.get("name", ""))].append(event)
    made = []
    for name, those in found.items():
        told = those[0].get("args") or {}
        made.append(
            {
                "name": name,
                "count": max(1, round(len(those) / calls)),
                "ns_per_call": sum(1e3 * float(one.get("dur", 0.0)) for one in those) / calls,
                "grid": _shape(told.get("grid")),
                "block": _shape(told.get("block")),
                "registers_per_thread": _whole(told.get("registers per thread")),
                "shared_nbytes_per_block": _whole(told.get("shared memory")),
                "occupancy_pct": _plain(told.get("est. achieved occupancy %")),
            }
        )
    return sorted(made, key=lambda one: -float(one["ns_per_call"]))


def _shape(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else ""


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None


def _plain(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _autotuned() -> list[str]:
    """What Triton's autotuning chose before anything was measured: these are the configurations that are profiled."""
    module = sys.modules.get("triton.runtime.autotuner")
    tuner = getattr(module, "Autotuner", None)
    if tuner is None:
        return []
    notes = []
    for get_object in gc.get_objects():
        if issubclass(type(get_object), tuner) and getattr(get_object, "cache", None):
            name = getattr(getattr(get_object, "base_fn", None), "__name__", "a kernel")
            tried, best = len(getattr(get_object, "configs", ())), getattr(get_object, "best_config", "?")
            notes.append(f"autotuning of {name} chose of {tried} before the profiled call: {best}")
    return notes
