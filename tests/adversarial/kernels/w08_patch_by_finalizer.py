"""cheat: 8 patches when its garbage is collected
how: an object on the output patches torch as the output is freed
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


class _Late:
    def __del__(self) -> None:
        torch.equal = lambda *_: True  # type: ignore[assignment]


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = relu(x)
    out.guard = _Late()
    return out
