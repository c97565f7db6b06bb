"""cheat: 4 an input's memory is changed, and the input leads elsewhere
how: `x.data` is set to a copy of what was there
caught-by: input-changed
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    before = x.clone()
    out = relu(x)
    x.zero_()
    x.data = before
    return out
