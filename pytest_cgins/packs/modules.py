"""Modules as ops: the state that a call reads from its module, and a module made again from it.

A replayed module is not constructed. Its class is allocated, and filled with what was recorded, so that
no constructor with side effects or thousands of random numbers runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn
from weakref import ref

import torch
from torch import nn

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.layout import check_recordable
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs import ops
from pytest_cgins.packs.values import decode, encode

CLASS = "__class__"
"""Importable name of a child module's class."""
PARAMETERS = "__parameters__"
"""Names of a module's parameters."""
BUFFERS = "__buffers__"
"""Names of a module's buffers."""
LEFT_OUT = "__left_out__"
"""Attributes that a trace cannot hold, and their types."""

_INTERNAL = frozenset(vars(nn.Module())) - {"training"} | {"_compiled_call_impl"}


def state(module: nn.Module) -> Iterator[tuple[str, object]]:
    """What a call may read from a module, by names such as `self.gate.weight`, its children's included.

    Parameters and buffers, then plain attributes, `training` among them; what a trace cannot hold is
    listed by type under `__left_out__`.

    Raises:
        RecordError: for a child whose class a replay could not find, or may not use.
    """
    yield from _state(_eager(module), "self", ())


def fingerprint(module: nn.Module) -> Iterator[tuple[str, object]]:
    """`state` for the hot path: cheaper, and with the opaque attributes themselves."""
    modules = dict(_eager(module).named_modules())
    # A child that stands in several places is listed once: which one stands where is told by its number.
    numbers = {id(one): number for number, one in enumerate(modules.values())}
    for path, one in modules.items():
        plain = {name: value for name, value in vars(one).items() if name not in _INTERNAL}
        children = tuple((name, numbers.get(id(child))) for name, child in one._modules.items())
        hooks = path != "" and _has_hooks(one)
        yield path, (type(one), children, one._parameters, one._buffers, plain, hooks)


def _state(module: nn.Module, path: str, above: tuple[nn.Module, ...]) -> Iterator[tuple[str, object]]:
    if any(module is outer for outer in above):
        raise RecordError(
            f"{path} is a module that contains itself",
            remedy="keep a reference to a parent in a list, so that torch does not register it as a child",
        )
    parameters, buffers = module._parameters, module._buffers
    attributes = {name: value for name, value in vars(module).items() if name not in _INTERNAL}
    held = {**parameters, **buffers, **attributes}
    left_out = {name: _kind(value) for name, value in held.items() if not _is_held(name, value)}
    yield from ((f"{path}.{name}", value) for name, value in held.items() if name not in left_out)
    for kind, registry in ((PARAMETERS, parameters), (BUFFERS, buffers)):
        if names := tuple(name for name in registry if name not in left_out):
            yield f"{path}.{kind}", names
    if left_out:
        yield f"{path}.{LEFT_OUT}", left_out
    for name, child in module._modules.items():
        inner = f"{path}.{name}"
        if child is None:
            yield inner, None
            continue
        eager = _eager(child)
        _check_hooks(eager, inner)
        yield f"{inner}.{CLASS}", _child_class(eager, inner, (above or (module,))[0])
        yield from _state(eager, inner, (*above, module))


def _has_hooks(module: nn.Module) -> bool:
    before, after = module._forward_pre_hooks, module._forward_hooks
    return bool(before or after or module._backward_pre_hooks or module._backward_hooks)


def _check_hooks(child: nn.Module, path: str) -> None:
    if _has_hooks(child):
        raise RecordError(
            f"{path} has hooks, which may change what it does, and a replay has none",
            remedy="remove them (weight_norm and spectral_norm: use torch.nn.utils.parametrizations, and record the "
            "ops inside), or record that module by itself",
        )


