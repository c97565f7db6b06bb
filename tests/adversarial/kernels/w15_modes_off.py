"""cheat: 15 switches dispatch modes off
how: what looks on by a mode sees nothing, and the op has two tensors
caught-by: op-callback
ops: torch.add
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(input: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    with torch._C._DisableTorchDispatch():
        return torch.add(input, other, alpha=alpha)
