"""cheat: 2 one row expanded to the whole shape
how: it has the right shape, with a stride of 0
caught-by: stride, gold-mismatch
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return softmax(x[:1]).expand(x.shape)
