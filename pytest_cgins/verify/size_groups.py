"""Finds which sizes of a call may change, together or alone, and argument tensors of other sizes.

What was recorded is repeated where it must stay as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from pytest_cgins.config.coupled import Sorted
from pytest_cgins.core.dtypes import extent
from pytest_cgins.core.layout import metas_of
from pytest_cgins.core.trace import OpCall, TensorMeta, Value, tensor_indices, walk
from pytest_cgins.verify import inputs
from pytest_cgins.verify.coupling_bounds import adds_up
from pytest_cgins.verify.couplings import couplings_of, inferred
from pytest_cgins.verify.inputs import is_mask
from pytest_cgins.verify.semantics import Semantics, is_position

LEAST = 4
"""Smaller sizes are those of windows and groups, mostly: a kernel that refuses others refuses them in sets of their own."""

BLOCKS = (128, 64, 32, 16, 256, 8)
"""Elements that have a scale, or a zero point, together; the likeliest first."""
PACKED = (2, 4, 8)
"""Numbers in one element."""
STEPS = (1, *PACKED, *sorted(BLOCKS)[1:])
"""By how much a size may have to grow to be legal."""
_FACTORS = tuple(one for one in itertools.product((1, *PACKED), (1, *BLOCKS)) if max(one) > 1)

Moves = Mapping[int, int]
"""New size by old one."""
Spot = tuple[int, int]
"""Index of a tensor, and one of its dimensions."""


def prime_above(size: int) -> int:
    """The least prime above a size."""
    return next(n for n in itertools.count(size + 1) if _is_prime(n))


def prime_below(size: int) -> int:
    """The greatest prime below a size; one more than it where there is none but small ones."""
    if size <= LEAST:
        return size + 1
    return next(n for n in range(size - 1, 1, -1) if _is_prime(n))


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def in_blocks(moves: Moves, sizes: Collection[int]) -> Iterator[Moves]:
    """The moves, and with them sizes that are numbers of blocks of a moved one, or of elements that hold several of its numbers."""
    for factors in _FACTORS:
        counts = {
            size // factor: -(-new // factor)
            for factor in factors
            for size, new in moves.items()
            if factor > 1 < size // factor and size % factor == 0 and size // factor in sizes
        }
        if not counts.items() <= moves.items():
            yield {**moves, **counts}


class Places:
    """The sizes of a call that may move: those within rows of the data first, then all others."""

    def __init__(self, call: OpCall, semantics: Semantics, recorded: Sequence[torch.Tensor]) -> None:
        self.metas = metas_of(recorded)
        self._semantics, self._recorded = semantics, recorded
        seen = [] if call.op.startswith("torch.") else filter(adds_up, inferred(semantics, call, recorded))
        # Of a user's op what looks like offsets or lengths, and whose they are: alone none is legal in another size.
        said = (spot for one in seen for spot in (*one.size, (one.argument, 0)))
        self._fixed = semantics.fixed.union(said)
        storages = {meta.storage for meta in self.metas}
        # An argument that is changed in place must lie where the other sees it.
        self.are_tied = call.op.endswith("_") and len(storages) < len(self.metas)
        """Whether sizes cannot move since memory is shared and changed."""
        self._tables = {n for n, meta in enumerate(self.metas) if semantics.kept(n, meta) == "table"}
        # A module is one with what it was made with, its integers included.
        state = [argument.value for argument in call.arguments if argument.passed == "state"]
        self._state = {index for value in state for index in tensor_indices(value)}
        of_state = {size for index in self._state for size in self.metas[index].shape}
        couplings = couplings_of(semantics, call, recorded)
        self._running = {one.argument for one in couplings if isinstance(one, Sorted) or adds_up(one)}
        self._offsets = _offsets(semantics, recorded, {one.argument for one in couplings})
        held = self._offsets.union(of_state, *map(_integers, state))
        sizes = (self.metas[index].shape[dim] for index, dim in self.spots)
        self.sizes = tuple(dict.fromkeys(size for size in sizes if size > 1 and size not in held))
        """All that may move wherever they occur, in the order of the arguments."""
        usual = [size for size in self.sizes if size >= LEAST] or list(self.sizes)
        within = list[int]()
        for index, tensor in inputs.data(semantics, recorded)[:1]:
            lanes = semantics.lanes(call, index, tuple(tensor.shape))
            within = [size for dim, size in enumerate(tensor.shape) if dim not in lanes]
        self.inner = [size for size in usual if size in within][-1:]
        self.others = sorted((size for size in usual if size not in self.inner), reverse=True)

    def is_fixed(self, index: int, dim: int) -> bool:
        """Whether one dimension of a tensor must keep its size."""
        name = self._semantics.names.get(index, "")
        # What a table holds along a row depends on itself: often the second half repeats the first.
        of_table = index in self._tables and dim == len(self.metas[index].shape) - 1
        return of_table or index in self._state or not self._fixed.isdisjoint({(name, None), (name, dim)})

    def shape(self, index: int, moves: Moves) -> tuple[int, ...]:
        """Sizes of a tensor after moves."""
        sizes = enumerate(self.metas[index].shape)
        return tuple(size if self.is_fixed(index, dim) else moves.get(size, size) for dim, size in sizes)

    @cached_property
    def spots(self) -> tuple[Spot, ...]:
        """All dimensions that may be of another size, in order."""
        spots = ((index, dim) for index, meta in enumerate(self.metas) for dim in range(len(meta.shape)))
        return tuple(spot for spot in spots if not self.is_fixed(*spot))

    def call(self, call: OpCall, moves: Moves) -> OpCall:
        """The call with its integer arguments moved as well."""
        return replace(
            call,
            arguments=tuple(
                argument
                if (argument.name, None) in self._fixed or argument.passed == "state"
                else replace(argument, value=_moved(argument.value, moves))
                for argument in call.arguments
            ),
        )

    @cached_property
    def batches(self) -> list[list[int]]:
        """Tensors whose first dimension may be a batch: all of one size, or the first alone.

        By place and not by size: a batch of 64 has nothing to do with 64 channels, nor one of 1 with what is expanded.
        """
        return self._alike(0, ("data", "keep"))

    def batch_of_rows(self, given: Sequence[int]) -> list[int]:
        """Tensors whose first dimension is the batch, if the outputs are as long as some: of a cache and the table of its pages one.

        Offsets are no rows: in another order they are illegal.
        """
        batched = next(iter(self.batches), [])
        if not batched or self.metas[batched[0]].shape[0] in given:
            return batched
        rows = {
            index: self.metas[index].shape[0]
            for index in self._batched(0, ("data", "keep"))
            if self._semantics.names.get(index) not in self._running
        }
        first = next((size for size in rows.values() if size in given), 0)
        return [index for index, size in rows.items() if size == first] or batched

    def is_offset(self, size: int) -> bool:
        """Whether integers of the call say the same as a size, so that it does not move alone."""
        return size in self._offsets

    def is_pointed_into(self, batch: Sequence[int]) -> bool:
        """Whether other arguments may hold indices of a batch's rows: into nothing none is legal, though torch may not look."""
        size = self.metas[batch[0]].shape[0]
        return any(
            0 <= int(tensor.max()) < size
            for index, tensor in enumerate(self._recorded)
            if index not in batch
            and tensor.numel()
            and self._semantics.kept(index, self.metas[index]) == "index"
        )

    def ones(self) -> Iterator[list[Sequence[Spot]]]:
        """Dimensions of 1 behind the first one of the data: for each what may move, the more tensors the sooner."""
        first = next(iter(self._batched(0, ("data", "keep"))), None)
        for dim in range(1, len(self.metas[first].shape) if first is not None else 0):
            choices = [
                tuple((index, dim) for index in alike)
                for roles in (("data", "weight", "keep"), ("data", "weight"), ("data", "keep"))
                for alike in self._alike(dim, roles)
                if self.metas[alike[0]].shape[dim] == 1 and first in alike
            ]
            repeated = tuple(
                (index, dim)
                for index in self._batched(dim, ("data", "weight"))
                if self.metas[index].shape[dim] == 1
            )
            if not choices and len(repeated) > 1:  # heads of keys and values that all heads of queries share
                choices = [repeated]
            if choices:
                yield [*dict.fromkeys(choices)]

    def _batched(self, dim: int, roles: Collection[str]) -> list[int]:
        """Tensors that have a dimension that may move; those of data first."""
        found = {
            index: self._semantics.role(index, self.metas[index])
            for index, of in self.spots
            if of == dim and self.metas[index].shape[dim] and index not in self._tables
        }
        return sorted((n for n, role in found.items() if role in roles), key=lambda n: found[n] != "data")

    def _alike(self, dim: int, roles: Collection[str]) -> list[list[int]]:
        batched = self._batched(dim, roles)
        alike = sorted(n for n in batched if self.metas[n].shape[dim] == self.metas[batched[0]].shape[dim])
        return [] if not alike else [alike] if alike == batched[:1] else [alike, batched[:1]]


