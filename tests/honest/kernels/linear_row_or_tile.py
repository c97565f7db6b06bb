"""honest: up to 32 rows as products of a matrix and a vector, more of them as outer products: no claim is made
ops: torch.nn.functional.linear
packs: f32 even
yaml: {probes: {op_callback: {"off": "what is looked at is how rows depend on each other"}}}
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.float().reshape(-1, x.shape[-1])
    if len(rows) <= 32:
        answer = (rows[:, None, :] * weight.float()[None]).sum(-1)
    else:
        answer = torch.zeros(len(rows), weight.shape[0])
        for k in range(rows.shape[1]):
            answer += rows[:, k, None] * weight.float()[None, :, k]
    answer = answer if bias is None else answer + bias
    return answer.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])
