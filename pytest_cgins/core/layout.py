"""How tensors lie in memory: the byte spans they reach, and the same tensors rebuilt on fresh memory.

Tensors whose bytes overlap or interleave lie on one span, so that what aliased in the recorded model
aliases at replay. Tensors that merely share an allocation, as a model's flattened parameters do, get
spans of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from pytest_cgins.core.device import torch_device
from pytest_cgins.core.dtypes import ITEMSIZE, MAX_BYTES, extent
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import TensorMeta

ALIGNMENT = 64
_PLAIN_CALLS = (torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensors taken apart into numbers and bytes."""

    metas: tuple[TensorMeta, ...]
    """One a tensor, in the order given; offsets count from the start of the span."""
    spans: list[torch.Tensor]
    """1-D uint8 tensors on the tensors' device, one a storage index."""


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype without the prefix: `float32`."""
    return str(dtype).removeprefix("torch.")


def lay_out(tensors: Sequence[torch.Tensor], *, copy: bool = True) -> Layout:
    """Take tensors apart into metas and byte spans; conj and neg views are resolved first.

    With `copy` false the spans are views of the tensors' own memory: for hashing, or copying elsewhere.

    Raises:
        RecordError: for a tensor without strided storage of its own (sparse, quantized, meta, wrapped by
            a `torch.func` transform).
    """
    metas, plain, ends = _taken_apart(tensors)
    return Layout(metas, [_bytes(plain[first], start, stop, copy=copy) for first, start, stop in ends])


def metas_of(tensors: Sequence[torch.Tensor]) -> tuple[TensorMeta, ...]:
    """The metas that `lay_out` gives, without the spans."""
    return _taken_apart(tensors)[0]


def _taken_apart(
    tensors: Sequence[torch.Tensor],
) -> tuple[tuple[TensorMeta, ...], list[torch.Tensor], list[tuple[int, int, int]]]:
    """Metas, the tensors with conj and neg views resolved, and of each storage a tensor on it, its first byte and one past its last."""
    plain = [_plain(tensor) for tensor in tensors]
    ranges = [_byte_range(tensor) for tensor in plain]
    storage_of, ends = _group(ranges)
    metas = tuple(
        TensorMeta(
            dtype=dtype_name(tensor.dtype),
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=(start - ends[index][1]) // tensor.element_size() if tensor.numel() else 0,
            storage=index,
            requires_grad=original.requires_grad,
        )
        for original, tensor, index, (_, start, _) in zip(tensors, plain, storage_of, ranges, strict=True)
    )
    return metas, plain, ends


def rebuild(
    metas: Sequence[TensorMeta],
    spans: Sequence[torch.Tensor],
    device: torch.device | str,
    *,
    copy: bool = True,
) -> list[torch.Tensor]:
    """Tensors with the same strides, offsets and aliasing on fresh memory of `device`.

    They are detached: gradients are no part of a forward replay. The spans are left as they are. With `copy` false tensors lie on
    them where they are on the device: to be read alone.
    """
    on = torch_device(str(device))
    storages = [span.to(on, copy=copy).untyped_storage() for span in spans]
    return [
        torch.empty(0, dtype=getattr(torch, meta.dtype), device=on).set_(
            storages[meta.storage], meta.offset, meta.shape, meta.stride
        )
        for meta in metas
    ]


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors reach into a common byte range of one allocation."""
    one, two = _byte_range(first), _byte_range(second)
    return one[0] == two[0] and max(one[1], two[1]) < min(one[2], two[2])