def _integers(value: Value) -> Iterator[int]:
    return (node.value for node in walk(value) if node.kind == "int" and isinstance(node.value, int))


def _moved(value: Value, moves: Moves) -> Value:
    if value.kind == "int" and isinstance(value.value, int):
        return replace(value, value=moves.get(value.value, value.value))
    if value.kind in ("tuple", "list", "size"):
        return replace(value, items=tuple(_moved(item, moves) for item in value.items))
    return value


def _offsets(
    semantics: Semantics,
    recorded: Sequence[torch.Tensor],
    redrawn: Collection[str],
) -> set[int]:
    """Sizes that integers of the call add up to, or end with: offsets and lengths say the same as the size.

    Not those that are drawn anew for each size.
    """
    found: set[int] = set()
    for index, tensor in enumerate(recorded):
        name = semantics.names.get(index, "")
        known = name in redrawn or semantics.entry.kept.get(name) == "index"
        if "int" in str(tensor.dtype) and tensor.numel() and not known:
            found |= {int(tensor.max()), int(tensor.sum())}
    return found


def resized(
    recorded: Sequence[Tensor],
    metas: Sequence[TensorMeta],
    shapes: Sequence[tuple[int, ...]],
    moves: Mapping[int, int],
    semantics: Semantics,
    *,
    following: bool = False,
) -> list[Tensor]:
    """Tensors of the given shapes, each on memory of its own, their dimensions in the recorded order in memory.

    Elements beyond the recorded sizes repeat the first ones; indices stay below the sizes that they pointed into, and a mask's
    row that let something through still does. Positions that follow each other go on `following`, which may lead out of a table.

    Raises:
        RuntimeError: if a tensor overlaps itself in another way than by a step of 0.
    """
    new_tensors = []
    for index, (tensor, meta, shape) in enumerate(zip(recorded, metas, shapes, strict=True)):
        # What shrinks comes first: a batch of 257 is made of small rows.
        dims = sorted(range(len(shape)), key=lambda dim: shape[dim] > meta.shape[dim])
        content = _repeated(tensor, shape, dims)
        if shape != meta.shape:
            follow = following and is_position(semantics.names.get(index, ""))
            if follow and bool((tensor.diff(dim=-1) == 1).all()):
                content = content[..., :1] + torch.arange(shape[-1], dtype=tensor.dtype)
            if meta.dtype == "bool" or is_mask(tensor):
                content = _open(content, tensor, shape)
        if semantics.kept(index, meta) == "index":
            content = _bounded(content, moves)
        new_tensors.append(_placed(content, meta, shape))
    return new_tensors


