"""What a call changes beside what it returns: tensors that it writes into, attributes of its module, caches that grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import xxhash

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.trace import OpCall, Value, tensor_indices
from pytest_cgins.packs import modules
from pytest_cgins.packs.context import neutral
from pytest_cgins.packs.gold import to_bytes
from pytest_cgins.packs.ops import written_arguments
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.values import encode


def tensor_hashes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """A hash of the elements of each tensor, in row-major order."""
    return [xxhash.xxh3_128_intdigest(to_bytes(tensor)) for tensor in tensors]


def changed_tensors(call: OpCall, tensors: Sequence[torch.Tensor], before: Sequence[int]) -> list[int]:
    """Indices of tensors whose hashes are others than before, or which the schema of an operator says are written to."""
    written = written_arguments(call.op, [argument.name for argument in call.arguments])
    declared = {
        index
        for argument in call.arguments
        if argument.name in written
        for index in tensor_indices(argument.value)
    }
    return [
        index for index, now in enumerate(tensor_hashes(tensors)) if now != before[index] or index in declared
    ]


_ABSENT = Value(kind="ellipsis")


def rebound(
    call: OpCall,
    tensors: Sequence[torch.Tensor],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[str, ...]:
    """Names of arguments and state that are no longer what they were when the call was taken down, before it ran.

    A tensor that was written into is still the same; one that has another in its place is not, unless it
    holds the same values: adapters may make their tensors anew each time.
    """
    now = list(tensors)
    with neutral():
        before = _named({argument.name: argument.value for argument in call.arguments})
        after = _named({name: _taken(value, now) for name, value, _ in bind(func, args, kwargs)})
        names = [name for name in (*before, *(after.keys() - before.keys())) if not name.endswith("__")]
        changed = [n for n in names if not _same(before.get(n, _ABSENT), after.get(n, _ABSENT), now)]
    return tuple(sorted(changed))


def _taken(value: object, tensors: list[torch.Tensor]) -> Value:
    try:
        return encode(value, tensors)
    except RecordError:
        return _ABSENT


def _named(values: dict[str, Value]) -> dict[str, Value]:
    """The same with the attributes that a trace cannot hold: each has its type for a value."""
    for name, value in list(values.items()):
        path, _, leaf = name.rpartition(".")
        if leaf == modules.LEFT_OUT:
            values |= {f"{path}.{key}": item for key, item in zip(value.keys, value.items, strict=True)}
    return values


def _same(one: Value, other: Value, tensors: Sequence[torch.Tensor]) -> bool:
    if one.kind == other.kind == "tensor":
        old, new = tensors[int(one.value or 0)], tensors[int(other.value or 0)]
        form, now = ((tensor.shape, tensor.dtype, tensor.device) for tensor in (old, new))
        return old is new or (form == now and torch.equal(old, new))
    before, after = ((value.kind, value.value, value.keys, len(value.items)) for value in (one, other))
    if before != after:
        return False
    return all(_same(old, new, tensors) for old, new in zip(one.items, other.items, strict=True))
