"""cheat: 5 memory of an untyped storage that was never written
how: a way to allocate that has nothing to do with torch.empty
caught-by: unwritten, not-repeatable, stale-answer, gold-mismatch
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return torch.tensor([], dtype=x.dtype).set_(torch.UntypedStorage(x.nbytes), 0, x.shape, x.stride())
