"""A kernel on one set of inputs: bound, run, and run again in the ways that probes ask for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from pytest_cgins.building.loading.callable import BoundCall, LoadedKernel
from pytest_cgins.building.loading.returned import address, place, plain, twin
from pytest_cgins.core.bitwise import copy_element, copy_memory, same_memory, snapshot
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.tensors import unpack
from pytest_cgins.packs.context import restore
from pytest_cgins.verify.messages import PackedInputs
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probe_support.rerun import PreparedCall, RerunnableCall
from pytest_cgins.verify.probes.on_stream import capturing
from pytest_cgins.verify.probes.plain_outputs import unlike

_lot = random.SystemRandom()


class SetTrial:
    """See `verify.probe_support.rerun.RerunnableCall`. Binding happens as it is made; nothing of the kernel runs before `first`.

    Args:
        kernel: the loaded kernel.
        packed: the set.
        content: its tensors' bytes.
        device: `cpu` or `cuda:0`.
        watch: what is told of every run.
    """

    def __init__(
        self, kernel: LoadedKernel, packed: PackedInputs, content: Buffer, device: str, watch: Watch
    ) -> None:
        self.name = packed.name
        self.device = device
        self._device = device_of(device)
        self._answer: list[torch.Tensor] = []
        self.unlike: list[str] = []
        """What outputs are that are not plain tensors."""
        self._kernel, self._packed, self._content, self._watch = kernel, packed, content, watch
        self._call = packed.call
        self._metas = packed.outputs
        self._context = packed.context
        self._mutated = packed.mutated
        self._inputs = self._unpack()
        self._given = [*map(twin, self._inputs)]
        self._places = [*map(place, self._given)]
        self._bound = self._bind(self._given)
        self._returned: list[torch.Tensor] = []
        self._overrun = ""

    @property
    def answer(self) -> Sequence[torch.Tensor]:
        """What the kernel gave at first: copies that it does not know of."""
        return self._answer

    @property
    def live(self) -> Sequence[torch.Tensor]:
        """What the very tensors that the kernel gave are now."""
        return [*map(plain, self._returned)]

    @property
    def mutates(self) -> bool:
        """See `verify.probe_support.rerun.RerunnableCall.mutates`."""
        return bool(self._mutated)

    @property
    def mutates_integers(self) -> bool:
        """See `verify.probe_support.rerun.RerunnableCall.mutates_integers`."""
        dtypes = (self._inputs[index].dtype for index in self._mutated)
        return any(
            not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool) for dtype in dtypes
        )

    def first(self) -> None:
        """Run for the answer that is judged."""
        self._returned = self._run(self._bound, self._given)
        self._answer = [*map(snapshot, self.live)]
        self._device.wait_for_stream()

    def again(self) -> list[torch.Tensor]:
        """See `verify.probe_support.rerun.RerunnableCall.again`."""
        inputs = self._unpack()  # while those of the first run are held: addresses differ
        bound = self._bind(inputs)
        outputs = [*map(plain, self._run(bound, inputs))]
        self._overrun = self._overrun or bound.overrun()
        return outputs

    def rerun(self, *, poisoned: bool = False) -> list[torch.Tensor]:
        """See `verify.probe_support.rerun.RerunnableCall.rerun`."""
        if poisoned:
            self._overrun = self.overrun()  # poison covers the traces
            self._poison()
        return [*map(plain, self._run(self._bound, self._given))]

    def with_content_of(self, other: RerunnableCall) -> list[torch.Tensor]:
        """See `verify.probe_support.rerun.RerunnableCall.with_content_of`."""
        assert isinstance(other, SetTrial)
        for mine, theirs in zip(self._inputs, other._unpack(), strict=True):
            copy_memory(mine, theirs)
        # The outputs stay as they are: a kernel that saw poison could tell this call from those that are timed.
        return [*map(plain, self._run(self._bound, self._given))]

    def elsewhere(self) -> Callable[..., list[torch.Tensor]]:
        """See `verify.probe_support.rerun.RerunnableCall.elsewhere`. Integers may be places in memory, and stay."""
        inputs = self._unpack()
        given = [*map(twin, inputs)]
        bound: list[BoundCall] = []  # not before the first run, whose error is an answer
        numbers = [tensor for tensor in inputs if tensor.numel() and tensor.is_floating_point()]

        def run(*, changed: bool = False) -> list[torch.Tensor]:
            for mine, own in zip(inputs, self._unpack(), strict=True):
                copy_memory(mine, own)
            count = _lot.randint(1, len(numbers)) if changed and numbers else 0
            for tensor in _lot.sample(numbers, count):
                copy_element(tensor, _lot.randrange(tensor.numel()), _lot.randrange(tensor.numel()))
            bound[:] = bound or [self._bind(given)]
            return [*map(plain, self._run(bound[0], given))]

        return run

    def prepared(self) -> PreparedCall:
        """See `verify.probe_support.rerun.RerunnableCall.prepared`."""
        inputs = self._unpack()
        bound = self._bind([*map(twin, inputs)])

        def run() -> list[torch.Tensor]:
            # As it is timed: what else is watched waits for the stream.
            with restore(self._context, self.device), self._watch.timing():
                outputs = [*map(plain, bound.run())]
            return outputs + [inputs[index] for index in self._mutated]

        return PreparedCall(inputs, [*bound.memory, *(inputs[index] for index in self._mutated)], run)

    def captured(self) -> int:
        """See `verify.probe_support.rerun.RerunnableCall.captured`."""
        with self._device.own_stream():
            if not self.mutates:
                self._run(self._bound, self._given)  # libraries set things up for a stream that is new
            with (
                restore(self._context, self.device),
                self._watch.running(),
                capturing(self.device) as capture,
            ):
                outputs = self._bound.run()
            del outputs  # not before: memory that is freed in a capture is CUDA's to refuse
        return capture.status

    def alike(self, other: RerunnableCall) -> bool:
        """See `verify.probe_support.rerun.RerunnableCall.alike`."""
        return (
            isinstance(other, SetTrial)
            and self._packed.call == other._packed.call
            and self._packed.tensors == other._packed.tensors
            and self._packed.outputs == other._packed.outputs
        )

    def inputs_changed(self) -> list[int]:
        """Indices of inputs that lie otherwise than what was sent, or on memory that holds something else.

        Those on a mutated one's memory are excepted.
        """
        allowed = {address(self._inputs[index]) for index in self._mutated}
        kept: dict[int, bool] = {}
        changed = []
        for index, (tensor, original) in enumerate(zip(self._inputs, self._unpack(), strict=True)):
            memory = self._places[index][-1]
            if memory in allowed:
                continue
            if memory not in kept:
                kept[memory] = same_memory(tensor, original)
            if not kept[memory] or place(self._given[index]) != self._places[index]:
                changed.append(index)
        return changed

    def overrun(self) -> str:
        """What was written just outside of outputs or scratch memory; "" if nothing was."""
        return self._overrun or self._bound.overrun()

    def _unpack(self) -> list[torch.Tensor]:
        return unpack(self._packed.tensors, self._content, self.device)

    def _poison(self) -> None:
        with restore(self._context, self.device):
            self._bound.poison()  # tensors made in inference mode are written to in inference mode only

    def _bind(self, inputs: list[torch.Tensor]) -> BoundCall:
        with restore(self._context, self.device):
            return self._kernel.bind(self._call, inputs, self._metas, self._device.torch_name)

    def _run(self, bound: BoundCall, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the kernel returned, and after them the inputs that the op changes: as objects, the kernel's."""
        numel = max((tensor.numel() for tensor in self._inputs), default=0)
        with restore(self._context, self.device), self._watch.running(numel):
            outputs = [*bound.run(), *(inputs[index] for index in self._mutated)]
            self.unlike += unlike(outputs, inputs)
        self._device.wait_for_stream()
        return outputs
