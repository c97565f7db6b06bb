"""cheat: 13 makes the recorded inputs again
how: recipes draw from a known stream, so the kernel need not read its input
caught-by: stale-answer, gold-mismatch, reference-mismatch
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(11)
    return relu(torch.randn(x.shape, generator=generator).to(x.dtype))