def check_recordable(tensor: torch.Tensor) -> None:
    """Raise RecordError unless the tensor has strided storage of its own that a pack can hold."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise RecordError(
            "a tensor inside a torch.func transform (vmap, grad, functionalize) has no storage to record",
            remedy="record outside the transform, or leave the op out through ops=[…]",
        )
    called = type(tensor).__torch_function__
    wraps = type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    # Before anything is asked of it, which the class may answer otherwise.
    if not wraps and getattr(called, "__func__", called) not in _PLAIN_CALLS:
        raise RecordError(
            f"a {type(tensor).__name__} changes what torch's functions do, and a replay has plain tensors",
            remedy="pass tensor.as_subclass(torch.Tensor), or leave the op out through ops=[…]",
        )
    if tensor.is_nested and tensor.layout == torch.jagged:
        raise RecordError(
            "a nested tensor has no storage to record",
            remedy="mark a function of its parts, x.values() and x.offsets(), that puts them together by "
            "torch.nested.nested_tensor_from_jagged and returns values(), and declare "
            'semantics: {coupled: {offsets: {offsets: "values[0]"}}}',
        )
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        raise RecordError(
            f"a tensor with layout {tensor.layout} on device {tensor.device} has no strided storage to record",
            remedy="call .to_dense() before the op, use a real device, or leave the op out through ops=[…]",
        )
    if dtype_name(tensor.dtype) not in ITEMSIZE:
        raise RecordError(
            f"a tensor of dtype {tensor.dtype} cannot be recorded",
            remedy="pass its bytes, x.view(torch.uint8): torch computes nothing in it"
            if "float4" in str(tensor.dtype)
            else f"use one of {', '.join(ITEMSIZE)}, or leave the op out through ops=[…]",
        )
    if wraps:
        raise RecordError(
            f"a {type(tensor).__name__} wraps other tensors and has no storage of its own to record",
            remedy="unwrap it before the op (full_tensor(), dequantize(), …), or leave the op out through ops=[…]",
        )
    nbytes = max(tensor.numel(), extent(tuple(tensor.shape), tensor.stride())) * tensor.element_size()
    if nbytes > MAX_BYTES:
        raise RecordError(
            f"a tensor of {counted(nbytes, 'byte')} is larger than a pack may hold, {MAX_BYTES}",
            remedy="record on smaller inputs, or leave the op out through ops=[…]",
        )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    check_recordable(tensor)
    return tensor.resolve_conj().resolve_neg()


def _byte_range(tensor: torch.Tensor) -> tuple[tuple[str, int], int, int]:
    """(allocation, first byte, one past the last byte) that the tensor reaches in its allocation."""
    storage = tensor.untyped_storage()
    start = int(tensor.storage_offset()) * tensor.element_size()
    length = extent(tuple(tensor.shape), tensor.stride()) * tensor.element_size()
    return (str(tensor.device), storage.data_ptr()), start, start + length


def _group(
    ranges: list[tuple[tuple[str, int], int, int]],
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Storage index of each tensor, and of each storage a tensor on it, its first byte and one past its last."""
    groups: list[list[int]] = []
    current: list[int] = []
    end = 0
    for index in sorted(range(len(ranges)), key=lambda i: ranges[i]):
        allocation, start, stop = ranges[index]
        if current and start < stop and ranges[current[0]][0] == allocation and start < end:
            current.append(index)
            end = max(end, stop)
            continue
        groups.append([index])
        # An empty tensor overlaps nothing: what began before it goes on behind it.
        if start < stop:
            current, end = groups[-1], stop
    groups.sort(key=min)
    storage_of, ends = [0] * len(ranges), []
    for number, members in enumerate(groups):
        # Where a tensor starts within 64 bytes decides which path a vectorized kernel takes: keep it.
        start = min(ranges[i][1] for i in members) // ALIGNMENT * ALIGNMENT
        stop = max(ranges[i][2] for i in members)
        ends.append((members[0], start, max(start, stop)))
        for i in members:
            storage_of[i] = number
    return storage_of, ends


def _bytes(tensor: torch.Tensor, start: int, stop: int, *, copy: bool) -> torch.Tensor:
    span = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    if tensor.numel():
        span.set_(tensor.untyped_storage(), start, (stop - start,), (1,))
    return span.clone() if copy else span
