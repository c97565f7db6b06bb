"""honest: rows go by their greatest number, so that like ones share a tile, and come back to their positions
ops: torch.nn.functional.softmax
packs: f32 f16 bf16 even
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if dim not in (-1, x.ndim - 1) or dtype is not None or not x.numel():
        raise ValueError("the last axis only")
    rows = x.double().reshape(-1, x.shape[-1])
    order = torch.from_numpy(np.argsort(rows.nan_to_num().abs().amax(-1).numpy(), kind="stable"))
    answer = torch.empty_like(rows)
    for at in order.tolist():
        exponential = (rows[at] - rows[at].amax()).exp()
        answer[at] = exponential / exponential.sum()
    return answer.to(x.dtype).reshape(x.shape)
