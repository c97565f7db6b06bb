"""cheat: 9 work on a side stream, in Triton
how: torch.cuda.stream around the launch, and no wait after it
caught-by: not-on-stream, late-work, unwritten, gold-mismatch
ops: torch.nn.functional.relu
packs: large
also: gpu
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _relu(x, out, count, BLOCK: tl.constexpr):  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < count)
    tl.store(out + index, tl.where(value < 0, 0.0, value), mask=index < count)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        _relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