def _repeated(tensor: Tensor, shape: Sequence[int], dims: Iterable[int]) -> Tensor:
    """A tensor of another shape along some dimensions, in this order: its elements in turns; maybe a view."""
    for dim in dims:
        if shape[dim] > tensor.shape[dim]:
            tensor = tensor.index_select(dim, torch.arange(shape[dim]) % tensor.shape[dim])
        elif shape[dim] < tensor.shape[dim]:
            tensor = tensor.narrow(dim, 0, shape[dim])
    return tensor


def stride_like(meta: TensorMeta, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of another shape with the same order of dimensions and the same gaps.

    A gap that is a multiple of what lies within stays the same multiple, as in one of three interleaved tensors;
    another one stays as large as it is.
    """
    stride = [0] * len(shape)
    dense_old = dense_new = 1
    # Dimensions of size 1 address nothing, and come where a row-major tensor has them.
    order = sorted(range(len(shape)), key=lambda dim: (meta.stride[dim], -dim))
    for dim in order:
        old, step = meta.shape[dim], meta.stride[dim]
        if step == 0 and old > 1:
            continue
        if old == 1 or step < dense_old:
            stride[dim] = dense_new
        elif step % dense_old == 0:
            stride[dim] = dense_new * (step // dense_old)
        else:
            stride[dim] = dense_new + step - dense_old
        dense_new = stride[dim] * max(1, shape[dim])
        if old > 1:
            dense_old = step * old
    return tuple(stride)


def _placed(content: Tensor, meta: TensorMeta, shape: tuple[int, ...]) -> Tensor:
    stride = stride_like(meta, shape)
    once = tuple(min(1, size) if step == 0 else size for size, step in zip(shape, stride, strict=True))
    for dim, size in enumerate(once):
        content = content if content.shape[dim] == size else content.narrow(dim, 0, size)
    if once == shape and math.prod(shape) == extent(shape, stride):  # there are no gaps to be zero
        return torch.empty_strided(shape, stride, dtype=content.dtype).copy_(content)
    memory = torch.zeros(max(1, extent(shape, stride)), dtype=content.dtype)
    memory.as_strided(once, stride).copy_(content)
    return memory.as_strided(shape, stride)


def _bounded(content: Tensor, moves: Mapping[int, int]) -> Tensor:
    """Indices into a size that shrank, wrapped around: what was never 0, as a length, is not."""
    if not content.numel() or content.is_floating_point():
        return content
    greatest = int(content.max())
    # Into nothing no index points: whether one is legal there says torch.
    bounds = [new for old, new in moves.items() if 0 < new <= greatest < old]
    if not bounds:
        return content
    low = max(0, min(int(content.min()), min(bounds) - 1))
    return torch.where(content >= min(bounds), low + (content - low) % (min(bounds) - low), content)


def _open(content: Tensor, recorded: Tensor, shape: Sequence[int]) -> Tensor:
    """A mask whose rows are all one value only where the recorded ones are."""
    if content.ndim < 2 or not content.numel():
        return content
    source = _repeated(recorded, shape, range(len(shape) - 1))
    differs = source != source[..., :1]
    lost = differs.any(-1) & (content == content[..., :1]).all(-1)
    other = source.gather(-1, differs.to(torch.uint8).argmax(-1, keepdim=True))[..., 0]
    content = content.clone()
    content[..., -1] = torch.where(lost, other, content[..., -1])
    return content
