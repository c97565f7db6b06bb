"""honest: writes by out= into memory that it allocated itself
ops: torch.nn.functional.softmax
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    wide, out = x.double(), torch.empty(x.shape, dtype=torch.float64)
    torch.sub(wide, wide.amax(dim, keepdim=True), out=out)
    out.exp_()
    out /= out.sum(dim, keepdim=True)
    return out.to(x.dtype)
