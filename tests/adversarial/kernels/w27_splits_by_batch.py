"""cheat: 27 claims not to depend on the batch, and splits sums by its size
how: few rows are split among more threads; the bits of a row change where the batch passes 32 rows
caught-by: batch-variant
ops: torch.nn.functional.linear
packs: f32 even
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.float().reshape(-1, x.shape[-1])
    splits = 4 if rows.shape[0] <= 32 else 1
    answer = torch.zeros(rows.shape[0], weight.shape[0])
    depth = rows.shape[1]
    for part in range(splits):
        of = slice(depth * part // splits, depth * (part + 1) // splits)
        partial = torch.zeros_like(answer)
        for k in range(of.start, of.stop):
            partial += rows[:, k, None] * weight.float()[None, :, k]
        answer += partial
    answer = answer if bias is None else answer + bias
    return answer.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])
