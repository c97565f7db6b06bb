"""What a kernel hands over, looked at without asking the objects themselves: their code would be the kernel's.

An attribute hung on a plain tensor (`out.as_subclass = …`), on the storage that all tensors of a memory share, a class that
lies about itself (`__class__`), or a container with an `__iter__` of its own would run code after the call was timed and
watched. So types are looked at as they are, containers are read by C's own iterators, and tensors and storages by methods
that were taken from torch before any kernel was loaded.
"""

from __future__ import annotations

import enum
from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from pytest_cgins.core.errors import LaunchError
from pytest_cgins.packs import adapters
from pytest_cgins.packs.values import MAX_DEPTH

Plan = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""What runs a kernel for other calls of one form; see `callable.BoundCall.plan`."""

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_no_overrides = torch._C.DisableTorchFunction
_attributes = torch.Tensor.__dict__["__dict__"].__get__
_storage_attributes = torch.UntypedStorage.__dict__["__dict__"].__get__
_storage = torch.Tensor.untyped_storage
_address = torch.UntypedStorage.data_ptr
_layout = torch._C.TensorBase.layout.__get__  # type: ignore[attr-defined]
_dtype = torch._C.TensorBase.dtype.__get__  # type: ignore[attr-defined]
_shape = torch._C.TensorBase.shape.__get__  # type: ignore[attr-defined]
_stride, _offset = torch.Tensor.stride, torch.Tensor.storage_offset
_as_subclass, _set, _empty = torch.Tensor.as_subclass, torch.Tensor.set_, torch.empty
_keys = torch._C._dispatch_keys
_is_copied_on_write: Any = getattr(torch._C, "_is_cow_tensor", lambda _tensor: False)

_DATA: tuple[type, ...] = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, enum.Enum, torch.dtype, torch.device,
    torch.layout, torch.memory_format, torch.Generator, np.generic,
)  # fmt: skip
_qualname = type.__dict__["__qualname__"].__get__
_text, _items = str.__str__, dict.keys  # a name may be of a class that derives from str, attributes from dict
_HELD: Any = {
    name: getattr(torch._C.DispatchKey, name)
    for name in ("Conjugate", "Negative", "ZeroTensor", "Functionalize", "Python")
}
"""Keys of dispatch with which a tensor's numbers are not what lies in its memory."""
_WITHOUT_MEMORY = [_HELD[name] for name in ("ZeroTensor", "Functionalize", "Python")]
_OF_DYNAMO = "_dynamo_"
"""Begins the attributes that torch's compiler hangs on its inputs, which an op may return."""


def tensors_of(result: object, name: str) -> list[torch.Tensor]:
    """The tensors of what a kernel returned, in order, one object once; data besides is not looked at.

    Args:
        result: what it returned.
        name: of the kernel.

    Raises:
        LaunchError: there is something else in it.
    """
    found: dict[int, torch.Tensor] = {}
    for tensor in _tensors(result, name, MAX_DEPTH):
        found.setdefault(id(tensor), tensor)
    return list(found.values())


def _tensors(obj: Any, name: str, depth: int) -> Iterator[torch.Tensor]:
    kind = type(obj)  # not isinstance, which asks the object for its class
    if issubclass(kind, _Tensor):
        yield obj
        return
    if not depth:
        raise LaunchError(
            f"{name} returned containers that are nested deeper than {MAX_DEPTH}", remedy="return tensors"
        )
    container: Any = next((one for one in (tuple, list, dict) if issubclass(kind, one)), None)
    made = _adapter(kind)
    if made is not None:
        yield from _tensors(made.to_plain(obj), name, depth - 1)
    elif container is not None:
        for item in dict.values(obj) if container is dict else container.__iter__(obj):
            yield from _tensors(item, name, depth - 1)
    elif not issubclass(kind, _DATA):
        raise LaunchError(
            f"{name} returned {_name_of(kind)}, which is neither a tensor nor plain data",
            remedy="return tensors, or tuples, lists and dicts of them",
        )


def _adapter(kind: type) -> Any:
    meta = type(kind)
    # To look up another's class, or to ask for its names, could run its code.
    return adapters.for_results(kind) if meta is type or meta is ABCMeta else None


def _names(attributes: dict[str, Any]) -> list[str]:
    return [*map(_text, _items(attributes))]


def _name_of(kind: type) -> str:
    return _text(_qualname(kind))[:100]


def unlike_plain(tensor: torch.Tensor, *, attributes: bool = True) -> str:
    """What makes a tensor another thing than numbers in memory, in words; "" for a plain one, or torch's `Parameter`.

    Args:
        tensor: what the kernel has.
        attributes: whether those that are hung on it count: who calls may have hung some on an input that is returned.
    """
    kind = type(tensor)
    if kind is not _Tensor and kind is not _Parameter:
        return _name_of(kind)
    hung = [key for key in _names(_attributes(tensor)) if not key.startswith(_OF_DYNAMO)]
    with _no_overrides():
        keys = _keys(tensor)
        has = [name for name, key in _HELD.items() if keys.has(key)]
        if not has and _layout(tensor) is torch.strided:
            hung += [f"untyped_storage().{key}" for key in _names(_storage_attributes(_storage(tensor)))]
            has = ["copy on write"] if _is_copied_on_write(tensor) else []
    if hung and attributes:
        return f"a tensor with attributes of its own ({', '.join(hung[:3])[:100]})"
    return f"a tensor whose numbers are still to be computed ({', '.join(has)})" if has else ""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """An object that the kernel does not have, for the same numbers in the same memory; an empty one if there are none.

    Raises:
        LaunchError: it has no dense memory.
    """
    with _no_overrides():
        if _layout(tensor) != torch.strided:
            raise LaunchError(
                f"the kernel returned a tensor with layout {_layout(tensor)}", remedy="return dense tensors"
            )
        if any(map(_keys(tensor).has, _WITHOUT_MEMORY)):
            return _empty(0)  # its memory is what code of the kernel says
        return _as_subclass(tensor, _Tensor)


def require_plain(tensor: torch.Tensor) -> torch.Tensor:
    """`plain` of a tensor that is one.

    Raises:
        LaunchError: it is not.
    """
    unlike = unlike_plain(tensor)
    if unlike:
        raise LaunchError(f"the kernel returned {unlike}", remedy="return plain tensors")
    return plain(tensor)


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor on the same memory: a kernel gets twins, so that what it hangs on them reaches nobody else."""
    made = _empty(0, dtype=tensor.dtype, device=tensor.device)
    return _set(made, _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride())


def address(tensor: torch.Tensor) -> int:
    """Where the memory begins on which a tensor lies."""
    with _no_overrides():
        return int(_address(_storage(tensor)))


def place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a tensor is, and how it lies on its memory; it may be one that the kernel has."""
    with _no_overrides():
        return (
            id(type(tensor)), str(_keys(tensor)), _dtype(tensor), tuple(_shape(tensor)), _stride(tensor), _offset(tensor),
            address(tensor),
        )  # fmt: skip
