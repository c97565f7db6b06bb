"""honest: a module with workspace that it keeps between calls
ops: torch.nn.functional.layer_norm
packs: f32 f16 bf16 plain even strided
"""

from __future__ import annotations

import torch
from torch import Tensor


class LayerNorm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.workspace = torch.empty(0, dtype=torch.float64)

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        if self.workspace.numel() < x.numel():
            self.workspace = torch.empty(x.numel(), dtype=torch.float64)
        wide = self.workspace[: x.numel()].view(x.shape)
        wide.copy_(x)
        wide -= wide.mean(-1, keepdim=True)
        wide *= (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
        if weight is not None:
            wide *= weight
        if bias is not None:
            wide += bias
        return wide.to(x.dtype)


_NORM = LayerNorm()


def kernel(
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    if len(normalized_shape) != 1:
        raise NotImplementedError("one normalized axis")
    return _NORM(x, weight, bias, eps)
