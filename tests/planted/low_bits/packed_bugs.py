"""Planted bugs in kernels of `packed_ops`: OP__BUG. None was changed after a gate had seen it."""

from __future__ import annotations

import torch

BF16 = torch.bfloat16
TABLE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def _nibbles(packed):
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


def _spread(values, length, size=32):
    return values.repeat_interleave(size, -1)[..., :length]


def _e2m1(nibbles, table=TABLE):
    return torch.tensor([*table, *(-value for value in table)])[nibbles.long()]


def _exponents(codes):
    codes = codes.float()
    return torch.where(codes == 255, float("nan"), torch.exp2(codes - 127))


def _uint4(x, codes, scale, zero):
    k = codes.shape[1]
    weights = (codes.float() - _spread(zero.float(), k)) * _spread(scale.float(), k)
    return (x.float() @ weights.t()).to(x.dtype)


def uint4_groups__nibbles_swapped(x, packed, scale, zero):
    return _uint4(x, torch.stack([packed >> 4, packed & 15], -1).flatten(-2), scale, zero)


def uint4_groups__halves_of_the_row(x, packed, scale, zero):
    """Lower halves first, then all the upper ones."""
    return _uint4(x, torch.cat([packed & 15, packed >> 4], -1), scale, zero)


def uint4_groups__group_of_the_neighbour(x, packed, scale, zero):
    return _uint4(x, _nibbles(packed), scale.roll(1, 1), zero)


def uint4_groups__zero_point_of_first_group(x, packed, scale, zero):
    return _uint4(x, _nibbles(packed), scale, zero[:, :1].expand(zero.shape))


def uint4_groups__zero_point_off_by_one(x, packed, scale, zero):
    return _uint4(x, _nibbles(packed), scale, zero + 1)


def uint4_groups__zero_point_eight(x, packed, scale, zero):
    """As where quantisation is symmetric."""
    return _uint4(x, _nibbles(packed), scale, torch.full_like(zero, 8))


def uint4_groups__zero_point_after_scale(x, packed, scale, zero):
    codes = _nibbles(packed).float()
    k = codes.shape[1]
    return (x.float() @ (codes * _spread(scale.float(), k) - _spread(zero.float(), k)).t()).to(x.dtype)


def uint4_groups__last_group_missing(x, packed, scale, zero):
    codes = _nibbles(packed)
    whole = codes.shape[1] // 32 * 32
    return _uint4(x[:, :whole], codes[:, :whole], scale, zero)


