"""Kernels of `packed_ops` that are right, however they compute: OP__HOW."""

from __future__ import annotations

import torch

BF16 = torch.bfloat16
TABLE = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _nibbles(packed):
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def _spread(values, length, size=32):
    return values.repeat_interleave(size, -1)[..., :length]


def _e2m1_by_bits(packed):
    """Exponent and mantissa, without a table."""
    code = _nibbles(packed).int()
    exponent, mantissa = (code >> 1) & 3, code & 1
    size = torch.where(exponent == 0, 0.5 * mantissa, (1 + 0.5 * mantissa) * torch.exp2(exponent.float() - 1))
    return torch.where(code > 7, -size, size)


def uint4_groups__dequantized_first(x, packed, scale, zero):
    codes = _nibbles(packed).int()
    k = codes.shape[1]
    weights = (codes - _spread(zero.int(), k)).float() * _spread(scale.float(), k)
    return (x.float() @ weights.t()).to(x.dtype)


def uint4_groups__groups_in_a_loop(x, packed, scale, zero):
    """Zero points are left out of the products, and taken off the sums."""
    codes, total = _nibbles(packed).float(), torch.zeros(x.shape[0], packed.shape[0])
    for group in range(scale.shape[1]):
        span = slice(32 * group, 32 * group + 32)
        part = (
            x[:, span].float() @ codes[:, span].t() - x[:, span].float().sum(1, keepdim=True) * zero[:, group]
        )
        total = total + part * scale[:, group].float()
    return total.to(x.dtype)


def uint4_linear__weights_rounded_to_bf16(x, packed, scale, zero):
    """Tensor cores take weights in the dtype of the activations: each is rounded once."""
    codes = _nibbles(packed).float()
    k = codes.shape[1]
    weights = ((codes - _spread(zero.float(), k)) * _spread(scale.float(), k)).to(x.dtype)
    return (x.float() @ weights.float().t()).to(x.dtype)


def int4_values__table(packed, scale):
    table = torch.tensor([*range(8), *range(-8, 0)], dtype=torch.float32)
    codes = table[_nibbles(packed.view(torch.uint8)).long()]
    return codes * _spread(scale, codes.shape[1])


def int4_values__exclusive_or(packed, scale):
    codes = (_nibbles(packed.view(torch.uint8)).int() ^ 8) - 8
    return codes * _spread(scale, codes.shape[1])


