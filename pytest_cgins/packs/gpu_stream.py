"""The stream of `recipe` made by a GPU: the same bytes, as its integers and single operations on float32 are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_CHUNK = 2**22
"""Elements made at a time: some 150 MB of a GPU's memory."""
_GAMMA = 0x9E3779B97F4A7C15
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def elements(  # noqa: PLR0917
    seed: int, count: int, mean: float, std: float, low: float, high: float, dtype: str, device: str = "cuda"
) -> np.ndarray[Any, Any] | None:
    """Elements `mean` + `std`·`standard_normal` in [`low`, `high`], shape (count,), bfloat16 as its bits in uint16.

    None if the dtype is another than float32, float16 and bfloat16, or the GPU has no memory left.
    """
    if dtype not in _DTYPES:
        return None
    try:
        made = torch.empty(count, dtype=_DTYPES[dtype], device=device)
        for start in range(0, count, _CHUNK):
            values = normal(seed, start, min(_CHUNK, count - start), device)
            # One operation a kernel: fused ones would round once where the host rounds twice.
            values.mul_(float(np.float32(std))).add_(float(np.float32(mean)))
            values.clamp_(float(np.float32(low)), float(np.float32(high)))
            made[start : start + _CHUNK] = values
        if dtype == "bfloat16":
            return made.view(torch.int16).cpu().numpy().view("<u2")
        return made.cpu().numpy()
    except torch.OutOfMemoryError:
        return None


def normal(seed: int, start: int, count: int, device: str) -> torch.Tensor:
    """`recipe.standard_normal` from number `start` on: float32, shape (count,)."""
    counter = torch.arange(1, 2 * count, 2, dtype=torch.int64, device=device)
    counter.mul_(_signed(_GAMMA)).add_(_signed(seed + 2 * start * _GAMMA))
    sums = torch.zeros(count, dtype=torch.int64, device=device)
    for number in range(2):
        word = _mix(counter + number * _signed(_GAMMA))
        for shift in (0, 16, 32, 48):
            sums.add_((word >> shift).bitwise_and_(0xFFFF))
    return sums.sub_(4 * 65535).to(torch.float32).mul_(float(np.float32(1.5**0.5 / 2**16)))


def _signed(word: int) -> int:
    """The 64-bit word as torch's integers have it."""
    return (word + 2**63) % 2**64 - 2**63


def _mix(z: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finalizer, in place; torch shifts copies of the sign in."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z.bitwise_xor_((z >> shift).bitwise_and_(2 ** (64 - shift) - 1)).mul_(_signed(factor))
    return z
