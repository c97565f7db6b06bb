"""A kernel on one set of inputs: bound, run, and run again in the ways that probes ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.errors import LaunchError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.kernels import stream_of_its_own, wait_for_stream
from pytest_cgins.execute.tensors import unpack
from pytest_cgins.kernels.callable import BoundCall, LoadedKernel
from pytest_cgins.model import Context, OpCall, TensorMeta
from pytest_cgins.probes.bits import same_memory, snapshot
from pytest_cgins.probes.on_stream import capturing
from pytest_cgins.probes.plain_outputs import subclasses
from pytest_cgins.probes.trial import PreparedCall, Trial
from pytest_cgins.probes.watch import Watch
from pytest_cgins.trace.context import restore


class SetTrial:
    """See `probes.trial.Trial`. Binding happens as it is made; nothing of the kernel runs before `first`.

    Args:
        kernel: the loaded kernel.
        one: the set, as `VerificationService.run` takes it.
        content: its tensors' bytes.
        device: `cpu` or `cuda:0`.
        watch: what is told of every run.
    """

    def __init__(
        self, kernel: LoadedKernel, one: dict[str, Any], content: Buffer, device: str, watch: Watch
    ) -> None:
        self.name: str = one["name"]
        self.device = device
        self._answer: list[torch.Tensor] = []
        self.subclasses: list[str] = []
        """Class names of outputs that are not plain tensors."""
        self._kernel, self._one, self._content, self._watch = kernel, one, content, watch
        self._call = documents.load_python(OpCall, one["call"])
        self._metas = [documents.load_python(TensorMeta, meta) for meta in one["outputs"]]
        self._context = documents.load_python(Context, one["context"])
        self._mutated: list[int] = one.get("mutated", [])
        self._inputs = self._unpack()
        self._bound = self._bind(self._inputs)
        self._live: list[torch.Tensor] = []
        self._overrun = ""

    @property
    def answer(self) -> Sequence[torch.Tensor]:
        """What the kernel gave at first: copies that it does not know of."""
        return self._answer

    @property
    def live(self) -> Sequence[torch.Tensor]:
        """The very tensors that the kernel gave, as they are now."""
        return self._live

    @property
    def mutates(self) -> bool:
        """See `probes.trial.Trial.mutates`."""
        return bool(self._mutated)

    @property
    def mutates_integers(self) -> bool:
        """See `probes.trial.Trial.mutates_integers`."""
        dtypes = (self._inputs[index].dtype for index in self._mutated)
        return any(not (one.is_floating_point or one.is_complex or one == torch.bool) for one in dtypes)

    def first(self) -> None:
        """Run for the answer that is judged."""
        self._live = self._run(self._bound, self._inputs)
        self._answer = [snapshot(tensor) for tensor in self._live]
        wait_for_stream(self.device)

    def again(self) -> list[torch.Tensor]:
        """See `probes.trial.Trial.again`."""
        inputs = self._unpack()  # while those of the first run are held: addresses differ
        bound = self._bind(inputs)
        outputs = self._run(bound, inputs)
        self._overrun = self._overrun or bound.overrun()
        return outputs

    def rerun(self, *, poisoned: bool = False) -> list[torch.Tensor]:
        """See `probes.trial.Trial.rerun`."""
        if poisoned:
            self._overrun = self.overrun()  # poison covers the traces
            self._poison()
        return self._run(self._bound, self._inputs)

    def with_content_of(self, other: Trial) -> list[torch.Tensor]:
        """See `probes.trial.Trial.with_content_of`."""
        assert isinstance(other, SetTrial)
        for mine, theirs in zip(self._inputs, other._unpack(), strict=True):
            mine.untyped_storage().copy_(theirs.untyped_storage())
        # The outputs stay as they are: a kernel that saw poison could tell this call from those that are timed.
        return self._run(self._bound, self._inputs)

    def prepared(self) -> PreparedCall:
        """See `probes.trial.Trial.prepared`."""
        inputs = self._unpack()
        bound = self._bind(inputs)

        def run() -> list[torch.Tensor]:
            # As it is timed: what else is watched waits for the stream.
            with restore(self._context, self.device.partition(":")[0]), self._watch.timing():
                return [*map(plain, bound.run())]

        return PreparedCall(inputs, [*bound.memory, *(inputs[index] for index in self._mutated)], run)

    def captured(self) -> int:
        """See `probes.trial.Trial.captured`."""
        with stream_of_its_own(self.device):
            if not self.mutates:
                self._run(self._bound, self._inputs)  # libraries set things up for a stream that is new
            with (
                restore(self._context, self.device.partition(":")[0]),
                self._watch.running(),
                capturing(self.device) as capture,
            ):
                outputs = self._bound.run()
            del outputs  # not before: memory that is freed in a capture is CUDA's to refuse
        return capture.status

    def alike(self, other: Trial) -> bool:
        """See `probes.trial.Trial.alike`."""
        return (
            isinstance(other, SetTrial)
            and self._one["call"] == other._one["call"]
            and self._one["tensors"] == other._one["tensors"]
            and self._one["outputs"] == other._one["outputs"]
        )

    def inputs_changed(self) -> list[int]:
        """Indices of inputs that lie otherwise than what was sent, or on memory that holds something else.

        Those on a mutated one's memory are excepted.
        """
        allowed = {self._inputs[index].untyped_storage().data_ptr() for index in self._mutated}
        kept: dict[int, bool] = {}
        changed = []
        for index, (tensor, original) in enumerate(zip(self._inputs, self._unpack(), strict=True)):
            memory = tensor.untyped_storage().data_ptr()
            if memory in allowed:
                continue
            if memory not in kept:
                kept[memory] = same_memory(tensor, original)
            if not kept[memory] or _place(tensor) != _place(original):
                changed.append(index)
        return changed

    def overrun(self) -> str:
        """What was written just outside of outputs or scratch memory; "" if nothing was."""
        return self._overrun or self._bound.overrun()

    def _unpack(self) -> list[torch.Tensor]:
        return unpack(self._one["tensors"], self._content, self.device)

    def _poison(self) -> None:
        with restore(self._context, self.device.partition(":")[0]):
            self._bound.poison()  # tensors made in inference mode are written to in inference mode only

    def _bind(self, inputs: list[torch.Tensor]) -> BoundCall:
        with restore(self._context, self.device.partition(":")[0]):
            return self._kernel.bind(self._call, inputs, self._metas, self.device)

    def _run(self, bound: BoundCall, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with restore(self._context, self.device.partition(":")[0]), self._watch.running():
            outputs = bound.run()
        wait_for_stream(self.device)
        self.subclasses += subclasses(outputs)
        return [*map(plain, outputs), *(inputs[index] for index in self._mutated)]


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    """How a tensor lies on its memory."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its subclass, whose code must not speak for its content.

    Raises:
        LaunchError: it has no dense memory.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.layout != torch.strided:
            raise LaunchError(
                f"the kernel returned a tensor with layout {tensor.layout}", remedy="return dense tensors"
            )
        return tensor.as_subclass(torch.Tensor)
