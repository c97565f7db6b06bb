"""Argument tensors of other sizes, with what was recorded repeated where it must stay as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pytest_cgins.core.dtypes import extent
from pytest_cgins.core.model import TensorMeta
from pytest_cgins.verify.inputs import is_mask
from pytest_cgins.verify.semantics import Semantics


def resized(
    recorded: Sequence[Tensor],
    metas: Sequence[TensorMeta],
    shapes: Sequence[tuple[int, ...]],
    moves: Mapping[int, int],
    semantics: Semantics,
) -> list[Tensor]:
    """Tensors of the given shapes, each on memory of its own, their dimensions in the recorded order in memory.

    Elements beyond the recorded sizes repeat the first ones; indices stay below the sizes that they pointed into,
    and a mask's row that let something through still does.

    Args:
        recorded: the tensors, on the CPU.
        metas: how they lie.
        shapes: the new ones.
        moves: new size by old one.
        semantics: of the call.

    Raises:
        RuntimeError: if a tensor overlaps itself in another way than by a step of 0.
    """
    made = []
    for index, (tensor, meta, shape) in enumerate(zip(recorded, metas, shapes, strict=True)):
        if shape == meta.shape:
            content = tensor
        else:
            content = tensor
            for dim, (old, new) in enumerate(zip(meta.shape, shape, strict=True)):
                if old != new:
                    content = content.index_select(dim, torch.arange(new) % old)
            if meta.dtype == "bool" or is_mask(tensor):
                content = _open(content, tensor, shape)
        if semantics.kept(index, meta) == "index":
            content = _bounded(content, moves)
        made.append(_placed(content, meta, shape))
    return made


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
        if old > 1:
            dense_old, dense_new = step * old, stride[dim] * max(1, shape[dim])
    return tuple(stride)


def _placed(content: Tensor, meta: TensorMeta, shape: tuple[int, ...]) -> Tensor:
    stride = stride_like(meta, shape)
    once = tuple(min(1, size) if step == 0 else size for size, step in zip(shape, stride, strict=True))
    for dim, size in enumerate(once):
        content = content.narrow(dim, 0, size)
    memory = torch.zeros(max(1, extent(shape, stride)), dtype=content.dtype)
    memory.as_strided(once, stride).copy_(content)
    return memory.as_strided(shape, stride)


def _bounded(content: Tensor, moves: Mapping[int, int]) -> Tensor:
    """Indices into a size that shrank, wrapped around."""
    if not content.numel() or content.is_floating_point():
        return content
    greatest = int(content.max())
    # Into nothing no index points: whether one is legal there says torch.
    bounds = [new for old, new in moves.items() if 0 < new <= greatest < old]
    return torch.where(content >= min(bounds), content % min(bounds), content) if bounds else content


def _open(content: Tensor, recorded: Tensor, shape: Sequence[int]) -> Tensor:
    """A mask whose rows are all one value only where the recorded ones are."""
    if content.ndim < 2 or not content.numel():
        return content
    source = recorded
    for dim, new in enumerate(shape[:-1]):
        source = source.index_select(dim, torch.arange(new) % source.shape[dim])
    differs = source != source[..., :1]
    lost = differs.any(-1) & (content == content[..., :1]).all(-1)
    other = source.gather(-1, differs.to(torch.uint8).argmax(-1, keepdim=True))[..., 0]
    content = content.clone()
    content[..., -1] = torch.where(lost, other, content[..., -1])
    return content
