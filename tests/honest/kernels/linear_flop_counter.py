"""honest: its own products and sums, a few columns at a time, under torch's counter of operations
ops: torch.nn.functional.linear
packs: f32 bf16 even plain
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

COUNTED: list[int] = []


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out = torch.empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float64)
    counter = FlopCounterMode(display=False)
    with counter:
        for first in range(0, weight.shape[0], 8):
            some = weight[first : first + 8].double()
            out[..., first : first + 8] = (x.double().unsqueeze(-2) * some).sum(-1)
        if bias is not None:
            out += bias
    COUNTED[:] = [counter.get_total_flops()]
    return out.to(x.dtype)
