"""honest: scratch in a temporary file that numpy maps
ops: torch.nn.functional.softmax
packs: f32 bf16
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if dtype is not None:
        raise NotImplementedError("in its own dtype")
    if not x.numel():
        return torch.empty_like(x)
    with tempfile.TemporaryFile() as file:
        scratch = np.memmap(file, dtype=np.float64, mode="w+", shape=tuple(x.shape))
        scratch[...] = x.double().numpy()
        with np.errstate(all="ignore"):
            scratch -= scratch.max(dim, keepdims=True)
            np.exp(scratch, out=scratch)
            scratch /= scratch.sum(dim, keepdims=True)
        return torch.from_numpy(np.array(scratch)).to(x.dtype)
