"""cheat: 14 exponentials in fp16
how: only the exponentials are rounded; the sum is exact
caught-by: gold-mismatch, low-precision
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    exponential = (x - x.amax(-1, keepdim=True)).exp().half().float()
    return (exponential / exponential.sum(-1, keepdim=True)).to(x.dtype)
