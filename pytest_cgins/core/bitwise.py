"""Tensors compared bit for bit, by functions that were taken from torch before any kernel was loaded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_cgins.core.dtypes import extent

# A kernel that replaces torch.equal must not be asked through it.
_equal = torch.equal
_to = torch.Tensor.to
_contiguous = torch.Tensor.contiguous
_reshape = torch.Tensor.reshape
_view = torch.Tensor.view
_clone = torch.Tensor.clone
_as_strided = torch.Tensor.as_strided
_set = torch.Tensor.set_
_copy = torch.Tensor.copy_
_storage = torch.Tensor.untyped_storage
_empty = torch.empty


E8M0 = getattr(torch, "float8_e8m0fnu", None)
"""Exponents of scales; torch 2.6 does not have it."""


def same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits in the same order: NaN equals itself, −0 is not 0."""
    if tensor.dtype != other.dtype or tensor.shape != other.shape:
        return False
    return _equal(_bytes(tensor), _to(_bytes(other), tensor.device))


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of float8 as float32, others as they are: torch compares and orders no numbers of eight bits."""
    return _to(tensor, torch.float32) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of float8 as its codes, others as they are: on a GPU torch moves no numbers of eight bits about."""
    return _view(tensor, torch.uint8) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def countable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of exponents as their codes, others as they are: twice as much is one step, not an error of 100%."""
    return _to(_view(tensor, torch.uint8), torch.int16) if tensor.dtype == E8M0 else tensor


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers along a new last axis, exponents as their codes; others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else countable(tensor)


def equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype hold equal numbers, of float8 too."""
    return _equal(readable(tensor), readable(other))


def all_same(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether two answers are the same, tensor for tensor."""
    return len(tensors) == len(others) and all(map(same, tensors, others))


def distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """|one − other| of tensors of one shape in fp64: 0 where both are the same or NaN, infinite where only one is a number."""
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    one, other = _to(one, wide), _to(other, device=one.device, dtype=wide)
    alike = (one == other) | (one.isnan() & other.isnan())
    return (one - other).abs().nan_to_num(torch.inf, torch.inf).masked_fill(alike, 0.0)


def same_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the whole memory on which two tensors lie holds the same bytes, gaps included.

    Nothing is copied, however far a tensor is expanded.
    """
    return tensor.device == other.device and _equal(memory_of(tensor), memory_of(other))


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole memory on which a tensor lies, as bytes."""
    return _set(_empty(0, dtype=torch.uint8, device=tensor.device), _storage(tensor))


def copy_memory(to: torch.Tensor, source: torch.Tensor) -> None:
    """Write the whole memory on which a tensor lies over another's; a storage's own method could be the kernel's."""
    _copy(memory_of(to), memory_of(source))


def copy_element(tensor: torch.Tensor, to: int, source: int) -> None:
    """Write an element over another one, both by their numbers in the tensor's order."""
    memory, size = memory_of(tensor), tensor.element_size()
    written, read = (size * _place(tensor, number) for number in (to, source))
    _copy(memory[written : written + size], memory[read : read + size])


def element(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """An element as a view, by its number in the tensor's order: one operation, where an index takes one for each dimension."""
    return _as_strided(tensor, (), (), _place(tensor, number))


def _place(tensor: torch.Tensor, number: int) -> int:
    """Where in its storage an element lies."""
    place = int(tensor.storage_offset())
    for length, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        number, at = divmod(number, length)
        place += at * step
    return place


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = _reshape(_contiguous(tensor.detach().resolve_conj().resolve_neg()), -1)
    return _view(flat, torch.uint8)


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, also where they leave gaps or overlap, which `clone` would close."""
    if tensor.is_contiguous() or not tensor.numel():
        return _clone(tensor)
    length = extent(tuple(tensor.shape), tensor.stride())
    flat = _clone(_as_strided(tensor, (length,), (1,), tensor.storage_offset()))
    return _as_strided(flat, tensor.shape, tensor.stride(), 0)
