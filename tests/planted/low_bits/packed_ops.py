"""Numbers of four and eight bits with scales of their blocks, dequantised as models do; and the calls of them."""

from __future__ import annotations

import torch
from torch import Tensor

import pytest_cgins

GROUP = 32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _nibbles(packed: Tensor) -> Tensor:
    """Two numbers of a byte, the lower half first."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def _spread(values: Tensor, length: int, size: int = GROUP) -> Tensor:
    """Numbers of groups, for each of their members; the last group may be a short one."""
    if values.shape[-1] != -(-length // size):
        raise ValueError(f"{values.shape[-1]} groups of {size} are not {length} numbers")
    return values.repeat_interleave(size, -1)[..., :length]


def _e2m1(packed: Tensor) -> Tensor:
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], device=packed.device)
    return table[_nibbles(packed).long()]


@pytest_cgins.mark
def uint4_groups(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """A product with weights of four bits; groups of 32 have a scale and a zero point."""
    codes = _nibbles(packed).float()
    k = codes.shape[1]
    weights = (codes - _spread(zero.float(), k)) * _spread(scale.float(), k)
    return (x.float() @ weights.t()).to(x.dtype)


@pytest_cgins.mark
def uint4_linear(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The same of models whose weights have the dtype of their activations once they are dequantised."""
    codes = _nibbles(packed).float()
    k = codes.shape[1]
    weights = ((codes - _spread(zero.float(), k)) * _spread(scale.float(), k)).to(x.dtype)
    return torch.nn.functional.linear(x, weights)


@pytest_cgins.mark
def uint4_pack(x: Tensor, scale: Tensor) -> Tensor:
    """Rounded to four bits with a zero point of 8 and a scale a row, two in a byte."""
    codes = torch.clamp(torch.round(x.float() / scale) + 8, 0, 15).to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4


@pytest_cgins.mark
def int4_pack(x: Tensor, scale: Tensor) -> Tensor:
    """Signed numbers in two's complement, a scale for 32 of a row."""
    blocks = x.float().unflatten(-1, (-1, GROUP)) / scale[..., None]
    codes = torch.clamp(torch.round(blocks), -8, 7).to(torch.int8).flatten(-2)
    return ((codes[..., ::2] & 15) | (codes[..., 1::2] << 4)).view(torch.uint8)


@pytest_cgins.mark
def mxfp8_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Float8 with the exponent of each block's greatest magnitude, less that of float8's own."""
    blocks = x.float().unflatten(-1, (-1, GROUP))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 8
    values = (blocks / torch.exp2(exponents)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    codes = (exponents + 127).clamp(0, 254).to(torch.uint8)
    return values.flatten(-2), codes.view(torch.float8_e8m0fnu)


@pytest_cgins.mark
def int4_values(packed: Tensor, scale: Tensor) -> Tensor:
    """Signed numbers of four bits in two's complement, two in each int8."""
    low, high = (packed << 4) >> 4, packed >> 4
    codes = torch.stack([low, high], -1).flatten(-2)
    return codes.float() * _spread(scale, codes.shape[1])


