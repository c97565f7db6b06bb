"""What is kept of the argument tensors' storages in each tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from pytest_cgins.model import Blob, OpCall, Statistics, Storage
from pytest_cgins.trace.dtypes import GENERATED
from pytest_cgins.trace.gold import to_bytes
from pytest_cgins.trace.layout import Layout
from pytest_cgins.trace.recipe import fit, seed_of
from pytest_cgins.trace.statistics import summarize
from pytest_cgins.trace.values import tensor_indices

Tier = Literal["shapes", "recipe", "full"]
SMALL = 64 * 2**10
"""Bytes up to which tier `recipe` keeps the content of indices and masks."""

_PARAMETERS = frozenset({"weight", "bias", "gamma", "beta", "scale", "running_mean", "running_var"})


def describe(
    call: OpCall,
    tensors: Sequence[torch.Tensor],
    layout: Layout,
    tier: Tier,
    add: Callable[[memoryview], Blob],
) -> tuple[Storage, ...]:
    """Storages of a call's arguments as they are now, before the op may change them.

    Args:
        call: names the arguments.
        tensors: as they were passed.
        layout: of these tensors; its spans may be views.
        tier: what to keep.
        add: where bytes go.
    """
    names = {index: argument.name for argument in call.arguments for index in tensor_indices(argument.value)}
    storages = []
    for number, span in enumerate(layout.spans):
        index = next(i for i, meta in enumerate(layout.metas) if meta.storage == number)
        meta, tensor = layout.metas[index], tensors[index]
        if tier == "shapes" or not span.numel():
            storages.append(Storage(nbytes=span.numel(), dtype=meta.dtype))
        elif tier == "full" or _keeps_bytes(tensor, statistics := summarize(tensor), span.numel()):
            storages.append(Storage(nbytes=span.numel(), dtype=meta.dtype, blob=add(to_bytes(span))))
        else:
            seed = seed_of(call.op, names[index], meta.shape, meta.dtype)
            parameter = isinstance(tensor, torch.nn.Parameter) or names[index] in _PARAMETERS
            recipe = fit(statistics, meta.dtype, span.numel(), seed, parameter=parameter)
            storages.append(Storage(nbytes=span.numel(), dtype=meta.dtype, recipe=recipe))
    return tuple(storages)


def _keeps_bytes(tensor: torch.Tensor, statistics: Statistics, nbytes: int) -> bool:
    """Whether the very values matter, as those of indices and masks do."""
    if str(tensor.dtype).removeprefix("torch.") not in GENERATED:
        return True
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return nbytes <= SMALL
    # Additive masks hold -inf, or the least finite number in its place.
    if statistics.finite + statistics.nan < statistics.numel:
        return True
    extreme = max(abs(statistics.minimum), abs(statistics.maximum))
    if extreme >= torch.finfo(tensor.dtype).max / 2:
        return True
    if nbytes > SMALL:
        return False
    two_valued = statistics.minimum < statistics.maximum and tensor.numel() > 2 and _has_two_values(tensor)
    return statistics.nan > 0 or two_valued


def _has_two_values(tensor: torch.Tensor) -> bool:
    flat = tensor.detach().reshape(-1)
    return bool((torch.isclose(flat, flat[0]) | torch.isclose(flat, flat[flat != flat[0]][0])).all())
