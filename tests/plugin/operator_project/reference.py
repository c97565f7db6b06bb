"""What the operators compute, in torch."""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(out: Tensor, input: Tensor, weight: Tensor, epsilon: float) -> None:
    """`out` becomes the normed rows."""
    out.copy_(functional.rms_norm(input, input.shape[-1:], weight, epsilon))


def fused_add_rms_norm(input: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
    """`residual` becomes the sum, `input` its normed rows."""
    residual.add_(input)
    input.copy_(functional.rms_norm(residual, residual.shape[-1:], weight, epsilon))


def scaled_add(x: Tensor, y: Tensor, scale: float = 1.0, out: Tensor | None = None) -> Tensor:
    """x + scale·y."""
    return torch.add(x, y, alpha=scale, out=out)
