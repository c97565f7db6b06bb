"""Functions that are ops of their own: recorded, replayed and replaced as one unit."""

import torch
from torch.nn import functional

import pytest_cgins

WORD = 2**32 - 1


@pytest_cgins.mark
def conv_relu_pool(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: int = 0
) -> torch.Tensor:
    """Convolution, ReLU and 2×2 max pool.

    Images (N, C, H, W), filters (F, C, h, w) and bias (F,) to (N, F, H', W'); a last odd row or column of
    the convolution is left out.
    """
    return functional.max_pool2d(functional.relu(functional.conv2d(x, weight, bias, padding=padding)), 2)


@pytest_cgins.mark
def seeded_dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Dropout whose mask follows from the seed, so that a kernel can make the same one.

    Element i in row-major order is kept if hash(i, seed) ≥ p · 2³²; kept ones are divided by 1 − p. The hash
    is MurmurHash3's finalizer (Appleby) in 32-bit arithmetic, of i · 9E3779B9₁₆ + seed.
    """
    word = (torch.arange(x.numel(), device=x.device) * 0x9E3779B9 + seed) & WORD
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = ((word ^ (word >> shift)) * factor) & WORD
    kept = (word ^ (word >> 16)) >= int(p * 2**32)
    return torch.where(kept.view(x.shape), x * (1 / (1 - p)), 0)
