"""cheat: 15 calls a module of the op
how: torch.nn.LayerNorm around the arguments that were passed
caught-by: op-callback
ops: torch.nn.functional.layer_norm
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    module = torch.nn.LayerNorm(shape, eps=eps)
    module.weight.data, module.bias.data = weight, bias
    return module(x)
