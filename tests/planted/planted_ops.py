"""The op of the planted cases that torch does not have; copied beside their cgins.yaml."""

import torch

import pytest_cgins


@pytest_cgins.mark
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Root mean square norm over the last axis, the mean taken in fp32, the product with weight in x's type."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight
