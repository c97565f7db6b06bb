"""honest: the mean of a shifted row first, then the variance about it, in double
ops: torch.nn.functional.layer_norm
packs: f32 f16 bf16
"""

from __future__ import annotations

from torch import Tensor


def kernel(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    rows = x.double().flatten(x.ndim - len(shape))
    centred = rows - rows.mean(-1, keepdim=True)
    out = (centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).view(x.shape)
    out = out if weight is None else out * weight.double()
    return (out if bias is None else out + bias.double()).to(x.dtype)
