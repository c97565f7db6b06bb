"""How probes run a kernel again that ran once on a set of inputs, and what they tell of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.verify.messages import RaisedError

_MAXIMUM_TEXT = 2000
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call of the kernel on inputs of its own."""

    inputs: Sequence[torch.Tensor]
    """Tensors of the call."""
    written: Sequence[torch.Tensor]
    """Memory that it is to write and that is there before it is made: outputs and scratch that were allocated for it, inputs
    that the op changes."""
    run: Callable[[], Sequence[torch.Tensor]]
    """Makes it on the current stream, and does not wait; gives the outputs, and the inputs that the op changes."""


class RerunnableCall(Protocol):
    """What probes that run the kernel again may do with a set of inputs."""

    name: str
    """Name of the set, as the worker knows it."""
    device: str
    """`cpu` or `cuda:0`."""

    @property
    def answer(self) -> Sequence[torch.Tensor]:
        """What the kernel gave at first: copies that it does not know of."""
        ...

    @property
    def live(self) -> Sequence[torch.Tensor]:
        """The very tensors that the kernel gave, as they are now."""
        ...

    @property
    def mutates(self) -> bool:
        """Whether the op changes some of its inputs: a second run on the same tensors is another call."""
        ...

    @property
    def mutates_integers(self) -> bool:
        """Whether some of these are integers: positions and counters leave their range if nobody puts them back."""
        ...

    def again(self) -> list[torch.Tensor]:
        """Run on copies of the inputs at new addresses, into poisoned outputs; whatever the kernel raises is raised."""
        ...

    def rerun(self, *, poisoned: bool = False) -> list[torch.Tensor]:
        """Run once more on the very same tensors; what an op mutates is not put back.

        With `poisoned`, outputs that were allocated for the kernel are poisoned before.
        """
        ...

    def with_content_of(self, other: RerunnableCall) -> list[torch.Tensor]:
        """Run on the same tensors as at first, filled with the other set's numbers."""
        ...

    def elsewhere(self) -> Callable[..., list[torch.Tensor]]:
        """What runs on the inputs' numbers, always in the same copies.

        With `changed=True`, one element of some of them, by lot, is a copy of another.
        """
        ...

    def prepared(self) -> PreparedCall:
        """A call on copies of the inputs at new addresses, into poisoned outputs, that is still to be made."""
        ...

    def captured(self) -> int:
        """Capture a run on the same tensors instead of executing it; what CUDA says at the end: see `on_stream`."""
        ...

    def alike(self, other: RerunnableCall) -> bool:
        """Whether the other set differs in numbers alone: same call, shapes, strides and aliases."""
        ...


@dataclass(frozen=True, slots=True)
class Deviation:
    """An answer that is not, bit for bit, the one that was given before."""

    probe: str
    """The probe that saw it."""
    name: str
    """Set of inputs that it answers."""
    tensors: Sequence[torch.Tensor]
    """The answer; () if there is none."""
    error: RaisedError | None = None
    """What the kernel raised instead."""
    reused: bool = False
    """For `late_work`: the answer to a later set lies on the same memory. For `fresh_memory`: see there."""
    about: str = ""
    """For `autotuner`: the config; for `device_order`: what the call was made between."""


def attempt(run: Callable[[], _Result]) -> tuple[_Result | list[Any], RaisedError | None]:
    """Run, and give what it gives, or an empty list and what it raised."""
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
        kind, text = kind_of(error), told(error)
        return [], RaisedError(kind=kind, message=f"{kind}: {text}".strip()[:_MAXIMUM_TEXT])
