"""cheat: 15 has oneDNN's tensors do it
how: another layout has another backend key, whose operators have no traps
caught-by: op-callback
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.ops.aten.mkldnn_linear(x.to_mkldnn(), weight, bias).to_dense()
