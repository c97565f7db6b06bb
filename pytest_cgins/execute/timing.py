"""The service that times a kernel against torch, after it has passed verification elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.errors import ProtocolError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.kernels import KernelCache, use_device, wait_for_device
from pytest_cgins.execute.tensors import pack, unpack
from pytest_cgins.execute.trial import plain
from pytest_cgins.kernels.callable import LoadedKernel
from pytest_cgins.kernels.imports import import_from
from pytest_cgins.kernels.launcher import poison
from pytest_cgins.model import Context, OpCall, TensorMeta
from pytest_cgins.probes import after_timing, content_cache, integrity, l2_carve_out, snooping
from pytest_cgins.probes.after_timing import Given
from pytest_cgins.probes.l2_carve_out import CarveOut
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.watch import Watch
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
_Content = tuple[dict[str, Any], Buffer]


class TimingService:
    """Times kernels, in a process that never verified one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        del settings
        self.fatal = False
        self._kernels = KernelCache()

    def measure(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Time a kernel and torch's op on copies of the same inputs.

        Args:
            params: `kernel` (CompiledKernel), `device`, `import_root` (folder that the op's module is imported
                from), `budget_s`, `seed`, and `sets` that differ in their numbers alone, each with `name`, `call`
                (OpCall), `tensors` (as of `tensors.pack`), `outputs` (TensorMetas), `context` (Context) and, if
                any, `mutated` (indices of the tensors that the op changes). If wanted, `probes`, names of those
                that are switched on, and `lock_wait_s`: how long to wait for other processes that time on the
                device.
            buffers: one a set.

        Returns:
            `{"measurement": Measurement, "answers": […], "observed": {…}}`, and one buffer an answer.

            An answer has `name`; `when`, `last` or `after` (see `probes.after_timing`); `tensors`, the outputs
            and after them the mutated inputs; and `error`, None or `kind` and `message`. `observed` has what
            probes saw, by their names.
        """
        sets, device = params["sets"], params["device"]
        if not sets or len(buffers) != len(sets):
            raise ProtocolError(f"{len(sets)} sets came with {len(buffers)} buffers")
        use_device(device)
        import_from(params["import_root"])
        context = documents.load_python(Context, sets[0]["context"])
        rotation = _plan_rotation(sets, device)
        carve_out = CarveOut(device, on=l2_carve_out.NAME in params.get("probes", ()))
        # A recorded context may have torch import Triton, which has to know before whether it interprets.
        watch = Watch(frozenset(params.get("probes", ())) & {integrity.NAME, snooping.NAME}, params)
        with watch.loading():
            self._kernels.load(params["kernel"])
        carve_out.loaded()
        try:
            with (
                exclusive(device_key(device), wait_s=params.get("lock_wait_s", LOCK_WAIT_S)),
                restore(context, device.partition(":")[0], repeatable=False),
            ):
                copies = self._copies(params, buffers, rotation.copies)
                kernel = _Rotating([copy.run for copy in copies])
                arms: Arms = {"kernel": kernel, "torch": self._torch_arm(params, buffers, rotation.copies)}
                # Not before the op's own module was imported, whose settings are no doing of the kernel.
                with watch.timing() as put_back:
                    carve_out.settle(copies[0].once_more)
                    copies[0].take(copies[0].content)
                    measurement = measure(
                        arms,
                        device,
                        rotation=rotation,
                        budget_s=params["budget_s"],
                        seed=params["seed"],
                        before_batch=put_back,
                        before_last=lambda method, distinct: _exchange(
                            copies, kernel.results, method, distinct
                        ),
                    )
                    wait_for_device(device)
                    answers, cached = _probed(copies, kernel.results, params)
                    carve_out.called(lambda: attempt(copies[0].once_more))
        except BaseException:
            self.fatal = device != "cpu"  # the CUDA context may be lost
            raise
        finally:
            carve_out.clear()
            observed = watch.observed()  # also puts back what the kernel replaced
        # A capture that failed leaves torch's allocator waiting for its end, and later ones would fail too.
        self.fatal = watch.spent or measurement.method == "cuda-event"
        result = {
            "measurement": documents.dump_python(measurement),
            "answers": [answer for answer, _ in answers],
            "observed": {**observed, **cached, l2_carve_out.NAME: carve_out.facts()},
        }
        return result, [buffer for _, buffer in answers]

    def _copies(self, params: dict[str, Any], buffers: list[Buffer], count: int) -> list[TimedCopy]:
        kernel = self._kernels.load(params["kernel"])
        trust(params["kernel"]["source"]["op"])
        sets = list(zip(params["sets"], buffers, strict=True))
        return [TimedCopy(kernel, *sets[index % len(sets)], params["device"]) for index in range(count)]

    @staticmethod
    def _torch_arm(params: dict[str, Any], buffers: list[Buffer], count: int) -> _Rotating:
        sets, device = list(zip(params["sets"], buffers, strict=True)), params["device"]
        call = documents.load_python(OpCall, params["sets"][0]["call"])
        with _capture_stream(device) if is_derived(call.op) else nullcontext():
            return _Rotating(
                [
                    bound(call, unpack(one["tensors"], buffer, device))
                    for one, buffer in (sets[index % len(sets)] for index in range(count))
                ]
            )


class TimedCopy:
    """One copy of a set's tensors, and the kernel bound to it; see `probes.after_timing.TimedCopy`."""

    def __init__(self, kernel: LoadedKernel, one: dict[str, Any], buffer: Buffer, device: str) -> None:
        self.name: str = one["name"]
        self.left: list[torch.Tensor] | None = None
        """What the last timed call gave."""
        self._one, self._buffer, self._device = one, buffer, device
        self._mutated: list[int] = one.get("mutated", [])
        self.inputs = self._unpack()
        outputs = [documents.load_python(TensorMeta, meta) for meta in one["outputs"]]
        self._bound = kernel.bind(documents.load_python(OpCall, one["call"]), self.inputs, outputs, device)
        self.run = self._bound.run

    @property
    def mutates(self) -> bool:
        """Whether the op changes its inputs."""
        return bool(self._mutated)

    @property
    def content(self) -> _Content:
        """The set whose numbers it holds."""
        return self._one, self._buffer

    def take(self, content: _Content) -> None:
        """Hold another set's numbers from now on; the outputs stay as they are."""
        self._one, self._buffer = content
        self.name = self._one["name"]
        self._restore()

    def poison(self, results: Sequence[torch.Tensor]) -> None:
        """Overwrite the outputs that were allocated for the kernel, and `results` unless they are inputs."""
        self._bound.poison()
        inputs = {tensor.untyped_storage().data_ptr() for tensor in self.inputs}
        for tensor in results:
            if tensor.untyped_storage().data_ptr() not in inputs:
                poison(plain(tensor))

    def once_more(self) -> list[torch.Tensor]:
        """See `probes.after_timing.TimedCopy.once_more`."""
        self._restore()
        self._bound.poison()
        outputs = self._bound.run()
        wait_for_device(self._device)
        return [*map(plain, outputs), *(self.inputs[index] for index in self._mutated)]

    def _restore(self) -> None:
        for mine, original in zip(self.inputs, self._unpack(), strict=True):
            mine.untyped_storage().copy_(original.untyped_storage())

    def _unpack(self) -> list[torch.Tensor]:
        return unpack(self._one["tensors"], self._buffer, self._device)


def _exchange(copies: Sequence[TimedCopy], results: list[Any], method: str, distinct_calls: int) -> None:
    """Give each copy the numbers of the next set, so that the last batch must give other answers than before.

    The outputs then hold what looks like an answer. Only where all copies hold the same set they are poisoned.
    """
    sets = list({copy.name: copy.content for copy in copies}.values())
    for index, copy in enumerate(copies):
        if len(sets) > 1:
            copy.take(sets[(index + 1) % len(sets)])
        else:
            copy.poison(results[index] if method == "cuda-graph" and index < distinct_calls else ())
        if method != "cuda-graph" or index >= distinct_calls:
            results[index] = None


def _probed(
    copies: Sequence[TimedCopy], results: Sequence[Any], params: dict[str, Any]
) -> tuple[list[tuple[dict[str, Any], Buffer]], dict[str, Any]]:
    """Answers of the last timed calls and of one call afterwards, packed; and what probes saw, by their names."""
    answers: list[tuple[dict[str, Any], Buffer]] = []
    observed: dict[str, Any] = {}
    probes, device = params.get("probes", ()), params["device"]
    for copy, left in zip(copies, results, strict=True):
        copy.left = None if left is None or copy.mutates else list(map(plain, left))
    if after_timing.NAME in probes:
        answers += map(_packed, after_timing.last(copies))
    if content_cache.NAME in probes:
        first = copies[0]
        observed[content_cache.NAME] = content_cache.observe(
            first.run, first.inputs, device, seed=params["seed"]
        )
    if after_timing.NAME in probes:
        answers += map(_packed, after_timing.after(copies))
    return answers, observed


def _packed(given: Given) -> tuple[dict[str, Any], Buffer]:
    header, packed = pack(given.tensors)
    return {"name": given.name, "when": given.when, "tensors": header, "error": given.error}, packed


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
        self.results: list[Any] = [None] * len(calls)

    def __call__(self, index: int) -> None:
        self.results[index] = self._calls[index]()


def _plan_rotation(sets: Sequence[dict[str, Any]], device: str) -> Rotation:
    outputs = [documents.load_python(TensorMeta, meta) for meta in sets[0]["outputs"]]
    touched = sum(sets[0]["tensors"]["spans"]) + sum(meta.numel * ITEMSIZE[meta.dtype] for meta in outputs)
    on_gpu = device.startswith("cuda")
    memory = torch.cuda.mem_get_info(torch.device(device))[0] // 2 if on_gpu else CPU_COPIES_BYTES
    return plan(touched, last_level_cache_bytes(device), memory_bytes=memory // _ARMS, contents=len(sets))
