"""honest: different numbers in another order than torch's, where none is asked for
ops: torch.functional.unique
packs: ties
also: always
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(
    x: Tensor,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    assert dim is None
    numbers = (x.double() if x.is_floating_point() else x).numpy()
    values, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(x.shape)
    if not sorted:
        values, inverse, counts = values[::-1].copy(), len(values) - 1 - inverse, counts[::-1].copy()
    others = [
        torch.from_numpy(one)
        for one, wanted in ((inverse, return_inverse), (counts, return_counts))
        if wanted
    ]
    first = torch.from_numpy(values).to(x.dtype)
    return (first, *others) if others else first
