"""Finds the operators of torch that an op consists of: what a kernel that replaces it must not call, and what it may differ in."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pytest_cgins.core.layout import Layout
from pytest_cgins.core.trace import Context, OpCall
from pytest_cgins.packs.call import relocate
from pytest_cgins.verify.probe_support.dispatch_mode import DispatchMode
from pytest_cgins.verify.probes.op_callback import Counter
from pytest_cgins.verify.reference import answer

_PRODUCTS = ("mm", "dot", "conv", "attention", "linear", "einsum")
_SPREADING = ("conv", "fft")
_PUTTING = ("index_put", "index_copy", "scatter.", "scatter_.", "aten.put")
_ROUNDING = ("round", "floor", "ceil", "trunc")


def op_calls(call: OpCall, inputs: Layout, context: Context, device: str) -> dict[str, int]:
    """Run the op once more, in the case's own context.

    Returns:
        Operators by plain name, with the elements of the greatest tensor of each of their calls, in sum;
        "" has those of the greatest input.
    """
    with _Operators() as seen:
        answer(call, inputs, context, device)
    calls: dict[str, int] = seen.counter.calls
    return calls | {"": max((meta.numel for meta in inputs.metas), default=0)}


def operators(call: OpCall, inputs: Layout, context: Context, device: str) -> frozenset[str]:
    """Names of the operators that one run of an op dispatches, such as `aten.addmm.default`.

    Raises:
        Exception: whatever the op raises.
    """
    with _Operators() as seen:
        answer(call, inputs, context, device)
    return frozenset(seen.names)


def multiplies(call: OpCall, inputs: Layout, context: Context, device: str) -> bool:
    """Whether an op multiplies matrices in fp32: only there is TF32 an arithmetic of torch's own."""
    single = any(meta.dtype == "float32" for meta in inputs.metas)
    return single and multiply(operators(call, inputs, context, device))


def rounds(call: OpCall, inputs: Layout, context: Context, device: str, *, known: bool) -> bool:
    """Whether an op rounds, which of torch's own its name tells if its outputs do not, and multiplies no matrices."""
    if not known and call.op.startswith("torch.") and not any(word in call.op for word in _ROUNDING):
        return False
    names = operators(call, inputs, context, device)
    return not multiply(names) and (known or _any_of(tuple(f"aten.{word}." for word in _ROUNDING), names))


def is_causal(call: OpCall, inputs: Layout, context: Context) -> bool:
    """Whether an op has a mask of what comes later, whose place is a matter of taste where keys are not as many as queries."""
    with suppress(Exception), _Causal() as seen:  # an op of a user may refuse by any exception
        answer(relocate(call, "cpu"), inputs, context, "cpu")
    return bool(seen.found)


def multiply(names: frozenset[str]) -> bool:
    """Whether one multiplies matrices: a product may be emulated by products of shorter numbers."""
    return _any_of(_PRODUCTS, names)


def spread(names: frozenset[str]) -> bool:
    """Whether algorithms of one differ in which elements an input reaches: Winograd's and Fourier's do."""
    return _any_of(_SPREADING, names)


def put(names: frozenset[str]) -> bool:
    """Whether one writes to places that numbers name: of two that are written to one place either may stay."""
    return _any_of(_PUTTING, names)


def attend(names: frozenset[str]) -> bool:
    """Whether one is attention as a whole, or the softmax that torch makes it of."""
    return _any_of(("attention", "_safe_softmax"), names)


def _any_of(words: tuple[str, ...], names: frozenset[str]) -> bool:
    return any(word in name for word in words for name in names)


class _Causal(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether an op has a mask of what comes later."""

    found = False

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        name, names = func.overloadpacket.__name__, [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **named}
        self.found |= name.strip("_") in ("tril", "triu") or given.get("is_causal") is True
        return func(*args, **named)


class _Operators(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes and counts the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.counter = Counter()

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        result = func(*args, **named)
        self.names.add(str(func))
        self.counter.add(func, (*args, *named.values()), result)
        return result
