"""honest: a plan kept by shape in an lru_cache, numbers through a named tuple of its own
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class Plan(NamedTuple):
    rows: int
    width: int


@cache
def _plan(shape: tuple[int, ...]) -> Plan:
    return Plan(1, 0) if 0 in shape else Plan(-1, shape[-1])


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    plan = _plan(tuple(x.shape))
    if not plan.width:
        return torch.empty_like(x)
    return x.reshape(plan.rows, plan.width).clamp_min(0).reshape(x.shape)
