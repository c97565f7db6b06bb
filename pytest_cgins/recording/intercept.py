"""Seeing the calls of chosen ops while a model runs, each as one unit."""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from pytest_cgins.packs import ops
from pytest_cgins.recording.selection import refuse_uninitialised

Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@dataclass(slots=True)
class _Passed:
    """An op that was seen and not chosen."""

    inside: Callable[..., Any] | None
    """What runs in its place, so that the ops inside it are seen; None if it runs itself."""
    calls: int = 0


class Interceptor(TorchFunctionMode):
    """Hands each call of a chosen op to `handler`, which runs it; nothing inside the op is seen.

    torch's Python composites (`torch.nn.functional.multi_head_attention_forward`) and marked functions
    that are not chosen are opened up: the ops inside them are seen.
    """

    def __init__(
        self,
        chosen: Collection[Callable[..., Any]],
        handler: Handler,
        *,
        marked: bool,
        awaited: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._chosen = frozenset(chosen)
        self._awaited = set(awaited)
        self._handler = handler
        self._marked = marked
        self._passed: dict[Callable[..., Any], _Passed] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch calls this for every op while the mode is active; the mode itself is off inside."""
        kwargs = kwargs or {}
        if isinstance(func, ops.OPERATOR):
            if self._awaited:
                self._chosen |= {ops.resolve(name) for name in take_met(func, self._awaited)}
            func = self._as_chosen(func, args, kwargs)
        if func in self._chosen or (
            self._marked and (ops.is_marked(func) or ops.is_operator_of_others(func))
        ):
            return self._handler(func, args, kwargs)
        passed = self._passed.get(func)
        if passed is None:
            passed = self._passed[func] = _Passed(_opened(func))
        passed.calls += 1
        if passed.inside is None:
            return func(*args, **kwargs)
        with self:
            return passed.inside(*args, **kwargs)

    def _as_chosen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator in the form in which it was chosen: models call `torch.ops.ns.name` or an overload of it."""
        if func in self._chosen:
            return func
        if isinstance(func, torch._ops.OpOverload):
            packet = func.overloadpacket
            default = self._marked and func._overloadname == "default" and ops.is_operator_of_others(func)
            return packet if default or packet in self._chosen else func
        resolved: Any = torch._C._jit_resolve_packet
        overloads = [getattr(func, name) for name in func.overloads()]
        if self._chosen.isdisjoint(overloads):
            return func
        return getattr(func, resolved(func._qualified_op_name, *args, **kwargs))

    @property
    def passed_by(self) -> Counter[Callable[..., Any]]:
        """Calls of the ops that were seen and not chosen."""
        return Counter({func: passed.calls for func, passed in self._passed.items()})


def take_met(func: Any, awaited: set[str]) -> list[str]:
    """Take the names that an operator or its overloads have out of those of operators that were not registered before."""
    name = ops.qualified_name(getattr(func, "overloadpacket", func))
    met = [one for one in awaited if f"{one}.".startswith(f"{name}.")]
    awaited.difference_update(met)
    return met


def _opened(func: Any) -> Callable[..., Any] | None:
    """The function without its own check for active modes, so that it runs with the mode on; or None."""
    if ops.is_marked(func):
        inside: Callable[..., Any] = func.__wrapped__
        return inside
    if not isinstance(func, types.FunctionType) or not func.__module__.startswith("torch."):
        return None
    checks = [name for name in func.__code__.co_names if name.startswith("has_torch_function")]
    if func.__module__ not in ("torch.functional", "torch.nn.functional") or not checks:
        return None
    scope = {**func.__globals__, **dict.fromkeys(checks, lambda *_: False)}
    twin = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


class TrainingFlags:
    """The `training` flag of the innermost module that is being called."""

    def __init__(self) -> None:
        self._stack: list[bool] = []
        self._thread = 0
        self._elsewhere: set[str] = set()

    @property
    def current(self) -> bool | None:
        """None outside any module."""
        return self._stack[-1] if self._stack else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow every module's calls; warn of those in other threads, whose ops no mode sees."""
        self._thread = threading.get_ident()
        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            with warnings.catch_warnings():
                # A compiled module calls the hooks twice, in pairs: harmless here.
                warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
                yield
        finally:
            before.remove()
            after.remove()
        if self._elsewhere:
            warnings.warn(
                f"modules ran in other threads, where nothing is recorded: {', '.join(sorted(self._elsewhere))}; run them "
                "in the thread that records (no nn.DataParallel, no background generation)",
                stacklevel=2,
            )

    def _enter(self, module: torch.nn.Module, _: object) -> None:
        if threading.get_ident() != self._thread:
            self._elsewhere.add(type(module).__qualname__)
            return
        self._stack.append(module.training)

    def _leave(self, *_: object) -> None:
        if self._stack and threading.get_ident() == self._thread:
            self._stack.pop()


@contextmanager
def marked(names: Collection[str]) -> Iterator[list[Callable[..., Any]]]:
    """The callables of qualified names; module classes, and functions outside torch, are marked for the while.

    A function that several modules have imported by name is replaced in all of them. References kept in
    objects are not reached: only the decorator `pytest_cgins.mark` catches these.
    """
    chosen: list[Callable[..., Any]] = []
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    classes = ExitStack()
    try:
        for name in names:
            func = ops.locate(name)
            if ops.is_module_class(func):
                chosen.append(_intercepted(name, func, classes))
                continue
            refuse_uninitialised(name, func)
            if not name.startswith("torch.") and not ops.is_marked(func):
                ops.trust(name)
                original, func = func, ops.mark_as(name, func)
                modules = [module for module in sys.modules.values() if isinstance(module, types.ModuleType)]
                for scope in map(vars, modules):
                    found = [key for key, value in scope.items() if value is original]
                    replaced += [(scope, key, original) for key in found]
                    scope.update(dict.fromkeys(found, func))
            chosen.append(ops.resolve(name))
        yield chosen
    finally:
        for scope, key, original in replaced:
            scope[key] = original
        classes.close()


def _intercepted(name: str, cls: Any, stack: ExitStack) -> Callable[..., Any]:
    if not (ops.is_marked(cls) or ops.is_torch_module(cls)):
        ops.trust(name)
    op = ops.resolve(name)
    if isinstance(op, ops.ModuleOp) and not ops.is_marked(cls):
        stack.enter_context(ops.intercepted(op))
    return op
