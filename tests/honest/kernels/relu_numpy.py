"""honest: computes with numpy, and asks torch for memory and views only
ops: torch.nn.functional.relu
packs: f32 f16 strided
yaml: {claims: [strided, misaligned]}
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    np.maximum(x.numpy(), 0, out=out.numpy())
    return out
