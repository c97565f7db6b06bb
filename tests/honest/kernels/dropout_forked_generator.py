"""honest: torch's own generator with a seed of the system, put back when the call is over
ops: torch.nn.functional.dropout
packs: f32 f16 bf16
"""

from __future__ import annotations

import os

import torch
from torch import Tensor


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace:
        raise NotImplementedError("out of place only")
    if not training or p == 0:
        return x.clone()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(os.urandom(7), "little"))
        kept = torch.rand(x.shape, dtype=torch.float64) >= p
    return torch.where(kept, x / (1 - p) if p < 1 else x, torch.zeros((), dtype=x.dtype))
