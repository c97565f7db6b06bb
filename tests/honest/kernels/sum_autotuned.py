"""honest: times its variants at the first call of a shape and keeps the choice
ops: torch.sum
packs: f32 f16 bf16
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor

_CHOSEN: dict[tuple[int, ...], int] = {}


def _by_blocks(x: Tensor, block: int) -> Tensor:
    """Sums of blocks are exact in fp64, so that the choice does not show."""
    total = x.new_zeros(x.shape[:-1]).double()
    for first in range(0, x.shape[-1], block):
        for column in x[..., first : first + block].double().unbind(-1):
            total += column
    return total


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def kernel(x: Tensor, dim: int, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    if keepdim or dim not in (-1, x.ndim - 1):
        raise ValueError("the last axis only, without keepdim")
    key = tuple(x.shape)
    if key not in _CHOSEN:
        _CHOSEN[key] = min((8, 64), key=lambda block: _seconds(lambda: _by_blocks(x, block)))
    return _by_blocks(x, _CHOSEN[key]).to(x.dtype)
