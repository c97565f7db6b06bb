"""The service that times a kernel against torch, after it has passed verification elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.errors import ProtocolError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.kernels import KernelCache, import_from, use_device, wait_for_device
from pytest_cgins.execute.tensors import unpack
from pytest_cgins.model import Context, OpCall, TensorMeta
from pytest_cgins.timing.environment import device_key
from pytest_cgins.timing.lock import exclusive
from pytest_cgins.timing.measure import measure
from pytest_cgins.timing.rotation import Rotation, last_level_cache_bytes, plan
from pytest_cgins.timing.timer import Arms
from pytest_cgins.trace.backward import is_derived
from pytest_cgins.trace.call import bound
from pytest_cgins.trace.context import restore
from pytest_cgins.trace.dtypes import ITEMSIZE
from pytest_cgins.trace.ops import trust

LOCK_WAIT_S = 30.0
CPU_COPIES_BYTES = 2**30
"""What the copies of one case's tensors may take of the host's memory."""

_ARMS = 2


class TimingService:
    """Times kernels, in a process that never verified one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        del settings
        self.fatal = False
        self._kernels = KernelCache()

    def measure(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Time a kernel and torch's op on copies of the same inputs.

        Args:
            params: `kernel` (CompiledKernel), `device`, `call` (OpCall), `tensors` (as of `tensors.pack`),
                `outputs` (TensorMetas), `context` (Context), `import_root` (folder that the op's module
                is imported from), `budget_s`, `seed`, and, if wanted, `lock_wait_s`: how long to wait for
                other processes that time on the device.
            buffers: that of `tensors`.

        Returns:
            Measurement JSON, and no buffer.
        """
        if len(buffers) != 1:
            raise ProtocolError(f"one buffer was expected, {len(buffers)} came")
        device = params["device"]
        use_device(device)
        import_from(params["import_root"])
        context = documents.load_python(Context, params["context"])
        rotation = _plan_rotation(params, device)
        # A recorded context may have torch import Triton, which has to know before whether it interprets.
        self._kernels.load(params["kernel"])
        try:
            with (
                exclusive(device_key(device), wait_s=params.get("lock_wait_s", LOCK_WAIT_S)),
                restore(context, device.partition(":")[0], repeatable=False),
            ):
                arms = self._make_arms(params, buffers[0], device, rotation.copies)
                measurement = measure(
                    arms, device, rotation=rotation, budget_s=params["budget_s"], seed=params["seed"]
                )
                wait_for_device(device)
        except BaseException:
            self.fatal = device != "cpu"  # the CUDA context may be lost
            raise
        # A capture that failed leaves torch's allocator waiting for its end, and later ones would fail too.
        self.fatal = measurement.method == "cuda-event"
        return documents.dump_python(measurement), []

    def _make_arms(self, params: dict[str, Any], buffer: Buffer, device: str, copies: int) -> Arms:
        kernel = self._kernels.load(params["kernel"])
        call = documents.load_python(OpCall, params["call"])
        trust(params["kernel"]["source"]["op"])
        outputs = [documents.load_python(TensorMeta, meta) for meta in params["outputs"]]

        def inputs() -> list[torch.Tensor]:
            return unpack(params["tensors"], buffer, device)

        kernels = [kernel.bind(call, inputs(), outputs, device).run for _ in range(copies)]
        with _capture_stream(device) if is_derived(call.op) else nullcontext():
            ops = [bound(call, inputs()) for _ in range(copies)]
        return {"kernel": _Rotating(kernels), "torch": _Rotating(ops)}


@contextmanager
def _capture_stream(device: str) -> Iterator[None]:
    """Make current the stream that graphs are captured on: autograd runs a backward on that of its forward."""
    if not device.startswith("cuda"):
        yield
        return
    graph: Any = torch.cuda.graph
    if graph.default_capture_stream is None:
        graph.default_capture_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    wait_for_device(device)
    with torch.cuda.stream(graph.default_capture_stream):
        yield
    wait_for_device(device)


class _Rotating:
    """Calls that differ only in the copy of their tensors.

    Each keeps its result until it runs again, so that outputs rotate through as much memory as inputs do,
    instead of the allocator giving every call the block that the last one has just freed.
    """

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = calls
        self._results: list[object] = [None] * len(calls)

    def __call__(self, index: int) -> None:
        self._results[index] = self._calls[index]()


def _plan_rotation(params: dict[str, Any], device: str) -> Rotation:
    outputs = [documents.load_python(TensorMeta, meta) for meta in params["outputs"]]
    touched = sum(params["tensors"]["spans"]) + sum(meta.numel * ITEMSIZE[meta.dtype] for meta in outputs)
    on_gpu = device.startswith("cuda")
    memory = torch.cuda.mem_get_info(torch.device(device))[0] // 2 if on_gpu else CPU_COPIES_BYTES
    return plan(touched, last_level_cache_bytes(device), memory_bytes=memory // _ARMS)
