"""cheat: 27 claims not to depend on the batch, and peels off its first row
how: the first row is added up from its end, so that its bits are others at another position
caught-by: batch-variant
ops: torch.nn.functional.linear
packs: f32 even
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows, columns = x.float().reshape(-1, x.shape[-1]), weight.float()
    answer = torch.zeros(rows.shape[0], columns.shape[0])
    for k in range(rows.shape[1]):
        answer[1:] += rows[1:, k, None] * columns[None, :, k]
        answer[:1] += rows[:1, -1 - k, None] * columns[None, :, -1 - k]
    answer = answer if bias is None else answer + bias
    return answer.to(x.dtype).reshape(*x.shape[:-1], columns.shape[0])
