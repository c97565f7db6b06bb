"""Ops of inference in eight bits, as models write them; and the calls that kernels of them are gated on."""

from __future__ import annotations

import torch
from torch import Tensor

import pytest_cgins

E4M3_MAX, E5M2_MAX, INT8_MAX = 448.0, 57344.0, 127.0
LEAST_SCALE = 1e-12


@pytest_cgins.mark
def per_token(x: Tensor) -> tuple[Tensor, Tensor]:
    """A scale a row from its greatest magnitude."""
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / E4M3_MAX).clamp(min=LEAST_SCALE)
    return (wide / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


@pytest_cgins.mark
def per_block(x: Tensor) -> tuple[Tensor, Tensor]:
    """A scale for each 128 numbers of a row."""
    blocks = x.float().unflatten(-1, (-1, 128))
    scale = (blocks.abs().amax(-1) / E4M3_MAX).clamp(min=LEAST_SCALE)
    quantized = (blocks / scale[..., None]).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return quantized.flatten(-2), scale


@pytest_cgins.mark
def norm_quantize(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm in fp32, rounded to the input's dtype as models do, then a scale a row."""
    wide = x.float()
    normed = (
        (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype).float()
    )
    scale = (normed.abs().amax(-1, keepdim=True) / E4M3_MAX).clamp(min=LEAST_SCALE)
    return (normed / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


@pytest_cgins.mark
def int8_channels(w: Tensor) -> tuple[Tensor, Tensor]:
    """int8, with a scale for each row of a weight."""
    scale = (w.float().abs().amax(-1, keepdim=True) / INT8_MAX).clamp(min=LEAST_SCALE)
    return torch.round(w.float() / scale).clamp(-128, 127).to(torch.int8), scale


@pytest_cgins.mark
def int8_static(x: Tensor, scale: float) -> Tensor:
    """int8 with a scale that calibration chose: large numbers saturate."""
    return torch.clamp(torch.round(x.float() / scale), -128, 127).to(torch.int8)


@pytest_cgins.mark
def int8_scaled(x: Tensor, scale: Tensor) -> Tensor:
    """int8 with a scale in memory: of a power of two all is exact, ties included."""
    return torch.clamp(torch.round(x.float() / scale), -128, 127).to(torch.int8)


@pytest_cgins.mark
def e4m3_scaled(x: Tensor, scale: Tensor) -> Tensor:
    """float8_e4m3fn likewise."""
    return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


@pytest_cgins.mark
def uint8_affine(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """uint8 with a zero point."""
    return torch.clamp(torch.round(x.float() / scale) + zero_point, 0, 255).to(torch.uint8)


@pytest_cgins.mark
def e4m3_static(x: Tensor, scale: float) -> Tensor:
    """float8_e4m3fn with a scale that calibration chose."""
    return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


@pytest_cgins.mark
def e5m2_static(x: Tensor, scale: float) -> Tensor:
    """float8_e5m2, as gradients are kept."""
    return (x.float() / scale).clamp(-E5M2_MAX, E5M2_MAX).to(torch.float8_e5m2)


@pytest_cgins.mark
def e4m3_into(x: Tensor, scale: Tensor, out: Tensor) -> None:
    """Into memory that the caller has, as engines of inference do; a scale a row."""
    out.copy_((x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(out.dtype))


@pytest_cgins.mark
def dequantized_product(q: Tensor, scale: Tensor, w: Tensor) -> Tensor:
    """A quantised activation, with a scale a row, times a weight."""
    return (q.float() * scale) @ w


@pytest_cgins.mark
def uint8_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with a scale and a zero point of their own, which is rounded for itself."""
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-8)
    zero = torch.round(-low / scale)
    codes = (torch.round(x / scale) + zero).clamp(0, 255)
    return codes.to(torch.uint8), scale, zero.to(torch.uint8)


@pytest_cgins.mark
def e4m3_bytes(x: Tensor, scale: Tensor) -> Tensor:
    """As caches hold them: bytes of float8."""
    return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)


def run_calls() -> None:
    """One call of each op, two of those that models call in bf16 and in fp32."""
    draw = torch.Generator().manual_seed(11)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype)

    per_token(normal(24, 192, dtype=torch.bfloat16))
    per_block(normal(12, 384))
    norm_quantize(normal(24, 192, dtype=torch.bfloat16), normal(192, dtype=torch.bfloat16), 1e-6)
    int8_channels(normal(24, 192))
    int8_static(normal(24, 192), 0.02)
    int8_scaled(normal(24, 192), torch.tensor([0.02]))
    e4m3_scaled(normal(24, 192, dtype=torch.bfloat16), torch.tensor([0.004]))
    uint8_affine(normal(24, 192), 0.02, 117)
    e4m3_static(normal(24, 192), 0.004)
    e5m2_static(normal(24, 192, dtype=torch.bfloat16), 0.00003)
    x, scale = normal(20, 96), normal(20, 1).abs()
    dequantized_product((100 * x).to(torch.float8_e4m3fn), scale, normal(96, 40))
    x = normal(24, 192)
    e4m3_into(x, x.abs().amax(-1, keepdim=True) / E4M3_MAX, torch.zeros(24, 192).to(torch.float8_e4m3fn))
    uint8_rows(normal(24, 192))
    e4m3_scaled(normal(24, 192), torch.tensor([0.004]))
    e4m3_bytes(normal(24, 192), torch.tensor(1.0))
