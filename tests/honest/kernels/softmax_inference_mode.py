"""honest: decorated with torch.inference_mode, so that its answer is an inference tensor
ops: torch.nn.functional.softmax
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.inference_mode()
def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    wide = x.to(torch.float64)
    powers = (wide - wide.amax(dim, keepdim=True)).exp_() if x.numel() else wide.clone()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype if dtype is None else dtype)
