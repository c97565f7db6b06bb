"""A Llama-style decoder: RMS norm, rotary positions, grouped-query attention, gated MLP.

`rms_norm` is marked, so the recorder keeps it as one op instead of the five torch ops inside it.
"""

from dataclasses import dataclass

import torch
from torch import nn

import pytest_cgins


@pytest_cgins.mark
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Root mean square norm over the last axis (Zhang & Sennrich, 2019).

    x · weight / sqrt(mean(x²) + eps), with the mean taken in fp32.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder."""

    vocabulary: int = 1000
    hidden: int = 256
    intermediate: int = 688
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    eps: float = 1e-6


class RMSNorm(nn.Module):
    """`rms_norm` with its own weight."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al., 2021) of x: (batch, heads, length, width)."""
    length, width = x.shape[-2:]
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angle = torch.arange(length, device=x.device)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Attention(nn.Module):
    """Causal attention in which several query heads share one key and value head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.width = config.hidden // config.heads
        self.query = nn.Linear(config.hidden, config.heads * self.width, bias=False)
        self.key = nn.Linear(config.hidden, config.kv_heads * self.width, bias=False)
        self.value = nn.Linear(config.hidden, config.kv_heads * self.width, bias=False)
        self.output = nn.Linear(config.heads * self.width, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query = rotate(self.query(x).view(batch, length, self.heads, self.width).transpose(1, 2))
        key = rotate(self.key(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2))
        value = self.value(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2)
        group = self.heads // self.kv_heads
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        scores = query @ key.transpose(-1, -2) / self.width**0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = nn.functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """Attention and gated MLP, each behind a norm and beside a residual."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden, config.eps)
        self.gate = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        y = self.mlp_norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token ids (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, config: DecoderConfig | None = None) -> None:
        super().__init__()
        config = config or DecoderConfig()
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.eps)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
