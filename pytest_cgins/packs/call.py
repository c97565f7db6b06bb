"""Running a recorded call, and taking its result apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from pytest_cgins.core.device import torch_device
from pytest_cgins.core.trace import Argument, OpCall, Value, mapped
from pytest_cgins.packs import forward
from pytest_cgins.packs.backward import is_derived, prepared
from pytest_cgins.packs.values import encode


def invoke(call: OpCall, tensors: Sequence[torch.Tensor]) -> object:
    """Run the op, passing each argument the way it was passed; defaults are left out.

    Raises:
        TraceError: if the op cannot be found or must not be run.
    """
    return bound(call, tensors)()


def bound(
    call: OpCall, tensors: Sequence[torch.Tensor], *, instead: Callable[..., object] | None = None
) -> Callable[[], object]:
    """What `invoke` runs, with its arguments decoded beforehand: a timed call must not pay for that.

    With `instead`, which runs in the place of the op, that is no derived one.

    Raises:
        TraceError: if the op cannot be found or must not be run.
    """
    if is_derived(call.op):
        return prepared(call, tensors)
    return forward.bound(call, tensors, instead=instead)


def relocate(call: OpCall, device: str) -> OpCall:
    """The call with every device argument set to `device`."""

    def moved(leaf: Value) -> Value:
        return replace(leaf, value=torch_device(device)) if leaf.kind == "device" else leaf

    return replace(call, arguments=tuple(replace(a, value=mapped(a.value, moved)) for a in call.arguments))


def with_value(argument: Argument, value: Value) -> Argument:
    """An argument with another value, which the call names even if it had left the default."""
    return replace(
        argument, value=value, passed="keyword" if argument.passed == "default" else argument.passed
    )


def flatten(result: object) -> tuple[Value, list[torch.Tensor]]:
    """The tree of a result, and its tensors in the order of their indices.

    Raises:
        RecordError: if it holds something that is neither a tensor nor plain data.
    """
    tensors: list[torch.Tensor] = []
    return encode(result, tensors), tensors
