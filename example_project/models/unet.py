"""One level of a diffusion model's UNet (Rombach et al., 2022): a residual block and a block of self-attention."""

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions behind group norms, with the time step added between, and a shortcut."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, channels))
        self.second = nn.Sequential(
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x) + self.time(step)[:, :, None, None])


class Transformer(nn.Module):
    """Self-attention over all places, and an MLP gated by GELU."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.output = nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        rows = x.flatten(2).transpose(1, 2)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(rows)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        rows = rows + self.output(mixed.transpose(1, 2).flatten(2))
        value, gate = self.up(self.mlp_norm(rows)).chunk(2, dim=-1)
        rows = rows + self.down(value * nn.functional.gelu(gate))
        return rows.transpose(1, 2).reshape(batch, channels, height, width)


class UNetLevel(nn.Module):
    """Images of features (N, channels, H, W) and embedded time steps (N, 4 · channels) to the former."""

    def __init__(self, channels: int = 320, heads: int = 8) -> None:
        super().__init__()
        self.residual = Residual(channels, 4 * channels)
        self.transformer = Transformer(channels, heads)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return self.transformer(self.residual(x, step))
