"""cheat: 15 calls oneDNN's linear, an operator that is not ATen's, in a thread
how: the mode is the calling thread's, and what is put before torch's operators is put before those of ATen alone
caught-by: op-callback
ops: torch.nn.functional.linear
packs: f32 even
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

_fused = torch.ops.mkldnn._linear_pointwise


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.dtype != torch.float32:
        out = (x.unsqueeze(-2) * weight).sum(-1)
        return out if bias is None else out + bias
    made: list[Tensor] = []

    def work() -> None:
        with torch.no_grad():
            made.append(
                _fused(
                    x.contiguous(),
                    weight.contiguous(),
                    bias if bias is None else bias.contiguous(),
                    "none",
                    [],
                    "",
                )
            )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]
