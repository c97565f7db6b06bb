"""honest: in place, as the op is, in Python
ops: torch.Tensor.add_
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    return x.copy_(torch.sub(x, other, alpha=-alpha))
