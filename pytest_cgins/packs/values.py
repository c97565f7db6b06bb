"""Argument trees as data, and back."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.trace import Value, walk
from pytest_cgins.packs import adapters, ops
from pytest_cgins.packs.validate import CONSTANTS

MAX_DEPTH = 32


def encode(obj: object, tensors: list[torch.Tensor], *, depth: int = 0) -> Value:
    """Write an argument or a result as a `Value`; tensors are appended to `tensors`, one object once.

    Raises:
        RecordError: for a leaf that is neither a tensor nor plain data nor has an adapter, naming the remedy.
    """
    if depth > MAX_DEPTH:
        raise RecordError(
            f"an argument is nested deeper than {MAX_DEPTH} containers", remedy="pass a flatter structure"
        )
    adapted = adapters.to_plain(obj)
    if adapted is not None:
        name, plain = adapted
        return Value(kind="adapted", value=name, items=(encode(plain, tensors, depth=depth + 1),))
    if isinstance(obj, torch.Tensor):
        return Value(kind="tensor", value=_index(obj, tensors))
    leaf = _leaf(obj)
    if leaf is not None:
        return leaf
    children = _children(obj)
    if children is None:
        raise _opaque(obj)
    kind, items, keys = children
    return Value(kind=kind, items=tuple(encode(item, tensors, depth=depth + 1) for item in items), keys=keys)


def decode(value: Value, tensors: Sequence[torch.Tensor]) -> Any:
    """The object that a `Value` stands for, with its tensor leaves taken from `tensors`.

    A generator is made anew on the tensors' device, with the seed that `context.restore` has set.

    Raises:
        TraceError: for a function that is not an op of torch, or an adapter that is none.
    """
    kind, leaf = value.kind, value.value
    if kind in ("tuple", "list", "size", "slice", "dict"):
        items = [decode(item, tensors) for item in value.items]
        makers: dict[str, Any] = {
            "tuple": tuple,
            "list": list,
            "size": torch.Size,
            "slice": lambda i: slice(*i),
        }
        return dict(zip(value.keys, items, strict=True)) if kind == "dict" else makers[kind](items)
    if kind == "tensor":
        return tensors[int(leaf or 0)]
    if kind == "float":
        return float.fromhex(str(leaf))
    if kind == "complex":
        real, imaginary = str(leaf).split()
        return complex(float.fromhex(real), float.fromhex(imaginary))
    if kind == "device":
        return torch.device(str(leaf))
    if kind in ("dtype", "memory_format", "layout"):
        return getattr(torch, str(leaf))
    if kind == "adapted":
        return adapters.from_plain(str(leaf), decode(value.items[0], tensors))
    if kind == "op":
        return _torch_op(str(leaf))
    if kind == "generator":
        device = tensors[0].device if tensors else torch.device("cpu")
        return torch.Generator(device).manual_seed(torch.initial_seed())
    return Ellipsis if kind == "ellipsis" else leaf


def has_adapted(value: Value) -> bool:
    """Whether a tree holds an object of an adapter, which a call may change beyond its tensors."""
    return any(node.kind == "adapted" and node.value != adapters.ENUM_MEMBER for node in walk(value))


def _index(tensor: torch.Tensor, tensors: list[torch.Tensor]) -> int:
    for index, known in enumerate(tensors):
        if known is tensor:
            return index
    tensors.append(tensor)
    return len(tensors) - 1


def _leaf(obj: object) -> Value | None:
    if obj is None:
        return Value(kind="none")
    if obj is Ellipsis:
        return Value(kind="ellipsis")
    if isinstance(obj, bool):
        return Value(kind="bool", value=obj)
    if isinstance(obj, str):
        if any("\ud800" <= character <= "\udfff" for character in obj):
            raise _unfit("a string with half a surrogate pair")
        return Value(kind="str", value=str.__str__(obj))
    if isinstance(obj, numbers.Complex):
        return _number(obj)
    if isinstance(obj, torch.Generator):
        return Value(kind="generator")
    if isinstance(obj, torch.device):
        return Value(kind="device", value=str(obj))
    return _constant(obj) or _function(obj)


def _number(obj: numbers.Complex) -> Value:
    # numpy's scalars register with `numbers` without being subclasses of int and float.
    if isinstance(obj, numbers.Integral):
        if not -(2**63) <= int(obj) < 2**64:
            raise _unfit("an integer of more than 64 bits")
        return Value(kind="int", value=int(obj))
    if isinstance(obj, numbers.Real):
        return Value(kind="float", value=float(obj).hex())
    number = complex(obj)
    return Value(kind="complex", value=f"{number.real.hex()} {number.imag.hex()}")


def _constant(obj: object) -> Value | None:
    """A dtype, memory format or layout by its name."""
    for kind in CONSTANTS:
        if isinstance(obj, getattr(torch, kind)):
            name = str(obj).removeprefix("torch.")
            if name not in CONSTANTS[kind]:
                raise _unfit(f"the {kind} {name}")
            return Value(kind=kind, value=name)
    return None


def _unfit(what: str) -> RecordError:
    return RecordError(
        f"an argument is {what}, which a trace cannot hold",
        remedy="pass something else, or leave the op out through ops=[…]",
    )


def _function(obj: object) -> Value | None:
    """A function of torch by its name, as modules keep their activation."""
    if not callable(obj) or isinstance(obj, type):
        return None
    try:
        name = ops.qualified_name(obj)
        found = ops.locate(name) if name.startswith("torch.") else None
    except (AttributeError, TypeError, TraceError):  # without a name, or without a hash
        return None
    return Value(kind="op", value=name) if found is obj and ops.is_torch_op(name, obj) else None


def _torch_op(name: str) -> Any:
    # Nothing else is imported to find out.
    found = ops.locate(name) if name.startswith("torch.") else None
    if found is None or not ops.is_torch_op(name, found):
        raise TraceError(
            f"{name} is passed as a function, and is not an op of torch: a trace must not run other code",
            remedy="record the pack again",
        )
    return found


def _children(obj: object) -> tuple[Any, Sequence[object], tuple[str, ...]] | None:
    """(kind, children, keys) of a container that a pack can hold, else None."""
    if isinstance(obj, torch.Size):
        return "size", obj, ()
    if isinstance(obj, slice):
        return "slice", (obj.start, obj.stop, obj.step), ()
    if type(obj) is list:
        return "list", obj, ()
    # torch.return_types.* are results with names; any other named tuple would lose its names silently.
    if isinstance(obj, tuple) and (type(obj) is tuple or type(obj).__module__ == "torch.return_types"):
        return "tuple", obj, ()
    if type(obj) is dict and all(type(key) is str for key in obj):
        return "dict", list(obj.values()), tuple(obj)
    return None


def _opaque(obj: object) -> RecordError:
    name = type(obj).__qualname__
    kind = f"{type(obj).__module__}.{name}"
    return RecordError(
        f"an argument or result of type {kind} is opaque: a trace holds tensors, numbers, strings, dtypes, "
        "devices, slices, functions of torch, and tuples, lists and dicts (with str keys) of these",
        remedy=f"register an adapter for it beside the op:\n"
        f"    @pytest_cgins.adapter({kind})\n"
        f"    class {name.rpartition('.')[2]}Adapter: to_plain, from_plain = staticmethod(vars), staticmethod(lambda "
        f"plain: {name}(**plain))\n"
        "or decorate with @pytest_cgins.mark a function that takes and returns the tensors inside it; or take the op "
        "out of ops=[…]",
    )
