"""Which operators of torch an op consists of, as far as it matters what arithmetic or algorithm they allow."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pytest_cgins.core.layout import Layout
from pytest_cgins.core.model import Context, OpCall
from pytest_cgins.verify.reference import answer

_PRODUCTS = ("mm", "dot", "conv", "attention", "linear", "einsum")
_SPREADING = ("conv", "fft")


def operators(call: OpCall, inputs: Layout, context: Context, device: str) -> frozenset[str]:
    """Names of the operators that one run of an op dispatches, such as `aten.addmm.default`.

    Raises:
        Exception: whatever the op raises.
    """
    seen = _Seen()
    with seen:
        answer(call, inputs, context, device)
    return frozenset(seen.names)


def multiply(names: frozenset[str]) -> bool:
    """Whether one multiplies matrices: a product may be put together from those of shorter numbers."""
    return _any_of(_PRODUCTS, names)


def spread(names: frozenset[str]) -> bool:
    """Whether algorithms of one differ in which elements an input reaches: Winograd's and Fourier's do."""
    return _any_of(_SPREADING, names)


def attend(names: frozenset[str]) -> bool:
    """Whether one is attention as a whole, or the softmax that torch makes it of."""
    return _any_of(("attention", "_safe_softmax"), names)


def _any_of(words: tuple[str, ...], names: frozenset[str]) -> bool:
    return any(word in name for word in words for name in names)


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the names of operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in `verify.reference`: it would import torch's compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
