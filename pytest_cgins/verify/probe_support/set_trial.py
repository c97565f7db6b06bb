"""A kernel on one set of inputs: bound, run, and run again in the ways that probes ask for."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from pytest_cgins.building.loading import cuda_driver
from pytest_cgins.building.loading.callable import BoundCall, LoadedKernel
from pytest_cgins.building.loading.returned import address, place, plain, twin
from pytest_cgins.core.bitwise import copy_element, copy_memory, same_memory, snapshot
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.tensors import Kept, unpack
from pytest_cgins.packs.context import restore
from pytest_cgins.verify.messages import PackedInputs
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probes.plain_outputs import unlike

_lot = random.SystemRandom()
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_…: other threads may do as they like


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call of the kernel on inputs of its own."""

    inputs: Sequence[torch.Tensor]
    written: Sequence[torch.Tensor]
    """Memory that it is to write and that is there before it is made: outputs and scratch that were allocated for it, inputs
    that the op changes."""
    run: Callable[[], Sequence[torch.Tensor]]
    """Makes it on the current stream, and does not wait; gives the outputs, and the inputs that the op changes."""


class Sent:
    """The inputs of a set as they were sent. On a GPU they are kept there, and brought from the host once, not for every run."""

    def __init__(self, packed: PackedInputs, buffer: Buffer, device: str) -> None:
        """Errors are those of `unpack`."""
        self._header, self._buffer, self._device = packed.tensors, buffer, device
        self._kept = Kept(self._header, buffer, device, mapped=True)

    def again(self) -> list[torch.Tensor]:
        """On fresh memory."""
        return self._kept.unpack()

    def anew(self) -> list[torch.Tensor]:
        """The same, from what no kernel can have written to."""
        return unpack(self._header, self._buffer, self._device)


