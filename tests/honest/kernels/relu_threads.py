"""honest: a pool of Python threads that lives on, and whose work is awaited
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

_POOL = ThreadPoolExecutor(2)


def _part(out: Tensor, x: Tensor) -> None:
    torch.where(x < 0, torch.zeros((), dtype=x.dtype), x, out=out)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty_like(x)
    list(_POOL.map(_part, out.unbind(0), x.unbind(0)))
    return out
