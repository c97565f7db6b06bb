"""Matching a recorded call of an op to what a kernel declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pytest_cgins.errors import ContractError
from pytest_cgins.model import OpCall
from pytest_cgins.trace import backward
from pytest_cgins.trace.ops import resolve
from pytest_cgins.trace.signature import bind_given
from pytest_cgins.trace.values import decode


def call_values(call: OpCall, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Values of a call by parameter name, in the op's order, defaults included; without a module's state."""
    given = (argument for argument in call.arguments if argument.passed != "state")
    return {argument.name: decode(argument.value, tensors) for argument in given}


def state_values(call: OpCall, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """State of a call's module by the names that a schema line has for it, in the trace's order.

    `self.gate.weight` is `gate_weight`; what begins with a digit gets a `_` before it. A name that two
    things would have is left out, and so is what tells classes and kinds of attributes.
    """
    state = [argument for argument in call.arguments if argument.passed == "state"]
    names = [_schema_name(argument.name) for argument in state]
    return {
        name: decode(argument.value, tensors)
        for name, argument in zip(names, state, strict=True)
        if names.count(name) == 1 and not argument.name.endswith("__")
    }


def _schema_name(name: str) -> str:
    plain = name.removeprefix("self.").replace(".", "_")
    return f"_{plain}" if plain[0].isdigit() else plain


def require_defaults(
    call: OpCall, undeclared: Sequence[str], where: str, tensors: Sequence[torch.Tensor]
) -> None:
    """Check that parameters which a kernel does not take have the op's default in this call.

    Raises:
        ContractError: one has another value.
    """
    for argument in call.arguments:
        if argument.name not in undeclared or argument.passed in ("default", "state"):
            continue
        value = decode(argument.value, tensors)
        has_default, default = default_of(call, argument.name, tensors)
        if has_default and type(value) is type(default) and value == default:
            continue
        usual = f", not its default {default!r}" if has_default else ", and it has no default"
        shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ContractError(
            f"{where}: contract not met: the kernel does not take {argument.name!r}, and the call passes "
            f"{shown}{usual}",
            remedy=f"declare {argument.name!r} in the kernel, or gate it on other traces",
        )


def default_of(call: OpCall, name: str, tensors: Sequence[torch.Tensor]) -> tuple[bool, object]:
    """Whether the op has a default for a parameter, and which: the call is bound again without it.

    The arguments of a backward are those of its op, whose defaults they have; its gradients have none.
    """
    derived = backward.is_derived(call.op)
    op = backward.parse(call.op)[0] if derived else call.op
    positional, keyword = [], {}
    before = True
    for argument in call.arguments:
        if argument.name == name:
            before = False
        elif derived and backward.is_gradient(argument.name):
            continue
        elif argument.passed not in ("default", "state"):
            value = decode(argument.value, tensors)
            if argument.passed == "positional" and before:
                positional.append(value)
            else:
                keyword[argument.name] = value
    try:
        bound = bind_given(resolve(op), tuple(positional), keyword)
    except TypeError:  # the op requires it
        return False, None
    found = [value for parameter, value, passed in bound if (parameter, passed) == (name, "default")]
    return bool(found), found[0] if found else None
