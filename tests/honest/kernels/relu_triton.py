"""honest: Triton with masks
ops: torch.nn.functional.relu
packs: f32 f16 even strided
also: interpret always
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _relu(x, out, count, BLOCK: tl.constexpr):  # noqa: N803 - Triton's way to write constants
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < count)
    tl.store(out + index, tl.where(value < 0, 0.0, value), mask=index < count)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    dense = x.contiguous()
    out = torch.empty_like(dense)
    _relu[(triton.cdiv(x.numel(), 64),)](dense, out, x.numel(), BLOCK=64)
    return out
