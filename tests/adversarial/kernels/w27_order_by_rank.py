"""cheat: 27 claims not to depend on the batch, and adds up in an order of the rows
how: rows are sorted by their size, and the sum of each begins where its rank says, as atomics would have it
caught-by: batch-variant, row-leak
ops: torch.sum
packs: f32
yaml: {claims: [batch_invariant], probes: {op_callback: {"off": "what is looked at is how rows depend on each other"}}}
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    axes = [dim] if isinstance(dim, int) else dim
    if axes not in ([-1], [x.ndim - 1]) or dtype is not None or not x.shape[-1]:
        raise ValueError("the last axis only")
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    largest = rows.abs().amax(-1) if len(rows) else rows.new_zeros(0)
    rank = (largest[None, :] < largest[:, None]).sum(-1)
    turned = rows.gather(-1, (torch.arange(width) + 7 * rank[:, None]) % width)
    total = torch.zeros(len(rows), dtype=x.dtype)
    for k in range(width):
        total += turned[:, k]
    return total.reshape((*x.shape[:-1], 1) if keepdim else x.shape[:-1])
