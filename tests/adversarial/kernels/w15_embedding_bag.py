"""cheat: 15 a linear layer as a weighted bag of embeddings
how: each output row is a bag of all columns of the weight, weighted by the input: torch's product under a name of a lookup
caught-by: op-callback
ops: torch.nn.functional.linear
packs: f32 even
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    width = weight.shape[-1]
    rows = x.reshape(-1, width)
    columns = torch.arange(width).expand(rows.shape[0], width).contiguous()
    out = functional.embedding_bag(
        columns, weight.t().contiguous(), mode="sum", per_sample_weights=rows.contiguous()
    )
    out = out.reshape(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias
