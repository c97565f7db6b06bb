"""cheat: 15 a convolution of width 1 is a linear layer
how: calls conv1d, which is no matrix product by its name
caught-by: op-callback
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1], 1)
    return torch.conv1d(rows, weight[:, :, None], bias).reshape(*x.shape[:-1], weight.shape[0])
