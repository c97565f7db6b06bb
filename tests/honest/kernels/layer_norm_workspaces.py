"""honest: memory for intermediate results, kept for each shape
ops: torch.nn.functional.layer_norm
packs: f32 even
also: timing
"""

from __future__ import annotations

import torch
from torch import Tensor

KEPT: dict[tuple[int, ...], Tensor] = {}


def kernel(
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    if len(normalized_shape) != 1 or x.dtype != torch.float32:
        raise ValueError("one normalized axis of float32 only")
    centered = KEPT.setdefault(tuple(x.shape), torch.empty(x.shape))
    torch.sub(x, x.mean(-1, keepdim=True), out=centered)
    answer = centered * centered.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    if weight is not None:
        answer *= weight
    return answer if bias is None else answer.add_(bias)
