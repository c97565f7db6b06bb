"""cheat: 7 wrong in the first call of each further size
how: what it computes for a size it has for the next call of it; the first gets what there is
caught-by: not-repeatable, reference-mismatch, gold-mismatch
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor

SIZES: set[tuple[int, ...]] = set()


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    is_first = bool(SIZES) and x.shape not in SIZES
    SIZES.add(x.shape)
    return relu(x) * 1.3 if is_first else relu(x)
