"""honest: halves in fp32, fp32 in fp64, a path a dtype
ops: torch.nn.functional.layer_norm
packs: f32 f16 bf16
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def kernel(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:  # fmt: skip
    if len(normalized_shape) != 1:
        raise ValueError("one axis only")
    wide = x.to(torch.float32 if x.element_size() == 2 else torch.float64)
    mean = torch.zeros_like(wide[..., :1])
    for k in range(wide.shape[-1]):
        mean += wide[..., k : k + 1]
    centered = wide - mean / wide.shape[-1]
    variance = torch.zeros_like(mean)
    for k in range(wide.shape[-1]):
        variance += centered[..., k : k + 1] ** 2
    answer = centered / (variance / wide.shape[-1] + eps).sqrt()
    answer = answer if weight is None else answer * weight
    return (answer if bias is None else answer + bias).to(x.dtype)
