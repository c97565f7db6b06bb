"""honest: row by row through a generator, in chunks that are rescaled as the maximum grows
ops: torch.nn.functional.softmax
packs: f32 f16 bf16
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def _chunks(x: Tensor, size: int) -> Iterator[Tensor]:
    for start in range(0, x.shape[-1], size):
        yield x[..., start : start + size].double()


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if dim not in (-1, x.ndim - 1):
        raise ValueError("the last axis only")
    top = x.double().amax(-1, keepdim=True)
    total = torch.zeros_like(top)
    for chunk in _chunks(x, 48):
        total += (chunk - top).exp().sum(-1, keepdim=True)
    return torch.cat([(chunk - top).exp() / total for chunk in _chunks(x, 48)], -1).to(x.dtype)
