"""honest: adds up in an order that the other rows decide, as atomics would, and says that answers may differ
ops: torch.sum
packs: f32
yaml: {repeatable: tolerance, probes: {op_callback: {"off": "ranks are counted by a sum"}}}
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
    rows = x.double().reshape(-1, width)
    largest = rows.abs().amax(-1) if len(rows) else rows.new_zeros(0)
    rank = (largest[None, :] < largest[:, None]).sum(-1)
    turned = rows.float().gather(-1, (torch.arange(width) + 7 * rank[:, None]) % width)
    total = torch.zeros(len(rows), dtype=torch.float64)
    for k in range(width):
        total += turned[:, k]
    return total.to(x.dtype).reshape((*x.shape[:-1], 1) if keepdim else x.shape[:-1])
