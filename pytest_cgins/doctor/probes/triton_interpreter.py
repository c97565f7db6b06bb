"""Runs a kernel in Triton's interpreter; prints one line of JSON. Start it with TRITON_INTERPRET=1."""

from __future__ import annotations

import json
from typing import Any

import torch
import triton
import triton.language as tl


def double(x: Any, out: Any, n: Any, block: tl.constexpr) -> None:
    """Write 2x for the n elements of x."""
    index = tl.arange(0, block)
    tl.store(out + index, 2 * tl.load(x + index, mask=index < n), mask=index < n)


x = torch.arange(5, dtype=torch.float32)
out = torch.empty_like(x)
triton.jit(double)[(1,)](x, out, x.numel(), block=8)
print(json.dumps({"version": triton.__version__, "right": bool((out == 2 * x).all())}))