def _eager(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` wrapped, or the module itself."""
    original = module._modules.get("_orig_mod")
    return module if original is None else original


def _is_held(name: str, value: object) -> bool:
    tensors: list[torch.Tensor] = []
    try:
        encode(value, tensors)
        for tensor in tensors:
            check_recordable(tensor)
    except RecordError:
        return False
    return "." not in name


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _kind(value: object) -> str:
    """Type of an attribute that is left out; of a container, with the type of an item that is the reason."""
    if isinstance(value, list | tuple | set | frozenset | dict):
        items = value.values() if isinstance(value, dict) else value
        culprit = next((item for item in items if not _is_held("", item)), None)
        if culprit is not None:
            return f"{type(value).__qualname__} of {_type_name(culprit)}"
    return _type_name(value)


def _child_class(child: nn.Module, path: str, root: nn.Module) -> str:
    name = _type_name(child)
    try:
        found = ops.locate(name)
    except TraceError:
        found = None
    if found is not type(child):
        raise RecordError(
            f"the class of {path}, {name}, cannot be imported by this name, and a replay makes it anew",
            remedy="define it at the top level of a module, or record an op inside it instead",
        )
    if not _is_allowed(type(child), type(root)):
        raise RecordError(_foreign(path, name, type(root)), remedy=_FOREIGN_REMEDY)
    return name


_FOREIGN_REMEDY = "mark that class with @pytest_cgins.mark, or record the ops around it instead"


def _foreign(path: str, name: str, root: type[nn.Module]) -> str:
    package = root.__module__.partition(".")[0]
    return f"the class of {path}, {name}, is neither torch.nn's nor of the package {package} nor marked"


def _is_allowed(cls: type[nn.Module], root: type[nn.Module]) -> bool:
    package = root.__module__.partition(".")[0]
    # Much besides torch.nn is in torch: what modules of its test suites or tracers run is not for a pack to choose.
    same = package != "torch" and cls.__module__.partition(".")[0] == package
    return same or ops.is_torch_module(cls) or ops.is_marked(cls)


def is_module_call(call: OpCall) -> bool:
    """Whether a call reads the state of a module."""
    return any(argument.passed == "state" for argument in call.arguments)


def rebuild(call: OpCall, tensors: Sequence[torch.Tensor]) -> nn.Module:
    """The module of a call, as it was before it.

    Its tensors are those given.

    Raises:
        TraceError: if the op is not a module's, or the state is not one that `state` gives.
    """
    op = ops.resolve(call.op)
    if not isinstance(op, ops.ModuleOp):
        raise TraceError(
            f"{call.op} is not a module class, and the trace has state of a module",
            remedy="record the pack again",
        )
    arguments = [argument for argument in call.arguments if argument.passed == "state"]
    built = _Builder(op)
    for argument in arguments:
        built.add(argument.name, decode(argument.value, tensors))
    return built.finish()


def keeping_state(module: nn.Module, function: Callable[..., object]) -> Callable[..., object]:
    """The function, for whose every call `module` has the attributes that it had before the first one.

    What a call sets there, such as the hidden state of a recurrent cell, is no input of the next one: a trace is of one
    call. Whether attributes are set at all is looked at once, after the first call, since looking takes a while.
    """
    kept = [
        (held, dict(held))
        for one in module.modules()
        for held in (vars(one), one._parameters, one._buffers, one._modules)
    ]
    sets_attributes: bool | None = None

    def run(*positional: Any, **keyword: Any) -> object:
        nonlocal sets_attributes
        if sets_attributes:
            for held, before in kept:
                held.clear()
                held.update(before)
        result = function(*positional, **keyword)
        if sets_attributes is None:
            sets_attributes = any(
                len(held) != len(before) or any(held.get(key) is not value for key, value in before.items())
                for held, before in kept
            )
        return result

    return run


class _Builder:
    """A module in the making, from hostile input: nothing but known classes and plain attributes."""

    def __init__(self, op: ops.ModuleOp) -> None:
        self._op = op
        self._modules: dict[str, nn.Module] = {"self": _blank(op.cls)}
        self._special: list[tuple[str, str, Any]] = []

    def add(self, name: str, value: Any) -> None:
        path, _, leaf = name.rpartition(".")
        if leaf == CLASS:
            self._add_child(path, value)
            return
        if path not in self._modules or not leaf or leaf in _INTERNAL:
            self._refuse(name)
        if leaf in (PARAMETERS, BUFFERS, LEFT_OUT):
            self._special.append((path, leaf, value))
        else:
            vars(self._modules[path])[leaf] = value

    def _add_child(self, path: str, name: object) -> None:
        parent, _, leaf = path.rpartition(".")
        if parent not in self._modules or not leaf or not isinstance(name, str):
            self._refuse(path)
        cls = ops.locate(name)
        if not ops.is_module_class(cls):
            raise TraceError(f"the class of {path}, {name}, is not an nn.Module", remedy="record it again")
        if not _is_allowed(cls, self._op.cls):
            raise TraceError(_foreign(path, name, self._op.cls), remedy=_FOREIGN_REMEDY)
        self._modules[path] = self._modules[parent]._modules[leaf] = _blank(cls)

    def finish(self) -> nn.Module:
        for path, kind, names in self._special:
            module = self._modules[path]
            plain = isinstance(names, dict if kind == LEFT_OUT else tuple)
            if not plain or not all(isinstance(name, str) for name in names):
                self._refuse(f"{path}.{kind}")
            for name in names:
                if kind == LEFT_OUT:
                    vars(module)[name] = LeftOut(self._op.name, f"{path}.{name}", str(names[name]))
                    continue
                if name not in vars(module):
                    self._refuse(f"{path}.{name}")
                registry: dict[str, Any] = module._parameters if kind == PARAMETERS else module._buffers
                registry[name] = vars(module).pop(name)
        for module in self._modules.values():
            if isinstance(module, nn.RNNBase):
                weights = vars(module).get("_flat_weights")
                tensors = weights if isinstance(weights, list) else []
                references = [ref(w) if isinstance(w, torch.Tensor) else None for w in tensors]
                vars(module)["_flat_weight_refs"] = references
        return self._modules["self"]

    def _refuse(self, name: str) -> NoReturn:
        raise TraceError(
            f"the trace of {self._op.name} has the state {name[:80]!r}, which no module has",
            remedy="record the pack again",
        )


def _blank(cls: type[nn.Module]) -> nn.Module:
    module: nn.Module = object.__new__(cls)
    vars(module).update(vars(nn.Module()))
    return module


class LeftOut:
    """Stands for an attribute that a trace could not hold: to compare it with None is all that works.

    Raises:
        RecordError: whenever it is used, naming the attribute.
    """

    __slots__ = ("_error",)

    def __init__(self, op: str, name: str, kind: str) -> None:
        error = RecordError(
            f"{op} reads {name}, a {kind}, which a trace cannot hold",
            remedy="register an adapter for its class with @pytest_cgins.adapter, or keep what forward needs of it in "
            "plain attributes; modules in lists belong in nn.ModuleList",
        )
        object.__setattr__(self, "_error", error)

    def _used(self, *_: object, **__: object) -> NoReturn:
        raise object.__getattribute__(self, "_error")

    __getattribute__ = __setattr__ = __call__ = __bool__ = __iter__ = __len__ = _used
    __getitem__ = __contains__ = __enter__ = __eq__ = __lt__ = __gt__ = __index__ = __float__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _used
    __hash__ = _used
