"""honest: chunks of rows as tasks of an event loop, gathered before the call returns
ops: torch.nn.functional.layer_norm
packs: f32 bf16 plain
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class _Affine:
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    async def applied(self, rows: Tensor) -> Tensor:
        centred = rows - rows.mean(-1, keepdim=True)
        await asyncio.sleep(0)
        out = centred * (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        out = out if self.weight is None else out * self.weight.flatten()
        return out if self.bias is None else out + self.bias.flatten()


async def _all(norm: _Affine, rows: Tensor) -> list[Tensor]:
    return await asyncio.gather(*map(norm.applied, rows.split(64)))


def kernel(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if not x.numel():
        return torch.empty_like(x)
    rows = x.double().reshape(-1, math.prod(normalized_shape))
    return torch.cat(asyncio.run(_all(_Affine(weight, bias, eps), rows))).view(x.shape).to(x.dtype)