def uint4_groups__last_group_has_the_one_before(x, packed, scale, zero):
    groups = torch.arange(scale.shape[1]).clamp(max=max(packed.shape[1] * 2 // 32 - 1, 0))
    return _uint4(x, _nibbles(packed), scale[:, groups], zero[:, groups])


def uint4_groups__high_nibble_dropped(x, packed, scale, zero):
    return _uint4(x, torch.stack([packed & 15, (packed >> 4) & 7], -1).flatten(-2), scale, zero)


def int4_values__sign_extension_missing(packed, scale):
    codes = torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(-2)
    return codes.float() * _spread(scale, codes.shape[1])


def int4_values__low_nibble_unsigned(packed, scale):
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    return codes.float() * _spread(scale, codes.shape[1])


def int4_values__offset_eight(packed, scale):
    codes = torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(-2) - 8
    return codes.float() * _spread(scale, codes.shape[1])


def int4_values__sign_and_magnitude(packed, scale):
    codes = torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(-2)
    codes = torch.where(codes > 7, 8 - codes, codes)
    return codes.float() * _spread(scale, codes.shape[1])


def int4_values__minus_eight_is_zero(packed, scale):
    codes = torch.stack([(packed << 4) >> 4, packed >> 4], -1).flatten(-2)
    return torch.where(codes == -8, 0, codes).float() * _spread(scale, codes.shape[1])


def int4_values__groups_of_64(packed, scale):
    codes = torch.stack([(packed << 4) >> 4, packed >> 4], -1).flatten(-2)
    return codes.float() * _spread(scale, codes.shape[1], 64)


def int4_values__scale_in_bf16(packed, scale):
    codes = torch.stack([(packed << 4) >> 4, packed >> 4], -1).flatten(-2)
    return codes.float() * _spread(scale.to(BF16).float(), codes.shape[1])


def _columns(x, qweight, qzeros, scales, *, plus=1, shifts=(0, 4, 8, 12, 16, 20, 24, 28), zero_shifts=None):
    lots = torch.tensor(shifts, dtype=torch.int32)
    zero_lots = lots if zero_shifts is None else torch.tensor(zero_shifts, dtype=torch.int32)
    codes = ((qweight[:, None, :] >> lots[:, None]) & 15).flatten(0, 1)
    zeros = ((qzeros[:, :, None] >> zero_lots) & 15).flatten(1) + plus
    k = codes.shape[0]
    weights = (codes - _spread(zeros.t(), k).t()).float() * _spread(scales.float().t(), k).t()
    return (x.float() @ weights).to(x.dtype)


def int32_columns__plus_one_missing(x, qweight, qzeros, scales):
    return _columns(x, qweight, qzeros, scales, plus=0)


def int32_columns__interleaved(x, qweight, qzeros, scales):
    """The order in which AWQ packs."""
    return _columns(x, qweight, qzeros, scales, shifts=(0, 16, 4, 20, 8, 24, 12, 28))


def int32_columns__zeros_backward(x, qweight, qzeros, scales):
    return _columns(x, qweight, qzeros, scales, zero_shifts=(28, 24, 20, 16, 12, 8, 4, 0))


def int32_columns__wraps_at_sixteen(x, qweight, qzeros, scales):
    """A zero point of 15 becomes 0, not 16."""
    lots = torch.arange(0, 32, 4, dtype=torch.int32)
    codes = ((qweight[:, None, :] >> lots[:, None]) & 15).flatten(0, 1)
    zeros = (((qzeros[:, :, None] >> lots) & 15).flatten(1) + 1) & 15
    k = codes.shape[0]
    weights = (codes - _spread(zeros.t(), k).t()).float() * _spread(scales.float().t(), k).t()
    return (x.float() @ weights).to(x.dtype)


def int32_columns__sign_of_the_word(x, qweight, qzeros, scales):
    """The uppermost number is shifted in with the word's sign."""
    lots = torch.arange(0, 32, 4, dtype=torch.int32)
    codes = ((qweight[:, None, :] >> lots[:, None]) & 15).clone()
    codes[:, 7] = qweight >> 28
    codes = codes.flatten(0, 1)
    zeros = ((qzeros[:, :, None] >> lots) & 15).flatten(1) + 1
    k = codes.shape[0]
    weights = (codes - _spread(zeros.t(), k).t()).float() * _spread(scales.float().t(), k).t()
    return (x.float() @ weights).to(x.dtype)


def mxfp8_values__code_as_value(q, scale):
    return q.float() * _spread(scale.view(torch.uint8).float(), q.shape[-1])


def mxfp8_values__bias_128(q, scale):
    factors = torch.exp2(scale.view(torch.uint8).float() - 128)
    return q.float() * _spread(torch.where(scale.float().isnan(), float("nan"), factors), q.shape[-1])


def mxfp8_values__nan_scale_ignored(q, scale):
    return q.float() * _spread(torch.exp2(scale.view(torch.uint8).float() - 127), q.shape[-1])


def mxfp8_values__blocks_of_16(q, scale):
    return q.float() * _spread(scale.float(), q.shape[-1] // 2, 16).repeat(1, 2)[:, : q.shape[-1]]


def mxfp8_values__code_zero_is_zero(q, scale):
    """The least power of two is taken for zero, as a float's exponent 0 is."""
    codes = scale.view(torch.uint8).to(torch.int32) << 23
    factors = codes.view(torch.float32)
    return q.float() * _spread(torch.where(scale.float().isnan(), float("nan"), factors), q.shape[-1])


def mxfp8_product__scales_of_a_twice(a, scale_a, b, scale_b):
    k, rows = a.shape[-1], torch.arange(b.shape[0]) % a.shape[0]
    wide_b = b.float() * _spread(scale_a.float()[rows], k)
    return ((a.float() * _spread(scale_a.float(), k)) @ wide_b.t()).to(BF16)


def mxfp8_product__block_of_the_neighbour(a, scale_a, b, scale_b):
    k = a.shape[-1]
    wide_b = b.float() * _spread(scale_b.float().roll(1, 1), k)
    return ((a.float() * _spread(scale_a.float(), k)) @ wide_b.t()).to(BF16)


def mxfp8_product__sums_in_bf16(a, scale_a, b, scale_b):
    total = torch.zeros(a.shape[0], b.shape[0], dtype=BF16)
    for start in range(0, a.shape[1], 8):
        factor = scale_a.float()[:, start // 32, None] * scale_b.float()[:, start // 32]
        part = a[:, start : start + 8].float() @ b[:, start : start + 8].float().t()
        total = total + (part * factor).to(BF16)
    return total


def mxfp8_product__exponents_added_in_bytes(a, scale_a, b, scale_b):
    """The sum of two codes wraps at 256."""
    codes = scale_a.view(torch.uint8)[:, None] + scale_b.view(torch.uint8) - 127
    factors = torch.exp2(codes.float() - 127)
    nan = scale_a.float()[:, None].isnan() | scale_b.float().isnan()
    factors = torch.where(nan, float("nan"), factors)
    parts = torch.einsum("mgk,ngk->mng", a.float().unflatten(-1, (-1, 32)), b.float().unflatten(-1, (-1, 32)))
    return (parts * factors).sum(-1).to(BF16)


def mxfp4_values__nibbles_swapped(packed, scale):
    values = _e2m1(torch.stack([packed >> 4, packed & 15], -1).flatten(-2))
    return (values * _spread(_exponents(scale), values.shape[-1])).to(BF16)


def mxfp4_values__five_for_six(packed, scale):
    values = _e2m1(_nibbles(packed), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0])
    return (values * _spread(_exponents(scale), values.shape[-1])).to(BF16)


def mxfp4_values__subnormal_as_normal(packed, scale):
    """0.5 is the one subnormal number: without that it is 0.75."""
    values = _e2m1(_nibbles(packed), [0.0, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    return (values * _spread(_exponents(scale), values.shape[-1])).to(BF16)


def mxfp4_values__twos_complement(packed, scale):
    nibbles = _nibbles(packed).long()
    values = torch.tensor([*TABLE, *(-value for value in reversed(TABLE))])[nibbles]
    return (values * _spread(_exponents(scale), values.shape[-1])).to(BF16)


def mxfp4_values__bias_128(packed, scale):
    values = _e2m1(_nibbles(packed))
    return (values * _spread(_exponents(scale) / 2, values.shape[-1])).to(BF16)


def mxfp4_values__nan_scale_ignored(packed, scale):
    values = _e2m1(_nibbles(packed))
    return (values * _spread(torch.exp2(scale.float() - 127), values.shape[-1])).to(BF16)


def mxfp4_values__blocks_of_16(packed, scale):
    values = _e2m1(_nibbles(packed))
    factors = _spread(_exponents(scale), values.shape[-1] // 2, 16).repeat(1, 2)
    return (values * factors[:, : values.shape[-1]]).to(BF16)


def mxfp4_values__recorded_exponents(packed, scale):
    """Knows the exponents that were recorded, and no others."""
    values = _e2m1(_nibbles(packed))
    return (values * _spread(_exponents(scale.clamp(118, 131)), values.shape[-1])).to(BF16)


def _nvfp4(x, values, scale, whole_scale, size=16):
    weights = values * _spread(scale.float(), values.shape[-1], size) * whole_scale
    return (x.float() @ weights.t()).to(x.dtype)


def nvfp4_product__whole_scale_forgotten(x, packed, scale, whole_scale):
    return _nvfp4(x, _e2m1(_nibbles(packed)), scale, 1.0)


def nvfp4_product__blocks_of_32(x, packed, scale, whole_scale):
    scale = scale.float()[:, ::2]
    return _nvfp4(x, _e2m1(_nibbles(packed)), scale, whole_scale, 32)


def nvfp4_product__scale_as_exponent(x, packed, scale, whole_scale):
    """As MXFP4's."""
    factors = torch.exp2(scale.view(torch.uint8).float() - 127)
    return _nvfp4(x, _e2m1(_nibbles(packed)), factors, whole_scale)


def nvfp4_product__nibbles_swapped(x, packed, scale, whole_scale):
    return _nvfp4(x, _e2m1(torch.stack([packed >> 4, packed & 15], -1).flatten(-2)), scale, whole_scale)


def nvfp4_product__sign_of_scale_lost(x, packed, scale, whole_scale):
    """The scale's exponent and mantissa as those of e5m3 without a sign, all of them twice as large from 128 on."""
    factors = torch.where(scale.float() >= 128, scale.float() * 2, scale.float())
    return _nvfp4(x, _e2m1(_nibbles(packed)), factors, whole_scale)


def nvfp4_product__table_in_steps(x, packed, scale, whole_scale):
    values = _e2m1(_nibbles(packed), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
    return _nvfp4(x, values, scale, whole_scale)


def uint4_linear__nibbles_swapped(x, packed, scale, zero):
    return _uint4(x, torch.stack([packed >> 4, packed & 15], -1).flatten(-2), scale, zero)


def uint4_linear__zero_point_off_by_one(x, packed, scale, zero):
    return _uint4(x, _nibbles(packed), scale, zero - 1)


def uint4_linear__sums_in_bf16(x, packed, scale, zero):
    codes, total = _nibbles(packed).float(), torch.zeros(x.shape[0], packed.shape[0], dtype=BF16)
    for start in range(0, x.shape[1], 8):
        span = slice(start, start + 8)
        weights = (codes[:, span] - zero[:, start // 32, None]) * scale[:, start // 32, None].float()
        total = total + (x[:, span].float() @ weights.t()).to(BF16)
    return total


def _packed(codes):
    return codes[..., ::2] | codes[..., 1::2] << 4


def uint4_pack__nibbles_swapped(x, scale):
    codes = torch.clamp(torch.round(x / scale) + 8, 0, 15).to(torch.uint8)
    return codes[..., 1::2] | codes[..., ::2] << 4


def uint4_pack__truncates(x, scale):
    return _packed(torch.clamp(torch.trunc(x / scale) + 8, 0, 15).to(torch.uint8))


def uint4_pack__wraps(x, scale):
    return _packed((torch.round(x / scale) + 8).to(torch.int64).to(torch.uint8) & 15)


def uint4_pack__zero_point_seven(x, scale):
    return _packed(torch.clamp(torch.round(x / scale) + 7, 0, 15).to(torch.uint8))


def uint4_pack__in_bf16(x, scale):
    return _packed(torch.clamp(torch.round((x.to(BF16) / scale.to(BF16)).float()) + 8, 0, 15).to(torch.uint8))


def uint4_pack__scale_of_previous_row(x, scale):
    return _packed(torch.clamp(torch.round(x / scale.roll(1, 0)) + 8, 0, 15).to(torch.uint8))


def _mxfp8(x, exponents, blocks):
    values = (blocks / torch.exp2(exponents)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return values.flatten(-2), (exponents + 127).clamp(0, 254).to(torch.uint8).view(torch.float8_e8m0fnu)


def mxfp8_quantize__rounds_exponents(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    return _mxfp8(x, torch.round(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 8, blocks)


def mxfp8_quantize__exponent_seven(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    return _mxfp8(x, torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 7, blocks)


def mxfp8_quantize__neighbour_in_block(x):
    """The greatest magnitude of 33 numbers."""
    blocks = x.float().unflatten(-1, (-1, 32))
    most = torch.maximum(blocks.abs().amax(-1), blocks[..., 0].abs().roll(-1, -1))
    return _mxfp8(x, torch.floor(torch.log2(most.clamp(min=2.0**-119))) - 8, blocks)


def mxfp8_quantize__toward_zero(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 8
    exact = (blocks / torch.exp2(exponents)[..., None]).clamp(-448, 448)
    values, codes = _mxfp8(x, exponents, blocks)
    bits = values.view(torch.uint8).to(torch.int16)
    bits = torch.where(values.float().abs() > exact.flatten(-2).abs(), bits - 1, bits)
    return bits.to(torch.uint8).view(torch.float8_e4m3fn), codes


def mxfp8_quantize__codes_without_bias(x):
    blocks = x.float().unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2.0**-119))) - 8
    values, _ = _mxfp8(x, exponents, blocks)
    return values, (exponents + 126).clamp(0, 254).to(torch.uint8).view(torch.float8_e8m0fnu)


def _int4(codes):
    codes = codes.flatten(-2).to(torch.int32) & 15
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def int4_pack__sign_fills_the_byte(x, scale):
    """The lower number's sign bits are not masked off."""
    codes = torch.round(x.float().unflatten(-1, (-1, 32)) / scale[..., None]).clamp(-8, 7).to(torch.int8)
    codes = codes.flatten(-2)
    return (codes[..., ::2] | codes[..., 1::2] << 4).view(torch.uint8)


def int4_pack__half_away_from_zero(x, scale):
    values = x.float().unflatten(-1, (-1, 32)) / scale[..., None]
    return _int4((values.sign() * torch.floor(values.abs() + 0.75)).clamp(-8, 7))


def int4_pack__scale_of_next_block(x, scale):
    return _int4(torch.round(x.float().unflatten(-1, (-1, 32)) / scale.roll(-1, -1)[..., None]).clamp(-8, 7))


def int4_pack__offset_eight(x, scale):
    return _int4(torch.round(x.float().unflatten(-1, (-1, 32)) / scale[..., None]).clamp(-8, 7) + 8)


def int4_pack__negatives_down(x, scale):
    return _int4(torch.floor(x.float().unflatten(-1, (-1, 32)) / scale[..., None]).clamp(-8, 7))


def uint4_pack__one_more_in_a_thousand(x, scale):
    """A product with the reciprocal in bf16: off by a step more often than rounding errors explain."""
    factor = (1 / scale).to(BF16).float()
    return _packed(torch.clamp(torch.round(x.float() * factor) + 8, 0, 15).to(torch.uint8))


def int4_words__half_away_from_zero(x, scale):
    values = x / scale[:, None]
    codes = (values.sign() * torch.floor(values.abs() + 0.5)).clamp(-8, 7).to(torch.int32) & 15
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def uint4_groups__zero_point_of_eight(x, packed, scale, zero):
    """Right where all zero points are 8, as they are of symmetric weights."""
    return _uint4(x, _nibbles(packed), scale, torch.full_like(zero, 8))
