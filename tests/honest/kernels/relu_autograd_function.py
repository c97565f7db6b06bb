"""honest: a torch.autograd.Function, as trained kernels are wrapped
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient * (context.saved_tensors[0] > 0)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return _Relu.apply(x)
