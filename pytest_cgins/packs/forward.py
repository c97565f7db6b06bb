"""Running the recorded call of an op that is not a backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.modules import is_module_call, keeping_state, rebuild
from pytest_cgins.packs.ops import resolve
from pytest_cgins.packs.values import decode, has_adapted


def bound(
    call: OpCall, tensors: Sequence[torch.Tensor], *, instead: Callable[..., object] | None = None
) -> Callable[[], object]:
    """`call.bound` for the op itself.

    Raises:
        TraceError: if the op cannot be found or must not be run.
    """
    op = instead or resolve(call.op)
    module = [rebuild(call, tensors)] if is_module_call(call) else []
    if module:
        op = keeping_state(module[0], op)
    first = _decoded(call, tensors)
    # A cache that one run has made longer is not what the next one is due.
    anew = any(has_adapted(argument.value) for argument in call.arguments)

    def run() -> object:
        positional, keyword = _decoded(call, tensors) if anew else first
        return op(*module, *positional, **keyword)

    return run


def _decoded(call: OpCall, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    positional = [decode(a.value, tensors) for a in call.arguments if a.passed == "positional"]
    keyword = {a.name: decode(a.value, tensors) for a in call.arguments if a.passed == "keyword"}
    return positional, keyword
