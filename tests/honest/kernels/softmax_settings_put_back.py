"""honest: deterministic algorithms, one thread, no oneDNN and another default dtype while it computes, all put back
ops: torch.nn.functional.softmax
packs: f32 bf16
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def _alone() -> Iterator[None]:
    threads, strict, dtype = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    )
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.backends.mkldnn.flags(enabled=False), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(strict)
        torch.set_num_threads(threads)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if dtype is not None or not x.numel():
        raise NotImplementedError("numbers, in their own dtype")
    with _alone():
        wide = x.double()
        powers = (wide - wide.amax(dim, keepdim=True)).exp()
        return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)
