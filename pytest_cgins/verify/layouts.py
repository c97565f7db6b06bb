"""Probe `layouts`: what a kernel is said to take, the same numbers in other places of memory.

`claims: [strided, misaligned]` in cgins.yaml says that a kernel takes any strides, and any address. The expected
answers are those to the same numbers as they were recorded to lie, so that the sets cost no run of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.trace.layout import lay_out, rebuild
from pytest_cgins.verify.maker import InputSet
from pytest_cgins.verify.wishes import Wishes

NAME = "layouts"
MISALIGNED = "misaligned"
STRIDED = ("transposed", "every second element")


def sets(base: InputSet, wishes: Wishes) -> tuple[list[InputSet], str]:
    """The sets of what is claimed, or none and why; `base` is the set whose numbers and answers are taken."""
    names = [
        *(STRIDED if "strided" in wishes.claims else ()),
        *((MISALIGNED,) if "misaligned" in wishes.claims else ()),
    ]
    if not names:
        return [], "the kernel claims no other layouts (claims: [strided, misaligned] in cgins.yaml)"
    return [_placed(base, name) for name in names], ""


def _placed(base: InputSet, name: str) -> InputSet:
    tensors = rebuild(base.layout.metas, base.layout.spans, "cpu")
    metas = base.layout.metas
    storages = [meta.storage for meta in metas]
    for index, meta in enumerate(metas):
        # What aliases, overlaps itself or is changed in place lies as the op wants it.
        alone = storages.count(meta.storage) == 1 and index not in base.mutated
        expanded = any(step == 0 and size > 1 for size, step in zip(meta.shape, meta.stride, strict=True))
        if alone and not expanded and meta.shape and meta.numel:
            tensors[index] = _PLACES[name](tensors[index])
    return replace(base, layout=lay_out(tensors), expected=replace(base.expected, name=name), probe=NAME)


def _transposed(tensor: Tensor) -> Tensor:
    """Its dimensions in reverse order in memory; a vector with gaps."""
    if tensor.ndim == 1:
        return _every_second(tensor)
    order = list(reversed(range(tensor.ndim)))
    return tensor.permute(order).contiguous().permute(order)


def _every_second(tensor: Tensor) -> Tensor:
    """Row-major with step 2, between numbers that would be noticed."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 1, dtype=tensor.dtype)
    placed = wide[..., ::2]
    placed.copy_(tensor)
    return placed


def _misaligned(tensor: Tensor) -> Tensor:
    """The same strides, one element behind an aligned address."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    placed = torch.zeros(span + 1, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride(), 1)
    placed.copy_(tensor)
    return placed


_PLACES: Mapping[str, Callable[[Tensor], Tensor]] = {
    STRIDED[0]: _transposed,
    STRIDED[1]: _every_second,
    MISALIGNED: _misaligned,
}
