"""honest: few rows are split among more threads, and no claim is made: bits change with the batch
ops: torch.nn.functional.linear
packs: f32 even
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.float().reshape(-1, x.shape[-1])
    splits = 4 if rows.shape[0] <= 32 else 1
    answer, depth = torch.zeros(rows.shape[0], weight.shape[0]), rows.shape[1]
    for part in range(splits):
        partial = torch.zeros_like(answer)
        for k in range(depth * part // splits, depth * (part + 1) // splits):
            partial += rows[:, k, None] * weight.float()[None, :, k]
        answer += partial
    answer = answer if bias is None else answer + bias
    return answer.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])