class SetTrial:
    """What probes that run a kernel again may do with a set. It is bound as this is made; nothing of the kernel runs before `first`."""

    def __init__(
        self, kernel: LoadedKernel, packed: PackedInputs, sent: Sent, device: str, watch: Watch
    ) -> None:
        self.name = packed.name
        self.device = device
        self._device = device_of(device)
        self._answer: list[torch.Tensor] = []
        self.unlike: list[str] = []
        """What outputs are that are not plain tensors."""
        self._kernel, self._packed, self._sent, self._watch = kernel, packed, sent, watch
        self._context, self._mutated = packed.context, packed.mutated
        self._inputs = self._sent.again()
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
        """Whether the op changes some of its inputs: a second run on the same tensors is another call."""
        return bool(self._mutated)

    @property
    def mutates_integers(self) -> bool:
        """Whether some of these are integers: positions and counters leave their range if nobody puts them back."""
        changed = (self._inputs[index] for index in self._mutated)
        return any(
            not (one.is_floating_point() or one.is_complex() or one.dtype == torch.bool) for one in changed
        )

    def first(self) -> None:
        """Run for the answer that is judged."""
        self._returned = self._run(self._bound, self._given)
        self._answer = [*map(snapshot, self.live)]
        self._device.wait_for_stream()

    def again(self) -> list[torch.Tensor]:
        """Run on copies of the inputs at new addresses, into poisoned outputs; whatever the kernel raises is raised."""
        inputs = self._sent.again()  # while those of the first run are held: addresses differ
        bound = self._bind(inputs)
        outputs = [*map(plain, self._run(bound, inputs))]
        self._overrun = self._overrun or bound.overrun()
        return outputs

    def rerun(self, *, poisoned: bool = False) -> list[torch.Tensor]:
        """Run once more on the very same tensors; what an op mutates is not put back.

        With `poisoned`, outputs that were allocated for the kernel are poisoned before.
        """
        if poisoned:
            self._overrun = self.overrun()  # poison covers the traces
            self._poison()
        return [*map(plain, self._run(self._bound, self._given))]

    def with_content_of(self, other: SetTrial) -> list[torch.Tensor]:
        """Run on the same tensors as at first, filled with the other set's numbers."""
        for mine, theirs in zip(self._inputs, other._sent.again(), strict=True):
            copy_memory(mine, theirs)
        # The outputs stay as they are: a kernel that saw poison could tell this call from those that are timed.
        return [*map(plain, self._run(self._bound, self._given))]

    def elsewhere(self) -> Callable[..., list[torch.Tensor]]:
        """What runs on the inputs' numbers, always in the same copies.

        With `changed=True`, one element of some of them, by lot, is a copy of another; integers may be places in memory, and stay.
        """
        inputs = self._sent.again()
        given = [*map(twin, inputs)]
        bound: list[BoundCall] = []  # not before the first run, whose error is an answer
        numbers = [tensor for tensor in inputs if tensor.numel() and tensor.is_floating_point()]

        def run(*, changed: bool = False) -> list[torch.Tensor]:
            for mine, own in zip(inputs, self._sent.again(), strict=True):
                copy_memory(mine, own)
            count = _lot.randint(1, len(numbers)) if changed and numbers else 0
            for tensor in _lot.sample(numbers, count):
                copy_element(tensor, _lot.randrange(tensor.numel()), _lot.randrange(tensor.numel()))
            bound[:] = bound or [self._bind(given)]
            return [*map(plain, self._run(bound[0], given))]

        return run

    def prepared(self) -> PreparedCall:
        """A call on copies of the inputs at new addresses, into poisoned outputs, that is still to be made."""
        inputs = self._sent.again()
        bound = self._bind([*map(twin, inputs)])

        def run() -> list[torch.Tensor]:
            # As it is timed: what else is watched waits for the stream.
            with restore(self._context, self.device), self._watch.timing():
                outputs = [*map(plain, bound.run())]
            return outputs + [inputs[index] for index in self._mutated]

        return PreparedCall(inputs, [*bound.memory, *(inputs[index] for index in self._mutated)], run)

    def captured(self) -> int:
        """Capture a run on the same tensors instead of executing it; what CUDA says at the end: see `on_stream`."""
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

    def alike(self, other: SetTrial) -> bool:
        """Whether the other set differs in numbers alone: same call, shapes, strides and aliases."""
        return (
            self._packed.call == other._packed.call
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
        for index, (tensor, original) in enumerate(zip(self._inputs, self._sent.anew(), strict=True)):
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

    def _poison(self) -> None:
        with restore(self._context, self.device):
            self._bound.poison()  # tensors made in inference mode are written to in inference mode only

    def _bind(self, inputs: list[torch.Tensor]) -> BoundCall:
        with restore(self._context, self.device):
            return self._kernel.bind(self._packed.call, inputs, self._packed.outputs, self._device.torch_name)

    def _run(self, bound: BoundCall, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the kernel returned, and after them the inputs that the op changes: as objects, the kernel's."""
        numel = max((tensor.numel() for tensor in self._inputs), default=0)
        with restore(self._context, self.device), self._watch.running(numel):
            outputs = [*bound.run(), *(inputs[index] for index in self._mutated)]
            self.unlike += unlike(outputs, inputs)
        self._device.wait_for_stream()
        return outputs


@dataclass(slots=True)
class Capture:
    """A capture that was ended."""

    status: int = 0
    """What CUDA said as it ended; 0 for a graph."""


@contextmanager
def capturing(device: str) -> Iterator[Capture]:
    """Capture what the body puts on the current stream; the graph is never launched.

    Raises:
        LaunchError: the capture cannot begin.
    """
    driver = cuda_driver.library()
    stream = ctypes.c_void_p(torch.cuda.current_stream(torch.device(device)).cuda_stream)
    cuda_driver.check(driver.cuStreamBeginCapture_v2(stream, _THREAD_LOCAL), "stream capture")
    capture = Capture()
    try:
        yield capture
    finally:
        graph = ctypes.c_void_p()
        capture.status = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        # Kept for good: events that the kernel holds may point into it.
        del graph
