"""What is kept of the argument tensors' storages in each tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from pytest_cgins.core.bitwise import E8M0, readable
from pytest_cgins.core.dtypes import GENERATED, LOWEST
from pytest_cgins.core.layout import Layout, dtype_name
from pytest_cgins.core.trace import Blob, OpCall, Statistics, Storage, tensor_indices
from pytest_cgins.packs.gold import to_bytes
from pytest_cgins.packs.recipe import Mask, fit, seed_of
from pytest_cgins.packs.statistics import summarize

Tier = Literal["shapes", "recipe", "full"]
SMALL = 64 * 2**10
"""Bytes up to which tier `recipe` keeps the content of indices, masks and tables."""
ARRANGED = 2**20
"""Bytes up to which it keeps integers whose order says something: others would repeat, and collide in a scatter."""
TABLES = frozenset({"cos", "sin", "freqs_cis", "sorted_sequence", "boundaries"})
"""Parameters whose values depend on each other: of angles of rotary positions the second half of a row often repeats
the first, and kernels read one half; what is searched must be in order."""

_ROW = 5
"""Numbers of which a row must have as many, to be in order for a reason."""
_PARAMETERS = frozenset({"weight", "bias", "gamma", "beta", "scale", "running_mean", "running_var"})


def names_of(call: OpCall) -> dict[int, str]:
    """Parameter name of each tensor argument, by its index."""
    return {index: argument.name for argument in call.arguments for index in tensor_indices(argument.value)}


def describe(
    op: str,
    names: Mapping[int, str],
    tensors: Sequence[torch.Tensor],
    layout: Layout,
    *,
    tier: Tier,
    add: Callable[[memoryview], Blob],
) -> tuple[Storage, ...]:
    """Storages of a call's arguments as they are now, before the op may change them; seeds depend on op and names.

    The layout is that of the tensors; its spans may be views.
    """
    storages = []
    for number, span in enumerate(layout.spans):
        index = next(i for i, meta in enumerate(layout.metas) if meta.storage == number)
        meta, tensor = layout.metas[index], tensors[index]
        if tier == "shapes" or not span.numel():
            storages.append(Storage(nbytes=span.numel(), dtype=meta.dtype))
        elif tier == "full" or (names[index] in TABLES and span.numel() <= SMALL):
            storages.append(Storage(nbytes=span.numel(), dtype=meta.dtype, blob=add(to_bytes(span))))
        else:
            seed = seed_of(op, names[index], meta.shape, meta.dtype)
            parameter = (
                isinstance(tensor, torch.nn.Parameter) or names[index].rpartition(".")[2] in _PARAMETERS
            )
            storages.append(_seeded(tensor, span, add, seed, parameter=parameter))
    return tuple(storages)


def _seeded(
    tensor: torch.Tensor, span: torch.Tensor, add: Callable[[memoryview], Blob], seed: int, *, parameter: bool
) -> Storage:
    """A recipe, or the bytes themselves where the very values matter."""
    dtype, nbytes = dtype_name(tensor.dtype), span.numel()
    statistics, mask = summarize(tensor), None
    if dtype in LOWEST and nbytes > SMALL and _has_mask(statistics, dtype):
        mask, values = _mask_of(span.view(tensor.dtype), LOWEST[dtype], add)
        statistics = summarize(values)
    elif dtype == "bool" and nbytes > SMALL:
        mask = Mask(_packed(span.view(torch.bool), add), "-inf")
    if _keeps_bytes(tensor, statistics, nbytes):
        return Storage(nbytes=nbytes, dtype=dtype, blob=add(to_bytes(span)))
    recipe = fit(statistics, dtype, seed, parameter=parameter, mask=mask)
    return Storage(nbytes=nbytes, dtype=dtype, recipe=recipe)


def _has_mask(statistics: Statistics, dtype: str) -> bool:
    """Whether -inf, or the least finite number in its place, is among the values."""
    infinite = statistics.numel - statistics.finite - statistics.nan
    return infinite > statistics.positive_infinite or statistics.minimum <= LOWEST[dtype] / 2


def _mask_of(
    values: torch.Tensor, lowest: float, add: Callable[[memoryview], Blob]
) -> tuple[Mask, torch.Tensor]:
    """The masked places of a storage's elements, and the elements that are not masked."""
    masked = values <= lowest / 2
    infinite = bool(torch.isneginf(values).any())
    return Mask(_packed(masked, add), "-inf" if infinite else "lowest"), values[~masked]


def _packed(bits: torch.Tensor, add: Callable[[memoryview], Blob]) -> Blob:
    return add(np.packbits(bits.cpu().numpy(), bitorder="little").data)


def _keeps_bytes(tensor: torch.Tensor, statistics: Statistics, nbytes: int) -> bool:
    """Whether the very values matter, as those of indices and masks do."""
    if dtype_name(tensor.dtype) not in GENERATED:
        return True
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return nbytes <= SMALL or (nbytes <= ARRANGED and _is_arranged(tensor))
    if tensor.dtype == E8M0:
        return nbytes <= SMALL or statistics.nan > 0
    # Additive masks hold -inf, or the least finite number in its place.
    if statistics.finite + statistics.nan < statistics.numel:
        return True
    extreme = max(abs(statistics.minimum), abs(statistics.maximum))
    # Of eight bits the greatest numbers are ordinary: each row that was quantised has one.
    if tensor.element_size() > 1 and extreme >= torch.finfo(tensor.dtype).max / 2:
        return True
    if nbytes > SMALL:
        return False
    two_valued = statistics.minimum < statistics.maximum and tensor.numel() > 2 and _has_two_values(tensor)
    return statistics.nan > 0 or two_valued or _rises(tensor)


def _is_arranged(tensor: torch.Tensor) -> bool:
    """Whether integers are all different, as those of a permutation, or ascend, as those of segments."""
    if tensor.dtype == torch.bool or tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return False
    flat = tensor.detach().reshape(-1)
    ordered = flat.sort().values
    return torch.equal(flat, ordered) or bool((ordered[1:] != ordered[:-1]).all())


def _rises(tensor: torch.Tensor) -> bool:
    """Whether real numbers never fall along the last axis, as those that are searched: others in their place would."""
    if not tensor.is_floating_point() or not tensor.ndim or tensor.shape[-1] < _ROW:
        return False
    numbers = readable(tensor)
    return bool((numbers.diff(dim=-1) >= 0).all()) and bool((numbers[..., 0] < numbers[..., -1]).all())


def _has_two_values(tensor: torch.Tensor) -> bool:
    flat = tensor.detach().reshape(-1)
    return bool(((flat == flat[0]) | (flat == flat[flat != flat[0]][0])).all())
