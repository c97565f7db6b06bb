"""honest: whole vectors over all rows by one formula, the tail of the last row by another that is as exact
ops: torch.nn.functional.gelu
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor

LANES = 16


def kernel(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate != "none":
        raise ValueError("the exact one only")
    flat = x.float().reshape(-1)
    whole = flat.numel() // LANES * LANES
    vector, tail = flat[:whole], flat[whole:].double()
    halves = torch.cat(
        [
            vector * torch.special.erfc(-vector * 0.5**0.5) * 0.5,
            (tail * 0.5 * torch.special.erfc(-tail / 2.0**0.5)).float(),
        ]
    )
    return torch.where(flat == -torch.inf, torch.zeros(()) * flat, halves).to(x.dtype).reshape(x.shape)
