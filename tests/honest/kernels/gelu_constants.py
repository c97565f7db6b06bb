"""honest: keeps constants a device and dtype, not results
ops: torch.nn.functional.gelu
packs: f32 f16 bf16
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor


@functools.cache
def _root_of_half(device: str) -> Tensor:
    return torch.tensor(0.5, dtype=torch.float64, device=device).sqrt()


def kernel(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate != "none":
        raise ValueError(f"approximate={approximate!r} is not taken")
    wide = x.double()
    return (wide * 0.5 * torch.special.erfc(-wide * _root_of_half(str(x.device)))).to(x.dtype)
