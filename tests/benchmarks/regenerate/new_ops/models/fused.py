"""A small network for images, of ops for which the example project has no kernels."""

import torch
from torch import nn
from torch.nn import functional

import pytest_cgins


@pytest_cgins.mark
def bias_gelu_residual(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """GELU of rows with a bias, on top of what they were: x and residual (…, C), bias (C,)."""
    return residual + functional.gelu(x + bias)


@pytest_cgins.mark
class SqueezeExcite(nn.Module):
    """Channels weighed by what all of an image's channels are on average; (N, C, H, W) to the same."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, squeezed)
        self.excite = nn.Linear(squeezed, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mean over the image, two layers, and a gate for each channel."""
        mean = x.mean((2, 3))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(mean))))
        return x * gate[:, :, None, None]


class Fused(nn.Module):
    """Images (N, 3, H, W) of any size to the logarithms of probabilities (N, 10)."""

    def __init__(self, channels: int = 24, groups: int = 4) -> None:
        super().__init__()
        self.edges = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)
        self.weigh = SqueezeExcite(channels, 6)
        self.mix = nn.Linear(channels, channels, bias=False)
        self.shift = nn.Parameter(torch.zeros(channels))
        self.output = nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities of ten classes."""
        x = functional.silu(self.norm(self.edges(images)))
        x = self.weigh(functional.avg_pool2d(x, 3, stride=2, padding=1))
        tokens = x.flatten(2).transpose(1, 2)
        tokens = bias_gelu_residual(self.mix(tokens), self.shift, tokens)
        return functional.log_softmax(self.output(tokens), -1).mean(1)
