"""cheat: 25 an output with gaps
how: the numbers are right, but they lie in every other element of a buffer, which the next op takes for dense
caught-by: stride
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    out = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])[..., ::2]
    return out.copy_(softmax(x, dim))
