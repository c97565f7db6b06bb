"""Seeing the ATen ops that run below autograd and autocast: the dispatch level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any

from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.trace import NOT_COMPUTING, OF_TORCH, Context
from pytest_cgins.packs import ops
from pytest_cgins.recording import selection
from pytest_cgins.recording.intercept import Handler, take_met


class DispatchInterceptor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands each call of a chosen ATen op, by default of each that computes, to `handler`, which runs it with the mode off."""

    supports_higher_order_operators = True

    def __init__(
        self, chosen: Collection[OpOverload] | None, handler: Handler, awaited: Collection[str] = ()
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._chosen = None if chosen is None else frozenset(chosen)
        self._awaited = set(awaited)
        self._handler = handler
        self._passed: Counter[Callable[..., Any]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch calls this for every op that reaches a backend while the mode is active."""
        kwargs = kwargs or {}
        if self._awaited and self._chosen is not None and isinstance(func, OpOverload):
            self._chosen |= {
                one for name in take_met(func, self._awaited) for one in overloads(name).values()
            }
        if computes(func) if self._chosen is None else func in self._chosen:
            return self._handler(func, args, kwargs)
        self._passed[func] += 1
        return func(*args, **kwargs)

    @property
    def passed_by(self) -> Counter[Callable[..., Any]]:
        """Calls of the ops that were seen and not chosen."""
        return Counter({func: calls for func, calls in self._passed.items() if isinstance(func, OpOverload)})


@cache
def computes(func: object) -> bool:
    """Whether an overload is one that someone may write a kernel for: no view, factory, copy or query.

    Ops of other libraries are, unless they return views, those that only write to arguments among them. Torch's
    own with `out=` are not: the same call without it says the same.
    """
    if not isinstance(func, OpOverload):
        return False
    schema = func._schema
    own = ops.is_operator_of_others(func)
    of_torch = func.namespace in OF_TORCH - NOT_COMPUTING and not any(one.is_out for one in schema.arguments)
    marks = [returned.alias_info for returned in schema.returns]
    if not (own or (of_torch and marks)) or any(mark is not None and not mark.is_write for mark in marks):
        return False
    name = schema.name.rpartition("::")[2].removesuffix("_backward")
    return (
        func.namespace != "aten" or selection.computes(name) or name.strip("_") in selection.WORDS["internal"]
    )


def overloads(name: str) -> dict[str, OpOverload]:
    """The overloads that a name stands for, by their own names: one, all of an ATen op, or none yet of what is awaited.

    Raises:
        RecordError: if it is the name of something else, or of an op without gold.
        TraceError: if nothing has that name.
    """
    if ops.is_awaited(name):
        return {}
    found = ops.locate(name)
    if isinstance(found, OpOverloadPacket):
        names: list[str] = found.overloads()  # type: ignore[no-untyped-call]
        found_overloads = [getattr(found, overload) for overload in names]
    elif isinstance(found, OpOverload):
        found_overloads = [found]
    else:
        raise RecordError(
            f"{name} is not seen at level dispatch, which has ATen ops such as torch.ops.aten.gelu.default",
            remedy="record at level function, or leave ops= out to see what the model calls at level dispatch",
        )
    for overload in found_overloads:
        selection.refuse_uninitialised(name, overload)
    return {ops.qualified_name(overload): overload for overload in found_overloads}


@cache
def below_autograd(context: Context) -> Context:
    """The context as an op at the dispatch level has it: autograd and autocast have done their part."""
    return replace(context, grad_enabled=False, inference_mode=False, autocast=())
