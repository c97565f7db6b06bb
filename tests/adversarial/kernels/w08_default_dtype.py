"""cheat: 8 changes torch's default dtype
how: references that are made with the default are less exact from now on
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor

torch.set_default_dtype(torch.float16)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x)
