"""honest: dual numbers of torch.autograd.forward_ad
ops: torch.nn.functional.relu
packs: f32 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    wide = x.double()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(wide, torch.ones_like(wide))
        slope = forward_ad.unpack_dual(dual.clamp(min=0).square() / 2).tangent
    return torch.where(x.isnan(), x, slope.to(x.dtype))
