"""Copies of a call's tensors that a kernel is timed on, and what is done with their numbers afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.loading.launcher import poison, reusing
from pytest_cgins.building.loading.returned import address, plain, require_plain, tensors_of, twin
from pytest_cgins.core.device import device_of
from pytest_cgins.core.tensors import Kept
from pytest_cgins.verify.messages import PackedInputs


class Content:
    """One set of inputs: its name, its call, and its numbers on the device."""

    def __init__(self, inputs: PackedInputs, kept: Kept) -> None:
        self.name = inputs.name
        self.call = inputs.call
        self.outputs = inputs.outputs
        self.mutated = inputs.mutated
        self.kept = kept


class TimedCopy:
    """One copy of a set's tensors, and the kernel bound to it."""

    def __init__(self, kernel: LoadedKernel, content: Content, device: str) -> None:
        self.left: object = None
        """What the last timed call returned."""
        self.content = content
        """The set whose numbers it holds."""
        self._device = device_of(device)
        self.inputs = content.kept.unpack()
        self._given = [*map(twin, self.inputs)]
        self._bound = kernel.bind(content.call, self._given, content.outputs, self._device.torch_name)
        self.run = self._bound.run
        self.bare = self._bound.bare
        """What is timed."""

    def bind_beside(self, kernel: LoadedKernel) -> Callable[[], object]:
        """Another kernel on the same memory: that it lies elsewhere would make a difference of its own."""
        inputs = [*map(twin, self.inputs)]  # what the kernel hangs on its own slows nobody else
        with reusing(self._bound.memory):
            return kernel.bind(self.content.call, inputs, self.content.outputs, self._device.torch_name).bare

    @property
    def name(self) -> str:
        """Name of the set."""
        return self.content.name

    @property
    def mutates(self) -> bool:
        """Whether the op changes its inputs."""
        return bool(self.content.mutated)

    def take(self, content: Content) -> None:
        """Hold another set's numbers from now on; the outputs stay as they are."""
        self.content = content
        self._restore()

    def synchronize(self) -> None:
        """Wait for all that runs on its device."""
        self._device.synchronize()

    def poison(self, result: object) -> None:
        """Overwrite the outputs that were allocated for the kernel, and the tensors of a result unless they are inputs."""
        self._bound.poison()
        inputs = set(map(address, self.inputs))
        for tensor in map(plain, tensors_of(result, self.content.call.op)):
            if address(tensor) not in inputs:
                poison(tensor)

    def once_more(self) -> list[torch.Tensor]:
        """Run on restored inputs into poisoned outputs; gives outputs, and after them the mutated inputs."""
        self.prepare()
        return self.finished(self.call_prepared())

    def prepare(self) -> None:
        """Restore the inputs, poison the outputs."""
        self._restore()
        self._bound.poison()

    def call_prepared(self) -> object:
        """Run, without a wait for the device; gives what `finished` takes."""
        return self._bound.run()

    def finished(self, result: object) -> list[torch.Tensor]:
        """Outputs, and after them the mutated inputs, of a call that `call_prepared` began."""
        self.synchronize()
        return self.outputs_of(result)

    @property
    def is_left(self) -> bool:
        """Whether an answer of a timed call is there: an op that changes its inputs, or no call, leaves none."""
        return self.left is not None and not self.mutates

    def answer_left(self) -> list[torch.Tensor]:
        """What its last timed call gave."""
        return self.outputs_of(self.left)

    def outputs_of(self, result: object) -> list[torch.Tensor]:
        """The tensors of what a call returned, a tensor or containers of them, and after them the inputs that the op changes."""
        changed = [self._given[index] for index in self.content.mutated]
        return [*map(require_plain, tensors_of(result, "it")), *map(plain, changed)]

    def _restore(self) -> None:
        self.content.kept.write_to(self.inputs)


class Rotating:
    """Calls that differ only in the copy of their tensors.

    Each keeps its result until it runs again, so that outputs rotate through as much memory as inputs do,
    instead of the allocator giving every call the block that the last one has just freed.
    """

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = calls
        self.results: list[Any] = [None] * len(calls)

    def __call__(self, index: int) -> None:
        """Run the call on this copy."""
        self.results[index] = self._calls[index]()


def exchange(copies: Sequence[TimedCopy], results: list[Any], *, captured: bool, distinct_calls: int) -> None:
    """Give each copy the numbers of the next set, so that the last batch must give other answers than before.

    The outputs then hold what looks like an answer. Only where all copies hold the same set they are poisoned.
    """
    sets = list({copy.name: copy.content for copy in copies}.values())
    for index, copy in enumerate(copies):
        stays = captured and index < distinct_calls
        if len(sets) > 1:
            copy.take(sets[(index + 1) % len(sets)])
        else:
            copy.take(copy.content)  # the base has run on it, too, and may have changed it
            copy.poison(results[index] if stays else ())
        if not stays:
            results[index] = None
