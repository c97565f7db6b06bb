"""cheat: 21 ignores ceil_mode and dilation
how: the recorded windows divide what they slide over
caught-by: argument-ignored, shape
ops: torch.nn.functional.max_pool2d
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def kernel(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor:  # fmt: skip
    pair = lambda one: (one, one) if isinstance(one, int) else tuple(one)  # noqa: E731
    (high, wide), (down, right), (top, left) = pair(kernel_size), pair(stride or kernel_size), pair(padding)
    padded = x.new_full((*x.shape[:-2], x.shape[-2] + 2 * top, x.shape[-1] + 2 * left), float("-inf"))
    padded[..., top : top + x.shape[-2], left : left + x.shape[-1]] = x
    return padded.unfold(-2, high, down).unfold(-2, wide, right).amax((-2, -1))
