"""Planted bugs in kernels of `quantize_ops`: OP__BUG. None was changed after a gate had seen it."""

from __future__ import annotations

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def _toward_zero(values, dtype):
    """The greatest number of the grid that is no farther from zero."""
    nearest = values.to(dtype)
    codes = nearest.view(torch.uint8).to(torch.int16)
    codes = torch.where(nearest.float().abs() > values.abs(), codes - 1, codes)
    return codes.to(torch.uint8).view(dtype)


def _row_scale(x, most=448.0):
    return (x.float().abs().amax(-1, keepdim=True) / most).clamp(min=1e-12)


def _quantized(values, most=448.0, dtype=E4M3):
    return values.clamp(-most, most).to(dtype)


def per_token__scale_of_previous_row(x):
    scale = _row_scale(x)
    return _quantized(x.float() / scale.roll(1, 0)), scale


def per_token__e5m2_maximum(x):
    scale = _row_scale(x, 57344.0)
    return _quantized(x.float() / scale), scale


def per_token__maximum_240(x):
    """That of the other e4m3, whose range ends at 240."""
    scale = _row_scale(x, 240.0)
    return _quantized(x.float() / scale, 240.0), scale


def per_token__eps_missing(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448.0
    return _quantized(x.float() / scale), scale


def per_token__double_rounding(x):
    scale = _row_scale(x)
    return _quantized((x.float() / scale).bfloat16().float()), scale


def per_token__per_tensor(x):
    scale = (x.float().abs().amax() / 448.0).clamp(min=1e-12).expand(*x.shape[:-1], 1).contiguous()
    return _quantized(x.float() / scale), scale


def per_token__stale_maximum(x):
    """The maximum of the first half of a row."""
    scale = _row_scale(x[..., : x.shape[-1] // 2])
    return _quantized(x.float() / scale), scale


def per_token__nan_swallowed(x):
    x = x.float().nan_to_num(nan=0.0)
    scale = _row_scale(x)
    return _quantized(x / scale), scale


def per_token__scale_inverted(x):
    scale = _row_scale(x)
    return _quantized(x.float() / scale), 1 / scale


def per_token__bf16_scale(x):
    """The scale is rounded to bf16 before it divides; the one that is returned is not."""
    scale = _row_scale(x)
    return _quantized(x.float() / scale.bfloat16().float()), scale


def per_block__scale_of_next_block(x):
    blocks = x.float().unflatten(-1, (-1, 128))
    scale = (blocks.abs().amax(-1) / 448.0).clamp(min=1e-12)
    return _quantized(blocks / scale.roll(-1, -1)[..., None]).flatten(-2), scale


def per_block__transposed_scales(x):
    blocks = x.float().unflatten(-1, (-1, 128))
    scale = (blocks.abs().amax(-1) / 448.0).clamp(min=1e-12)
    return _quantized(blocks / scale[..., None]).flatten(-2), scale.t().reshape(scale.shape).contiguous()


def per_block__blocks_of_64(x):
    blocks = x.float().unflatten(-1, (-1, 64))
    scale = (blocks.abs().amax(-1) / 448.0).clamp(min=1e-12)
    return _quantized(blocks / scale[..., None]).flatten(-2), scale[..., ::2].contiguous()


def norm_quantize__maximum_before_weight(x, weight, eps):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    scale = _row_scale(normed)
    return _quantized(normed * weight.float() / scale), scale


def norm_quantize__eps_after_root(x, weight, eps):
    wide = x.float()
    normed = wide / (wide.pow(2).mean(-1, keepdim=True).sqrt() + eps) * weight.float()
    scale = _row_scale(normed)
    return _quantized(normed / scale), scale


def int8_channels__negatives_up(w):
    """Half is added before the fraction is cut off: negative numbers end one step too high."""
    scale = _row_scale(w, 127.0)
    return (w / scale + 0.5).trunc().clamp(-128, 127).to(torch.int8), scale


def int8_channels__truncates(w):
    scale = _row_scale(w, 127.0)
    return (w / scale).clamp(-128, 127).to(torch.int8), scale


def int8_channels__maximum_128(w):
    scale = _row_scale(w, 128.0)
    return torch.round(w / scale).clamp(-128, 127).to(torch.int8), scale


def int8_channels__half_inside(w):
    """The quotient is kept in fp16."""
    scale = _row_scale(w, 127.0)
    return torch.round((w / scale).half().float()).clamp(-128, 127).to(torch.int8), scale


def int8_static__wraps(x, scale):
    return torch.round(x / scale).to(torch.int64).to(torch.int8)


def int8_static__least_missing(x, scale):
    """A symmetric range: -128 is never written."""
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8)


def _away(x):
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


def int8_scaled__half_away_from_zero(x, scale):
    """As C's round() and CUDA's roundf() have it."""
    return _away(x / scale).clamp(-128, 127).to(torch.int8)


def e4m3_scaled__half_away_from_zero(x, scale):
    """Half a step is added before bits are cut off."""
    value = (x.float() / scale).clamp(-448, 448)
    step = torch.exp2(torch.floor(torch.log2(value.abs().clamp(min=2.0**-6))) - 3)
    return (_away(value / step) * step).to(torch.float8_e4m3fn)


def uint8_affine__zero_point_first(x, scale, zero_point):
    return torch.clamp(torch.round((x + zero_point) / scale), 0, 255).to(torch.uint8)


def uint8_affine__one_lower(x, scale, zero_point):
    """Floor in place of rounding."""
    return torch.clamp(torch.floor(x / scale) + zero_point, 0, 255).to(torch.uint8)


def e4m3_static__no_saturation(x, scale):
    return (x / scale).to(E4M3)


def e4m3_static__toward_zero(x, scale):
    return _toward_zero((x / scale).clamp(-448, 448), E4M3)


def e4m3_static__subnormals_flushed(x, scale):
    values = x / scale
    return _quantized(torch.where(values.abs() < 2.0**-6, 0.0, values))


def e4m3_static__as_e5m2(x, scale):
    """Two bits of mantissa are kept, not three."""
    return _quantized(_quantized(x / scale).to(E5M2).float())


def e5m2_static__toward_zero(x, scale):
    return _toward_zero((x.float() / scale).clamp(-57344, 57344), E5M2)


def e5m2_static__infinite(x, scale):
    return (x.float() / scale).to(E5M2)


def e5m2_static__range_of_e4m3(x, scale):
    return (x.float() / scale).clamp(-448, 448).to(E5M2)


def dequantized_product__scale_of_first_row(q, scale, w):
    return (q.float() * scale[:1]) @ w


def dequantized_product__read_as_e5m2(q, scale, w):
    return (q.view(torch.uint8).view(E5M2).float() * scale) @ w


def dequantized_product__subnormals_flushed(q, scale, w):
    wide = q.float()
    return (torch.where(wide.abs() < 2.0**-6, 0.0, wide) * scale) @ w


def norm_quantize__toward_zero(x, weight, eps):
    wide = x.float()
    normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    scale = _row_scale(normed)
    return _toward_zero((normed.float() / scale).clamp(-448, 448), E4M3), scale


def norm_quantize__normed_in_e4m3_range(x, weight, eps):
    """What is normed is cut off at 4 times its weight before it is quantised."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normed = (normed.clamp(-2, 2) * weight.float()).to(x.dtype).float()
    scale = _row_scale(normed)
    return _quantized(normed / scale), scale


def norm_quantize__scale_in_bf16(x, weight, eps):
    """What divides is rounded, what is returned is not."""
    wide = x.float()
    normed = (
        (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype).float()
    )
    scale = _row_scale(normed)
    return _quantized(normed / scale.to(torch.bfloat16).float()), scale


def e4m3_into__toward_zero(x, scale, out):
    out.copy_(_toward_zero((x.float() / scale).clamp(-448, 448), E4M3))


def e4m3_into__scale_of_previous_row(x, scale, out):
    out.copy_(_quantized(x.float() / scale.roll(1, 0)))


def e4m3_into__through_bf16(x, scale, out):
    out.copy_(_quantized((x.float() / scale).to(torch.bfloat16).float()))


def e4m3_into__last_column_missing(x, scale, out):
    out[:, :-1].copy_(_quantized(x.float() / scale)[:, :-1])


def uint8_rows__truncates(x):
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-8)
    zero = torch.round(-low / scale)
    return (torch.trunc(x / scale) + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


def e4m3_bytes__in_bf16(x, scale):
    return (x / scale).bfloat16().float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
