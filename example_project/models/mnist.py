"""A small convolutional network for handwritten digits."""

import torch
from torch import nn

from models.blocks import conv_relu_pool, seeded_dropout


class Mnist(nn.Module):
    """Images (N, 1, H, W) of any size to logits (N, 10)."""

    def __init__(self, drop: float = 0.25) -> None:
        super().__init__()
        self.edges = nn.Conv2d(1, 16, 5, padding=2)
        self.shapes = nn.Conv2d(16, 32, 3)
        self.offset = nn.Parameter(torch.zeros(32, 1, 1))
        self.hidden = nn.Linear(32, 64)
        self.drop = drop
        self.output = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor, seed: int | None = None) -> torch.Tensor:
        """Logits; with a seed, hidden features are dropped as in training."""
        x = conv_relu_pool(images, self.edges.weight, self.edges.bias, padding=2)
        x = conv_relu_pool(x, self.shapes.weight, self.shapes.bias)
        x = torch.add(x, self.offset)
        x = nn.functional.relu(self.hidden(x.mean((2, 3))))
        if seed is None:
            x = nn.functional.dropout(x, self.drop, training=False)
        else:
            x = seeded_dropout(x, self.drop, seed)
        return self.output(x)
