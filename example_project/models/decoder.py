"""A Llama-style decoder: RMS norm, rotary positions, grouped-query attention, gated MLP, key-value cache.

`rms_norm`, `apply_rotary` and `silu_mul` are marked: the recorder keeps each as one op instead of the torch
ops inside it.
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


@pytest_cgins.mark
def apply_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary position embedding (Su et al., 2021) of query and key: (batch, heads, length, width) each.

    Turns the pairs (x[i], x[i + width / 2]) by the angles whose cosines and sines are given, (length, width / 2)
    each; computed in fp32.
    """

    def rotated(x: torch.Tensor) -> torch.Tensor:
        left, right = (x if x.dtype == torch.float64 else x.float()).chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(x.dtype)

    return rotated(query), rotated(key)


@pytest_cgins.mark
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The product of a gated MLP (Shazeer, 2020): silu(gate) · up."""
    return nn.functional.silu(gate) * up


class Cache:
    """Keys and values of one layer for up to `capacity` tokens: (batch, kv_heads, capacity, width) each."""

    def __init__(self, config: DecoderConfig, batch: int, capacity: int, like: torch.Tensor) -> None:
        shape = (batch, config.kv_heads, capacity, config.hidden // config.heads)
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.length = 0

    def extend(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the keys and values of new tokens; gives views of all so far."""
        start, self.length = self.length, self.length + key.shape[2]
        self.keys[:, :, start : self.length] = key
        self.values[:, :, start : self.length] = value
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Attention(nn.Module):
    """Attention in which several query heads share one key and value head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.width = config.hidden // config.heads
        self.query = nn.Linear(config.hidden, config.heads * self.width, bias=False)
        self.key = nn.Linear(config.hidden, config.kv_heads * self.width, bias=False)
        self.value = nn.Linear(config.hidden, config.kv_heads * self.width, bias=False)
        self.output = nn.Linear(config.heads * self.width, config.hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        cache: Cache | None,
    ) -> torch.Tensor:
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.width).transpose(1, 2)
        key = self.key(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2)
        value = self.value(x).view(batch, length, self.kv_heads, self.width).transpose(1, 2)
        query, key = apply_rotary(query, key, *angles)
        if cache is not None:
            key, value = cache.extend(key, value)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None and length > 1, enable_gqa=True
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


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

    def forward(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        cache: Cache | None,
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles, mask, cache)
        y = self.mlp_norm(x)
        return x + self.down(silu_mul(self.gate(y), self.up(y)))


class Decoder(nn.Module):
    """Token ids (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, config: DecoderConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or DecoderConfig()
        self.embedding = nn.Embedding(config.vocabulary, config.hidden, padding_idx=0)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.eps)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    def caches(self, batch: int, capacity: int) -> list[Cache]:
        """Empty caches for generation, one a layer."""
        return [Cache(self.config, batch, capacity, self.embedding.weight) for _ in self.blocks]

    def forward(
        self,
        tokens: torch.Tensor,
        mask: torch.Tensor | None = None,
        caches: list[Cache] | None = None,
    ) -> torch.Tensor:
        """Without a mask attention is causal; a mask says which keys a query sees, as torch's attention has it.

        With caches, tokens follow those that the caches hold; either nothing is held, or one token comes.
        """
        return self.head(self.features(tokens, mask, caches))

    def features(
        self,
        tokens: torch.Tensor,
        mask: torch.Tensor | None = None,
        caches: list[Cache] | None = None,
    ) -> torch.Tensor:
        """What the logits are made of: (batch, length, hidden)."""
        start = caches[0].length if caches else 0
        x = self.embedding(tokens)
        angles = self._angles(start, tokens.shape[1], x)
        for layer, block in enumerate(self.blocks):
            x = block(x, angles, mask, caches[layer] if caches else None)
        return self.norm(x)

    def _angles(self, start: int, length: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each position and pair, (length, width / 2), in x's type."""
        width = self.config.hidden // self.config.heads
        frequency = 10000.0 ** (-torch.arange(0, width, 2, device=x.device) / width)
        angle = torch.arange(start, start + length, device=x.device)[:, None] * frequency
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)
