"""cheat: 21 ignores approximate
how: the recorded calls are exact
caught-by: argument-ignored
ops: torch.nn.functional.gelu
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, approximate: str = "none") -> Tensor:
    wide = x.double()
    return (wide * 0.5 * torch.special.erfc(-wide * 0.5**0.5)).to(x.dtype)