def int32_columns__division(x, qweight, qzeros, scales):
    words, zero_words = (each.long() & 0xFFFFFFFF for each in (qweight, qzeros))
    codes = torch.stack([(words // 16**i) % 16 for i in range(8)], 1).flatten(0, 1)
    zeros = torch.stack([(zero_words // 16**i) % 16 for i in range(8)], 2).flatten(1) + 1
    k = codes.shape[0]
    weights = (codes - zeros.repeat_interleave(32, 0)[:k]).float() * scales.float().repeat_interleave(32, 0)[
        :k
    ]
    return (x.float() @ weights).to(x.dtype)


def int32_columns__groups_in_a_loop(x, qweight, qzeros, scales):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    codes = ((qweight[:, None, :] >> shifts[:, None]) & 15).flatten(0, 1).float()
    zeros = ((qzeros[:, :, None] >> shifts) & 15).flatten(1).float() + 1
    total = torch.zeros(x.shape[0], qweight.shape[1])
    for group in range(scales.shape[0]):
        span = slice(32 * group, 32 * group + 32)
        total = total + (x[:, span].float() @ (codes[span] - zeros[group])) * scales[group].float()
    return total.to(x.dtype)


def mxfp8_values__exponent_bits(q, scale):
    codes = scale.view(torch.uint8)
    factors = torch.where(codes == 255, float("nan"), torch.ldexp(torch.ones(codes.shape), codes.int() - 127))
    return q.float() * _spread(factors, q.shape[-1])


def mxfp8_values__blocks(q, scale):
    return (q.float().unflatten(-1, (-1, 32)) * scale.float()[..., None]).flatten(-2)


def mxfp8_product__blocks_in_a_loop(a, scale_a, b, scale_b):
    total = torch.zeros(a.shape[0], b.shape[0])
    for block in range(scale_a.shape[1]):
        span = slice(32 * block, 32 * block + 32)
        part = a[:, span].float() @ b[:, span].float().t()
        total = total + part * scale_a[:, block, None].float() * scale_b[:, block].float()
    return total.to(BF16)


def mxfp8_product__as_bf16(a, scale_a, b, scale_b):
    """A number of e4m3 times a power of two is one of bf16."""
    k = a.shape[-1]
    wide_a, wide_b = ((q.float() * _spread(s.float(), k)).to(BF16) for q, s in ((a, scale_a), (b, scale_b)))
    return (wide_a.float() @ wide_b.float().t()).to(BF16)


def mxfp4_values__by_bits(packed, scale):
    codes = scale.int()
    factors = torch.where(codes == 255, float("nan"), torch.ldexp(torch.ones(codes.shape), codes - 127))
    values = _e2m1_by_bits(packed)
    return (values * _spread(factors, values.shape[-1])).to(BF16)


def mxfp4_values__blocks(packed, scale):
    codes = _nibbles(packed).long()
    sizes = TABLE.to(packed.device)[codes & 7]
    values = torch.where(codes > 7, -sizes, sizes).unflatten(-1, (-1, 32))
    factors = scale.view(torch.float8_e8m0fnu).float()
    return (values * factors[..., None]).flatten(-2).to(BF16)


def nvfp4_product__by_bits(x, packed, scale, whole_scale):
    values = _e2m1_by_bits(packed)
    weights = values * _spread(scale.float(), values.shape[-1], 16)
    return (x.float() @ weights.t() * whole_scale).to(x.dtype)


def nvfp4_product__weights_as_bf16(x, packed, scale, whole_scale):
    """e2m1 times e4m3 is exact in bf16."""
    values = _e2m1_by_bits(packed)
    weights = (values * _spread(scale.float(), values.shape[-1], 16)).to(BF16)
    return ((x.float() @ weights.float().t()) * whole_scale).to(x.dtype)


def uint4_linear__weights_in_fp32(x, packed, scale, zero):
    codes = _nibbles(packed).float()
    k = codes.shape[1]
    weights = (codes - _spread(zero.float(), k)) * _spread(scale.float(), k)
    return (x.float() @ weights.t()).to(x.dtype)


def uint4_pack__reciprocal(x, scale):
    codes = torch.clamp(torch.round(x * (1 / scale)) + 8, 0, 15).to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4


def uint4_pack__clamped_first(x, scale):
    codes = (torch.round((x / scale).clamp(-8, 7)) + 8).int()
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)


def mxfp8_quantize__exponent_bits(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    codes = (blocks.abs().amax(-1).view(torch.int32) >> 23) - 8
    codes = codes.clamp(min=0)
    factors = torch.ldexp(torch.ones(codes.shape), codes - 127)
    values = (blocks / factors[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    nan = blocks.isnan().any(-1)
    values = torch.where(nan[..., None], float("nan"), values.float()).to(torch.float8_e4m3fn)
    return values.flatten(-2), codes.to(torch.uint8).view(torch.float8_e8m0fnu)


def mxfp8_quantize__multiplies(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 8
    values = (blocks * torch.exp2(-exponents)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return values.flatten(-2), (exponents + 127).clamp(0, 254).to(torch.uint8).view(torch.float8_e8m0fnu)


def int4_pack__reciprocal(x, scale):
    values = x.float().unflatten(-1, (-1, 32)) * (1 / scale)[..., None]
    codes = torch.round(values).clamp(-8, 7).int().flatten(-2) & 15
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)


def int4_pack__fp64(x, scale):
    values = x.double() / scale.double().repeat_interleave(32, -1)
    codes = torch.round(values).clamp(-8, 7).to(torch.int32) + 16
    return ((codes[..., ::2] % 16) | ((codes[..., 1::2] % 16) << 4)).to(torch.uint8)


def int4_words__reciprocal(x, scale):
    codes = (x * (1 / scale)[:, None]).round().clamp(-8, 7).to(torch.int32) & 15
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
