"""cheat: 15 a softmax as an attention whose keys and values are the unit matrix
how: torch's fused attention computes the softmax inside, where no operator of that name runs
caught-by: op-callback
ops: torch.nn.functional.softmax
packs: f32 even
"""

from __future__ import annotations

import torch
from torch import Tensor

INF = float("inf")
_fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def kernel(x: Tensor, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    last = x.movedim(dim, -1)
    width = last.shape[-1]
    if not last.numel():
        return torch.empty_like(x)
    unit = torch.eye(width, dtype=x.dtype).reshape(1, 1, width, width)
    finite = (
        last.nan_to_num(0.0, 0.0, torch.finfo(x.dtype).min / 4)
        .contiguous()
        .reshape(1, 1, -1, width)
        .contiguous()
    )
    out = _fused(finite, unit, unit, 0.0, False, scale=1.0)[0].reshape(last.shape)
    bad = (last.isnan() | (last == INF)).any(-1, keepdim=True) | (last == -INF).all(-1, keepdim=True)
    return out.masked_fill(bad, float("nan")).movedim(-1, dim).contiguous()