@pytest_cgins.mark
def int32_columns(x: Tensor, qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Tensor:
    """As GPTQ packs: eight numbers of a column in each int32, of zero points those of a row."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=qweight.device)
    codes = ((qweight[:, None, :] >> shifts[:, None]) & 15).flatten(0, 1)
    zeros = ((qzeros[:, :, None] >> shifts) & 15).flatten(1) + 1
    k = codes.shape[0]
    weights = (codes - _spread(zeros.t(), k).t()).float() * _spread(scales.float().t(), k).t()
    return (x.float() @ weights).to(x.dtype)


@pytest_cgins.mark
def mxfp8_values(q: Tensor, scale: Tensor) -> Tensor:
    """Blocks of 32 numbers of float8, with a power of two each."""
    return q.float() * _spread(scale.float(), q.shape[-1])


@pytest_cgins.mark
def mxfp8_product(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensor:
    """Rows of a with rows of b."""
    k = a.shape[-1]
    wide_a = a.float() * _spread(scale_a.float(), k)
    return (wide_a @ (b.float() * _spread(scale_b.float(), k)).t()).to(torch.bfloat16)


@pytest_cgins.mark
def mxfp4_values(packed: Tensor, scale: Tensor) -> Tensor:
    """Blocks of 32 numbers of e2m1, with the code of a power of two each."""
    codes = scale.float()
    factors = torch.where(codes == 255, float("nan"), torch.exp2(codes - 127))
    values = _e2m1(packed)
    return (values * _spread(factors, values.shape[-1])).to(torch.bfloat16)


@pytest_cgins.mark
def nvfp4_product(x: Tensor, packed: Tensor, scale: Tensor, whole_scale: float) -> Tensor:
    """Blocks of 16 numbers of e2m1, with a scale of e4m3 each and one for all of them."""
    values = _e2m1(packed)
    weights = values * _spread(scale.float(), values.shape[-1], 16) * whole_scale
    return (x.float() @ weights.t()).to(x.dtype)


@pytest_cgins.mark
def int4_words(x: Tensor, scale: Tensor) -> Tensor:
    """Signed numbers of rows, on their way into bytes in words."""
    codes = (x / scale[:, None]).round().clamp(-8, 7).to(torch.int32) & 15
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def run_calls() -> None:
    """One call of each op."""
    draw = torch.Generator().manual_seed(13)

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(*shape, generator=draw).to(dtype)

    def scale(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return (0.004 + 0.02 * torch.rand(*shape, generator=draw)).to(dtype)

    def integers(low: int, high: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.randint(low, high + 1, shape, generator=draw).to(dtype)

    byte, bf16, e4m3 = torch.uint8, torch.bfloat16, torch.float8_e4m3fn
    m, n, k = 16, 24, 112
    groups = -(-k // GROUP)
    zero, eight = integers(5, 10, (n, groups), byte), torch.full((n, groups), 8, dtype=byte)
    uint4_groups(normal(m, k), integers(0, 255, (n, k // 2), byte), scale(n, groups, dtype=bf16), zero)
    uint4_linear(normal(m, k), integers(0, 255, (n, k // 2), byte), scale(n, groups, dtype=bf16), zero)
    uint4_groups(normal(m + 1, k), integers(0, 255, (n, k // 2), byte), scale(n, groups, dtype=bf16), eight)
    rows = normal(n, 128, dtype=torch.float32)
    uint4_pack(rows, rows.abs().amax(-1, keepdim=True) / 7)
    halves = normal(n, 128)  # of few bits: many lie in the middle of two codes
    uint4_pack(halves, halves.float().abs().amax(-1, keepdim=True) / 7)
    int4_pack(halves, halves.float().unflatten(-1, (-1, GROUP)).abs().amax(-1) / 7)
    mxfp8_quantize(normal(n, 128))
    int4_values(integers(-128, 127, (n, k // 2), torch.int8), scale(n, groups))
    words = integers(-(2**31), 2**31 - 1, (128 // 8, 32), torch.int32)
    zeros = integers(-(2**31), 2**31 - 1, (128 // GROUP, 32 // 8), torch.int32)
    int32_columns(normal(m, 128, dtype=torch.float16), words, zeros, scale(4, 32, dtype=torch.float16))

    def e8m0(*shape: int) -> Tensor:
        return integers(118, 131, shape, byte).view(torch.float8_e8m0fnu)

    def payload(*shape: int) -> Tensor:
        return (80 * torch.randn(*shape, generator=draw)).clamp(-448, 448).to(e4m3)

    mxfp8_values(payload(n, 128), e8m0(n, 4))
    mxfp8_product(payload(m, 128), e8m0(m, 4), payload(n, 128), e8m0(n, 4))
    mxfp4_values(integers(0, 255, (n, 64), byte), integers(118, 131, (n, 4), byte))
    block_scales = (1 + 200 * torch.rand(n, 8, generator=draw)).to(e4m3)
    nvfp4_product(normal(m, 128), integers(0, 255, (n, 64), byte), block_scales, 0.0004)
    int4_words(rows, rows.abs().amax(-1) / 7)
