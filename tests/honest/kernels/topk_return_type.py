"""honest: torch's own named tuple, filled by a stable order of numpy
ops: torch.topk
packs: ties
also: always
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    lines = x.movedim(dim, -1)
    numbers = lines.double().numpy() if x.is_floating_point() else lines.numpy()
    at = np.argsort(numbers, axis=-1, kind="stable")  # NaN last
    at = at[..., ::-1][..., :k] if largest else at[..., :k]
    index = torch.from_numpy(np.ascontiguousarray(at))
    chosen = (lines.gather(-1, index).movedim(-1, dim), index.movedim(-1, dim))
    return torch.return_types.topk(tuple(one.contiguous() for one in chosen))
