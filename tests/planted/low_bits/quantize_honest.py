"""Kernels of `quantize_ops` that are right, however they compute: OP__HOW."""

from __future__ import annotations

import torch

E4M3 = torch.float8_e4m3fn


def _quantized(values, most=448.0, dtype=E4M3):
    return values.clamp(-most, most).to(dtype)


def _row_scale(x, most=448.0):
    return (x.float().abs().amax(-1, keepdim=True) / most).clamp(min=1e-12)


def per_token__reciprocal(x):
    scale = _row_scale(x)
    return _quantized(x.float() * (1 / scale)), scale


def per_token__reciprocal_of_maximum(x):
    most = x.float().abs().amax(-1, keepdim=True).clamp(min=448e-12)
    return _quantized(x.float() * (448.0 / most)), most * (1 / 448.0)


def per_token__fp64(x):
    scale = (x.double().abs().amax(-1, keepdim=True) / 448.0).clamp(min=1e-12)
    return _quantized(x.double() / scale), scale.float()


def per_token__rows_in_a_loop(x):
    outputs = [(_quantized(row.float() / _row_scale(row)), _row_scale(row)) for row in x.flatten(0, -2)]
    q, scale = (torch.stack(parts) for parts in zip(*outputs, strict=True))
    return q.reshape(x.shape), scale.reshape(*x.shape[:-1], 1)


def per_token__both_extremes(x):
    wide = x.float()
    most = torch.maximum(wide.amax(-1, keepdim=True), -wide.amin(-1, keepdim=True))
    scale = torch.maximum(most / 448.0, torch.tensor(1e-12))
    return _quantized(wide / scale), scale


def per_block__reciprocal(x):
    blocks = x.reshape(-1, 128)
    scale = _row_scale(blocks)
    q = _quantized(blocks * scale.reciprocal()).reshape(x.shape)
    return q, scale.reshape(*x.shape[:-1], -1)


def per_block__block_by_block(x):
    q = torch.empty(x.shape, dtype=E4M3)
    scales = torch.empty(*x.shape[:-1], x.shape[-1] // 128)
    for number, block in enumerate(x.split(128, -1)):
        scale = _row_scale(block)
        scales[..., number : number + 1] = scale
        q[..., 128 * number : 128 * (number + 1)] = _quantized(block / scale)
    return q, scales


def norm_quantize__without_rounding_between(x, weight, eps):
    """Fused: the normed row is never rounded to bf16."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
    scale = _row_scale(normed)
    return _quantized(normed / scale), scale


def norm_quantize__divides_by_root(x, weight, eps):
    wide = x.float()
    normed = wide / torch.sqrt(wide.square().sum(-1, keepdim=True) / x.shape[-1] + eps) * weight.float()
    normed = normed.to(x.dtype).float()
    scale = _row_scale(normed)
    return _quantized(normed * (1 / scale)), scale


def norm_quantize__fp64(x, weight, eps):
    wide = x.double()
    normed = wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.double()
    scale = (normed.abs().amax(-1, keepdim=True) / 448.0).clamp(min=1e-12)
    return _quantized(normed / scale), scale.float()


def norm_quantize__maximum_of_products(x, weight, eps):
    wide = x.float()
    factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    weighted = wide * weight.float()
    scale = (weighted.abs().amax(-1, keepdim=True) * factor / 448.0).clamp(min=1e-12)
    return _quantized(weighted * (factor / scale)), scale


def int8_channels__reciprocal(w):
    scale = _row_scale(w, 127.0)
    return torch.round(w * (1 / scale)).clamp(-128, 127).to(torch.int8), scale


def int8_channels__fp64(w):
    scale = (w.double().abs().amax(-1, keepdim=True) / 127.0).clamp(min=1e-12)
    return torch.round(w.double() / scale).clamp(-128, 127).to(torch.int8), scale.float()


def int8_channels__magic_number(w):
    """Adding 1.5·2²³ rounds to an integer."""
    scale = _row_scale(w, 127.0)
    rounded = (w / scale + 12582912.0) - 12582912.0
    return rounded.clamp(-128, 127).to(torch.int8), scale


def int8_static__reciprocal(x, scale):
    return torch.round(x * (1 / scale)).clamp(-128, 127).to(torch.int8)


def int8_static__clamped_first(x, scale):
    return torch.round((x / scale).clamp(-128, 127)).to(torch.int8)


def int8_static__half_up(x, scale):
    """The other direction at exact halves."""
    return torch.floor(x / scale + 0.5).clamp(-128, 127).to(torch.int8)


def int8_scaled__reciprocal(x, scale):
    return torch.round(x * (1 / scale)).clamp(-128, 127).to(torch.int8)


def int8_scaled__magic_number(x, scale):
    """Adding 1.5 * 2^23 leaves no bits behind the point."""
    return ((x / scale).clamp(-128, 127) + 12582912.0 - 12582912.0).to(torch.int8)


def e4m3_scaled__reciprocal(x, scale):
    return _quantized(x.float() * (1 / scale))


def uint8_affine__fused(x, scale, zero_point):
    return torch.round(torch.clamp(x * (1 / scale) + zero_point, 0, 255)).to(torch.uint8)


def e4m3_static__reciprocal(x, scale):
    return _quantized(x * (1 / scale))


def e4m3_static__by_table(x, scale):
    """The nearest of all numbers of the grid."""
    codes = torch.arange(127, dtype=torch.uint8)
    grid = codes.view(E4M3).double()
    middles = (grid[1:] + grid[:-1]) / 2
    values = x.double() / scale
    at = torch.bucketize(values.abs(), middles)
    tie = (at < 126) & (values.abs() == middles[at.clamp(max=125)]) & (at % 2 == 1)
    code = (at + tie).to(torch.uint8) | (torch.signbit(values).to(torch.uint8) << 7)
    code = torch.where(values.isnan(), torch.tensor(0x7F, dtype=torch.uint8), code)
    return code.view(E4M3)


def e5m2_static__fp64(x, scale):
    return _quantized(x.double() / scale, 57344.0, torch.float8_e5m2)


def e5m2_static__reciprocal(x, scale):
    return _quantized(x.float() * (1 / scale), 57344.0, torch.float8_e5m2)


def dequantized_product__scaled_afterwards(q, scale, w):
    return (q.float() @ w) * scale


def dequantized_product__split(q, scale, w):
    half = w.shape[0] // 2
    wide = q.float()
    return (wide[:, :half] @ w[:half] + wide[:, half:] @ w[half:]) * scale


def dequantized_product__fp64(q, scale, w):
    return ((q.double() * scale.double()) @ w.double()).float()


def norm_quantize__kept_in_fp32(x, weight, eps):
    """What is normed is not rounded to bf16, as in fused kernels."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
    scale = _row_scale(normed)
    return _quantized(normed / scale), scale


def e4m3_into__reciprocal(x, scale, out):
    out.copy_(_quantized(x.float() * (1 / scale)))


def e4m3_into__fp64(x, scale, out):
    out.copy_(_quantized((x.double() / scale).float()))


def e4m3_into__rows_in_a_loop(x, scale, out):
    for row, factor, codes in zip(x, scale, out, strict=True):
        codes.copy_(_quantized(row.float() / factor))


def uint8_rows__reciprocal(x):
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-8)
    zero = torch.round(-low / scale)
    return (torch.round(x * (1 / scale)) + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


def e4m3_bytes__fp64(x, scale):
    return (x.double() / scale.double()).clamp(-448, 448).float().to(E4M3).view(torch.uint8)
